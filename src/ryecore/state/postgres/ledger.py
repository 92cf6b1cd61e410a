"""The budget ledger in PostgreSQL: an agent's turn takes one round trip.

Source: docs/design/threads.md#budget; decisions 39, 40 and 77.
"""

from collections.abc import Sequence
from typing import Final, Literal

from typing_extensions import override

from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import Amount, Mark, Settled, Settlement
from ryecore.state.model import Cost
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.sql_ledger import AS_HELD, SqlLedger, whole_numbers
from ryecore.state.thread_rows import new_lease

__all__ = ["PostgresLedger"]

_EXCHANGE: Final = (  # turns of one tree go beside each other, and never beside its sums
    f"SELECT exchange_hold({', '.join('?' * 20)})"  # noqa: S608 - places for values alone
    " FROM lock_tree(?, ?, ?, ?, TRUE)"
)
_HOLD: Final = f"SELECT hold_alone({', '.join('?' * 9)}) FROM lock_tree(?, ?, ?, ?, TRUE)"  # noqa: S608
_SETTLE: Final = f"SELECT settle_alone({', '.join('?' * 10)}) FROM lock_tree(?, ?, ?, ?, TRUE)"  # noqa: S608
_CANCEL, _HAND_OFF = 1, 2


class PostgresLedger(SqlLedger):
    """The budget ledger in PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._server = database

    # Each usual case is one function of the server. It returns whether it was that; else it has
    # changed nothing.

    @override
    async def hold(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        head: tuple[int, str] | None = None,
    ) -> None:
        ((is_done,),) = self._server.read(
            _HOLD,
            (
                *(thread_id, turn, attempt, *whole_numbers(amount), *new_lease()),
                *(head or (None, None)),
                *(*self._server.tree_lock, thread_id),
            ),
        )
        if not is_done:
            await super().hold(thread_id, turn, attempt, amount, head=head)

    @override
    async def settle(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        actual: Amount,
        *,
        mark: Mark = "counted",
        snapshot: Cost | None = None,
    ) -> Settled:
        *cost, is_estimated = (None,) if snapshot is None else _cost_values(snapshot)
        ((requests,),) = self._server.read(
            _SETTLE,
            (
                *(thread_id, turn, attempt, mark, *whole_numbers(actual), *new_lease()),
                *(cost or None, is_estimated),
                *(*self._server.tree_lock, thread_id),
            ),
        )
        if requests is None:
            return await super().settle(
                thread_id, turn, attempt, actual, mark=mark, snapshot=snapshot
            )
        return Settled(
            overspent=False,
            cancel_requested=bool(requests & _CANCEL),
            stopped=False,
            handoff_requested=bool(requests & _HAND_OFF),
        )

    @override
    async def settle_and_hold(
        self,
        thread_id: str,
        settlements: Sequence[Settlement],
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        snapshot: Cost,
        head: tuple[int, str] | None = None,
        hands_off: bool = False,
    ) -> tuple[tuple[Settled, ...], InsufficientBudget | Literal["stopped"] | None]:
        if len(settlements) == 1 and head is not None:
            (one,) = settlements
            *cost, is_estimated = _cost_values(snapshot)
            ((is_done,),) = self._server.read(
                _EXCHANGE,
                (
                    *(*self._server.lock, thread_id, one.turn, one.attempt, one.mark),
                    *(*whole_numbers(one.held), *whole_numbers(one.actual)),
                    *(turn, attempt, *whole_numbers(amount), *new_lease()),
                    *(cost, is_estimated, *head),
                    *(*self._server.tree_lock, thread_id),
                ),
            )
            if is_done:
                return (AS_HELD,), None
        return await super().settle_and_hold(
            thread_id,
            settlements,
            turn,
            attempt,
            amount,
            snapshot=snapshot,
            head=head,
            hands_off=hands_off,
        )


def _cost_values(cost: Cost) -> tuple[object, ...]:
    return (
        cost.turns,
        cost.input_tokens,
        cost.output_tokens,
        cost.spend_microcents,
        cost.cached_tokens,
        cost.unpriced,
        cost.cache_saved_microcents,
        cost.estimated,
    )
