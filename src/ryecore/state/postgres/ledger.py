"""The budget ledger in PostgreSQL: an agent's turn takes one round trip.

Source: docs/design/threads.md#budget; decisions 39, 40 and 77.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final, Literal

from typing_extensions import override

from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import Account, Amount, Mark, Settled, Settlement
from ryecore.state.accounts import ACCOUNT, account_of
from ryecore.state.model import Cost
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.fast_path import FastPathMiss
from ryecore.state.postgres.registry import cost_array
from ryecore.state.refusals import not_registered
from ryecore.state.sql_ledger import AS_HELD, SqlLedger, whole_numbers
from ryecore.state.thread_rows import new_lease

__all__ = ["PostgresLedger"]


_EXCHANGE: Final = f"exchange_requests({', '.join('?' * 20)})"
_HOLD: Final = f"hold_request({', '.join('?' * 9)})"
_SETTLE: Final = f"settle_request({', '.join('?' * 10)})"

_CANCEL, _HAND_OFF = 1, 2


class PostgresLedger(SqlLedger):
    """The budget ledger in PostgreSQL."""

    awaited: ClassVar = frozenset(
        {"account", "hold", "settle", "settle_and_hold", "together", "tree"}
    )
    """The operations that an event loop awaits itself; see `in_workers`."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._server = database

    # The fast path is a stored function, which returns FALSE or NULL where it has changed nothing.
    # What the thread's log has to write is written before, in the same statement.

    async def _call(self, thread_id: str, function: str, values: Sequence[Any]) -> Any:
        if self._server.holds_lock:  # an error of the function would undo the whole transaction
            return None
        try:
            return await self._server.call_in_tree(thread_id, function, values)
        except FastPathMiss:
            if self._server.deferred is not None:
                raise
            return None

    @override
    async def register(self, thread_id: str, ceiling: Amount) -> None:
        deferred = self._server.deferred
        amounts = whole_numbers(ceiling)
        if deferred is not None and deferred.defer_account(thread_id, None, *amounts):
            return
        await super().register(thread_id, ceiling)

    @override
    async def reserve(
        self,
        thread_id: str,
        parent_id: str,
        wanted: Amount,
        *,
        reserves_spend: bool,
        reserves_tokens: bool,
    ) -> Amount:
        amounts = whole_numbers(wanted)
        deferred = self._server.deferred if reserves_spend and reserves_tokens else None
        if deferred is not None and deferred.defer_account(thread_id, parent_id, *amounts):
            return Amount(*amounts)
        return await super().reserve(
            thread_id,
            parent_id,
            wanted,
            reserves_spend=reserves_spend,
            reserves_tokens=reserves_tokens,
        )

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
        if not await self._call(thread_id, _HOLD, values):
            by_rules = partial(super().hold, thread_id, turn, attempt, amount, head=head)
            await self._server.operate(by_rules)

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
        deferred = self._server.deferred
        if deferred is not None and snapshot is None:
            charged = Amount(*whole_numbers(actual))
            if deferred.defer_settlement(thread_id, (turn, attempt), charged, mark):
                return AS_HELD
        cost, is_estimated = (None, None) if snapshot is None else cost_array(snapshot)
        values = (
            *(thread_id, turn, attempt, mark, *whole_numbers(actual), *new_lease()),
            *(cost, is_estimated),
        )
        requests = await self._call(thread_id, _SETTLE, values)
        if requests is None:
            by_rules = partial(super().settle, thread_id, turn, attempt, actual, mark=mark)
            return await self._server.operate(partial(by_rules, snapshot=snapshot))
        return Settled(
            overspent=False,
            cancel_requested=bool(requests & _CANCEL),
            stopped=False,
            handoff_requested=bool(requests & _HAND_OFF),
        )

    @override
    async def account(self, thread_id: str) -> Account:
        found = await self._server.fetch_row(ACCOUNT, (thread_id,))
        if found is None:
            raise not_registered(thread_id)
        return account_of(thread_id, found)

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
            cost, is_estimated = cost_array(snapshot)
            values = (
                *(*self._server.lock, thread_id, one.turn, one.attempt, one.mark),
                *(*whole_numbers(one.held), *whole_numbers(one.actual)),
                *(turn, attempt, *whole_numbers(amount), *new_lease()),
                *(cost, is_estimated, *head),
            )
            if await self._call(thread_id, _EXCHANGE, values):
                return (AS_HELD,), None
        by_rules = partial(super().settle_and_hold, thread_id, settlements, turn, attempt, amount)
        return await self._server.operate(
            partial(by_rules, snapshot=snapshot, head=head, hands_off=hands_off)
        )
