"""The budget ledger in PostgreSQL: an agent's turn takes one round trip.

Source: docs/design/threads.md#budget; decisions 39, 40 and 77.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

from typing_extensions import override

from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import Amount, Mark, Settled, Settlement
from ryecore.state.model import Cost
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.sql_ledger import AS_HELD, SqlLedger, whole_numbers
from ryecore.state.thread_rows import new_lease

__all__ = ["PostgresLedger"]

# ruff: noqa: S608 - what is spliced into statements is this package's own constants

_EXCHANGE: Final = f"exchange_hold({', '.join('?' * 20)})"
_HOLD: Final = f"hold_alone({', '.join('?' * 9)})"
_SETTLE: Final = f"settle_alone({', '.join('?' * 10)})"
_IN_TREE: Final = "lock_tree(?, ?, ?, ?, TRUE)"
"""Turns of one tree go beside each other, and never beside its sums."""

_CANCEL, _HAND_OFF = 1, 2


class PostgresLedger(SqlLedger):
    """The budget ledger in PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._server = database

    # Each usual case is one function of the server. It returns whether it was that; else it has
    # changed nothing. What the thread's log has to write is written before, in the same statement.

    def _call(self, thread_id: str, function: str, values: Sequence[Any]) -> Any:
        server = self._server
        if server.holds_lock:  # that of the tree, or the schema's
            return server.call(f"SELECT {function}", values)
        lock = (*server.tree_lock, thread_id)
        with server.joined(thread_id) as ahead:
            if ahead is None:
                return server.call(f"SELECT {function} FROM {_IN_TREE}", (*values, *lock))
            query = (  # without the OFFSET, both calls would be one level, and their order open
                f"SELECT CASE WHEN written THEN ARRAY[{function}] END"
                f" FROM (SELECT {ahead.call} AS written FROM {_IN_TREE} OFFSET 0) AS ahead"
            )
            result = server.call(query, (*values, *ahead.values, *lock))
            if result is None:
                raise ahead.refused()
            return result[0]

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
        values = (
            *(thread_id, turn, attempt, *whole_numbers(amount), *new_lease()),
            *(head or (None, None)),
        )
        if not self._call(thread_id, _HOLD, values):
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
        values = (
            *(thread_id, turn, attempt, mark, *whole_numbers(actual), *new_lease()),
            *(cost or None, is_estimated),
        )
        requests = self._call(thread_id, _SETTLE, values)
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
            values = (
                *(*self._server.lock, thread_id, one.turn, one.attempt, one.mark),
                *(*whole_numbers(one.held), *whole_numbers(one.actual)),
                *(turn, attempt, *whole_numbers(amount), *new_lease()),
                *(cost, is_estimated, *head),
            )
            if self._call(thread_id, _EXCHANGE, values):
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
