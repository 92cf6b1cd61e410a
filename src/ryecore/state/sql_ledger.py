"""The budget ledger in a database: ceilings, holds and spending, exact across processes.

Each method is one transaction. The accounts are in the registry's database, because two can't
commit together.

Source: docs/design/threads.md#budget; docs/design/threads.md#the-end; decisions 37, 39 and 40.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

from collections.abc import Sequence
from typing import Final, Literal, TypeVar

from typing_extensions import override

from ryecore.errors import BudgetError, InsufficientBudget
from ryecore.policy.budget import (
    MOST,
    NOTHING,
    Account,
    Amount,
    Charge,
    Dimension,
    Mark,
    Settled,
    Settlement,
    TreeSum,
    grant,
)
from ryecore.state.accounts import (
    ACCOUNT,
    MARK,
    MARK_HELD,
    RESERVE,
    Step,
    account_of,
    add_to_cost,
    cascade,
    charge,
    find,
    is_placed,
    path_of,
    place,
    stop_subtree,
    transfer_account,
)
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost
from ryecore.state.refusals import insufficient, not_registered, refuse_closed, refuse_opening
from ryecore.state.schema import OPEN_ACCOUNT, SET_COST, SET_HEAD, below
from ryecore.state.statements import Row, SqlDatabase, Statements
from ryecore.state.thread_rows import SET_LEASE, cost_values, new_lease
from ryecore.state.transactions import Work

__all__ = ["AS_HELD", "SqlLedger", "whole_numbers"]

T = TypeVar("T")

_HOLD: Final = (
    "UPDATE accounts SET spend_held = spend_held + ?, tokens_held = tokens_held + ?"
    " WHERE thread_id = ?"
)
_LEASE: Final = f"UPDATE threads SET {SET_LEASE} WHERE thread_id = ?"
_HEAD: Final = f"UPDATE threads SET {SET_LEASE}, {SET_HEAD} WHERE thread_id = ?"
_REQUESTS: Final = (
    "SELECT cancel_requested OR kill_requested OR completed_at IS NOT NULL, handoff_requested"
    " FROM threads WHERE thread_id = ?"
)
_SNAPSHOT: Final = (
    f"UPDATE threads SET {SET_LEASE}, {SET_COST} WHERE thread_id = ? AND completed_at IS NULL"
    " RETURNING cancel_requested OR kill_requested, handoff_requested"
)
# Only where the account and the thread's row have nothing that `settle` or `hold` would look at.
_MARK_ALONE: Final = (
    f"{MARK} AND mark = 'held' AND held_spend = ? AND held_tokens = ?"
    " AND EXISTS (SELECT 1 FROM accounts JOIN threads USING (thread_id)"
    " WHERE accounts.thread_id = charges.thread_id"
    " AND state = 'open' AND NOT stopped AND reserves_spend AND reserves_tokens"
    " AND spend_own + spend_children + spend_held + spend_reserved + ? <= spend_ceiling"
    " AND tokens_own + tokens_children + tokens_held + tokens_reserved + ? <= tokens_ceiling"
    " AND completed_at IS NULL"
    " AND NOT (cancel_requested OR kill_requested OR handoff_requested))"
)
_CHARGE_AND_HOLD: Final = (
    "UPDATE accounts SET spend_held = spend_held + ?, spend_own = spend_own + ?,"
    " tokens_held = tokens_held + ?, tokens_own = tokens_own + ? WHERE thread_id = ?"
)
_SNAPSHOT_AND_HEAD: Final = (
    f"UPDATE threads SET {SET_LEASE}, {SET_COST}, {SET_HEAD} WHERE thread_id = ?"
)
AS_HELD: Final = Settled(overspent=False, cancel_requested=False, stopped=False)
"""What came of a request that cost no more than was held for it."""

# A hold is placed on a whole path: it is counted at the end of it, or at the top of this tree.
_TREE: Final = (
    f"{below('accounts')} SELECT count(*), CAST(sum(spend_own) AS BIGINT),"
    " CAST(sum(tokens_own) AS BIGINT), CAST(coalesce(sum(spend_held)"
    " FILTER (WHERE thread_id = ? OR (state = 'open' AND reserves_spend)), 0) AS BIGINT),"
    " CAST(coalesce(sum(tokens_held)"
    " FILTER (WHERE thread_id = ? OR (state = 'open' AND reserves_tokens)), 0) AS BIGINT)"
    " FROM accounts WHERE thread_id IN (SELECT thread_id FROM below)"
)
_SETTLED: Final = frozenset({"counted", "estimated"})


class SqlLedger(BudgetLedger):
    """The budget ledger, in the registry's database: an account needs its row."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    # Opening an account

    @override
    async def synced(self) -> None:
        await self._database.synced()

    @override
    async def together(self, work: Work[T], *, tree: str | None = None) -> T:
        return await self._database.together(work, tree)

    @override
    async def register(self, thread_id: str, ceiling: Amount) -> None:
        spend, tokens = whole_numbers(ceiling)
        async with self._database.writing(thread_id) as run:
            opened = run.execute(OPEN_ACCOUNT, (None, True, True, spend, tokens, thread_id))
            if not opened.rowcount and not _is_open(run, thread_id, None):
                raise refuse_opening(run, thread_id)

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
        spend, tokens = whole_numbers(wanted)
        async with self._database.writing(parent_id) as run:
            found = _is_open(run, thread_id, parent_id)
            if found:
                return Amount(found["spend_ceiling"], found["tokens_ceiling"])
            path = path_of(run, parent_id)
            refuse_closed(path[0].thread_id, path[0].state, path[0].stopped, wanted)
            shares = (
                step.share(reserves_spend=reserves_spend, reserves_tokens=reserves_tokens)
                for step in path
            )
            ceilings = grant(Amount(spend, tokens), shares)
            spend, tokens = ceilings.spend_microcents, ceilings.tokens
            if not spend and wanted.spend_microcents:
                self._refuse_unless_free(run, parent_id, "spend", reserves_spend, ceilings, wanted)
            if not tokens and wanted.tokens:
                self._refuse_unless_free(
                    run, parent_id, "tokens", reserves_tokens, ceilings, wanted
                )
            opened = (parent_id, reserves_spend, reserves_tokens, spend, tokens)
            _open(run, thread_id, opened)
            for step in path:
                aside = (
                    spend * reserves_spend * step.on_spend,
                    tokens * reserves_tokens * step.on_tokens,
                )
                if any(aside):
                    run.execute(RESERVE, (*aside, step.thread_id))
            return ceilings

    def _refuse_unless_free(
        self,
        run: Statements,
        parent_id: str,
        dimension: Dimension,
        reserves: bool,
        left: Amount,
        wanted: Amount,
    ) -> None:
        """Refuse a child if nothing is left, unless it shares a ceiling of zero.

        Such a tree can run what costs nothing; every other hold is refused.
        """
        (ceiling,) = run.execute(
            f"SELECT {dimension}_ceiling FROM accounts WHERE thread_id = ?", (parent_id,)
        ).fetchone()
        if reserves or ceiling:
            raise insufficient(parent_id, dimension, left, wanted)

    # Requests

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
        async with self._database.writing(thread_id) as run:
            _hold(run, thread_id, turn, attempt, amount, head)

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
        async with self._database.writing(thread_id) as run:
            return _settle(run, thread_id, (turn, attempt), actual, mark, snapshot)

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
        async with self._database.writing(thread_id) as run:
            if len(settlements) == 1 and head is not None:
                hold = (turn, attempt, amount)
                if _exchange_hold(run, thread_id, settlements[0], hold, snapshot, head):
                    return (AS_HELD,), None
            settled = tuple(
                _settle(run, thread_id, (one.turn, one.attempt), one.actual, one.mark, snapshot)
                for one in settlements
            )
            if any(
                one.cancel_requested or (hands_off and one.handoff_requested) for one in settled
            ):
                return settled, "stopped"
            try:
                _hold(run, thread_id, turn, attempt, amount, head)
            except InsufficientBudget as refused:  # before anything of it was written
                return settled, refused
            return settled, None

    @override
    async def transfer(self, thread_id: str, continuation_thread_id: str) -> Amount:
        async with self._database.writing(thread_id) as run:
            return transfer_account(run, thread_id, continuation_thread_id)

    # The end

    @override
    async def report_actual(self, thread_id: str, actual: Amount) -> None:
        spend, tokens = whole_numbers(actual)
        async with self._database.writing(thread_id) as run:
            own = run.execute(
                "SELECT spend_own, tokens_own FROM accounts WHERE thread_id = ?", (thread_id,)
            ).fetchone()
            if own is None:
                raise not_registered(thread_id)
            more = (max(spend - own[0], 0), max(tokens - own[1], 0))
            if any(more):
                charge(run, thread_id, (0, 0), more)

    @override
    async def cascade_spend(self, thread_id: str) -> None:
        async with self._database.writing(thread_id) as run:
            cascade(run, thread_id)

    # Queries

    @override
    async def account(self, thread_id: str) -> Account:
        rows = await self._database.fetch(ACCOUNT, (thread_id,))
        if not rows:
            raise not_registered(thread_id)
        return account_of(thread_id, rows[0])

    @override
    async def remaining(self, thread_id: str) -> Amount:
        with self._database.look() as run:
            path = path_of(run, thread_id)
        if path[0].state != "open" or path[0].stopped:
            return NOTHING
        return Amount(
            max(min(step.spend_left for step in path if step.on_spend), 0),
            max(min(step.tokens_left for step in path if step.on_tokens), 0),
        )

    @override
    async def tree(self, thread_id: str) -> TreeSum:
        (row,) = await self._database.fetch(_TREE, (thread_id, thread_id, thread_id))
        if not row[0]:
            raise not_registered(thread_id)
        threads, spend, tokens, held_spend, held_tokens = row
        return TreeSum(Amount(spend, tokens), Amount(held_spend, held_tokens), threads)

    @override
    async def charges(self, thread_id: str) -> tuple[Charge, ...]:
        rows = await self._database.fetch(
            "SELECT turn, attempt, held_spend, held_tokens, spend, tokens, mark FROM charges"
            " WHERE thread_id = ? ORDER BY turn, attempt",
            (thread_id,),
        )
        return tuple(
            Charge(turn, attempt, Amount(held, held_tokens), Amount(spend, tokens), mark)
            for turn, attempt, held, held_tokens, spend, tokens, mark in rows
        )


def _hold(
    run: Statements,
    thread_id: str,
    turn: int,
    attempt: int,
    amount: Amount,
    head: tuple[int, str] | None,
) -> None:
    spend, tokens = whole_numbers(amount)
    path = path_of(run, thread_id)
    refuse_closed(path[0].thread_id, path[0].state, path[0].stopped, amount)
    # Before anything is written, so that the others of a transaction can still happen.
    lack = _find_lack(path, spend, tokens)
    if lack and not is_placed(run, thread_id, turn, attempt, spend, tokens):
        step, dimension = lack
        raise insufficient(step.thread_id, dimension, step.left, amount)
    if place(run, thread_id, turn, attempt, spend, tokens):
        for step in path:
            run.execute(_HOLD, (spend * step.on_spend, tokens * step.on_tokens, step.thread_id))
    if head is None:
        run.execute(_LEASE, (*new_lease(), thread_id))
    else:
        run.execute(_HEAD, (*new_lease(), *head, thread_id))


def _settle(
    run: Statements,
    thread_id: str,
    request: tuple[int, int],
    actual: Amount,
    mark: Mark,
    snapshot: Cost | None,
) -> Settled:
    """Settle a request: a try of a turn."""
    spend, tokens = whole_numbers(actual)
    charged = (spend, tokens, mark, thread_id, *request)
    late = (0, 0)
    held = run.execute(MARK_HELD, charged).fetchone()
    if held is not None:
        held_spend, held_tokens = held
        stopped = charge(run, thread_id, (held_spend, held_tokens), (spend, tokens))
    else:
        stopped = bool(path_of(run, thread_id)[0].stopped)
        held_spend, held_tokens, *old, old_mark = find(run, thread_id, *request)
        if old_mark in _SETTLED:
            spend, tokens = old
        else:
            run.execute(MARK, charged)
            charge(run, thread_id, (0, 0), (spend - old[0], tokens - old[1]))
            late = (spend - old[0], tokens - old[1])
    overspent = spend > held_spend or tokens > held_tokens
    if overspent and not stopped:
        stop_subtree(run, thread_id)
    row = None
    if snapshot is not None:
        row = run.execute(_SNAPSHOT, (*new_lease(), *cost_values(snapshot), thread_id)).fetchone()
    if row is None and any(late):  # the thread has ended meanwhile
        add_to_cost(run, thread_id, *late)
    shall_stop, handoff = row or run.execute(_REQUESTS, (thread_id,)).fetchone()
    return Settled(overspent, bool(shall_stop), overspent or stopped, bool(handoff))


def _exchange_hold(
    run: Statements,
    thread_id: str,
    settled: Settlement,
    hold: tuple[int, int, Amount],
    snapshot: Cost,
    head: tuple[int, str],
) -> bool:
    """Settle one request and hold for another, in four statements instead of seven.

    Only in the usual case: the request cost no more than was held, the account is charged alone and
    has enough, and nobody asked the thread to stop. Returns whether that is so; else nothing has
    changed.
    """
    turn, attempt, amount = hold
    freed_spend, freed_tokens = whole_numbers(settled.held)
    spent, used = whole_numbers(settled.actual)
    spend, tokens = whole_numbers(amount)
    if spent > freed_spend or used > freed_tokens:
        return False
    marked = (spent, used, settled.mark, thread_id, settled.turn, settled.attempt)
    more = (spend + spent - freed_spend, tokens + used - freed_tokens)
    if not run.execute(_MARK_ALONE, (*marked, freed_spend, freed_tokens, *more)).rowcount:
        return False
    if not place(run, thread_id, turn, attempt, spend, tokens):  # it was held before
        spend, tokens = 0, 0
    run.execute(
        _CHARGE_AND_HOLD, (spend - freed_spend, spent, tokens - freed_tokens, used, thread_id)
    )
    run.execute(_SNAPSHOT_AND_HEAD, (*new_lease(), *cost_values(snapshot), *head, thread_id))
    return True


def whole_numbers(amount: Amount) -> tuple[int, int]:
    """Return money and tokens as they are stored."""
    spend, tokens = amount.spend_microcents, amount.tokens
    if spend < 0 or tokens < 0:
        raise ValueError(f"No amount is negative, and {amount} is.")
    return (spend if spend < MOST else MOST, tokens if tokens < MOST else MOST)


def _find_lack(path: list[Step], spend: int, tokens: int) -> tuple[Step, Dimension] | None:
    """Return the first account on a path that has less left, and of what; None if all suffice.

    A request that costs nothing passes, even after an overspend.
    """
    for step in path:
        if spend and step.on_spend and spend > step.spend_left:
            return step, "spend"
        if tokens and step.on_tokens and tokens > step.tokens_left:
            return step, "tokens"
    return None


def _is_open(run: Statements, thread_id: str, parent_id: str | None) -> Row | None:
    """Return the account that a child of this parent has already; None if it has none."""
    found: Row | None = run.execute(
        "SELECT parent_id, spend_ceiling, tokens_ceiling FROM accounts WHERE thread_id = ?",
        (thread_id,),
    ).fetchone()
    if found is not None and found["parent_id"] != parent_id:
        raise BudgetError(
            f"The thread {thread_id} has an account already, below {found['parent_id']}.",
            next_step="A thread has one budget: that of its parent.",
            account=thread_id,
        )
    return found


def _open(run: Statements, thread_id: str, values: tuple[object, ...]) -> None:
    if not run.execute(OPEN_ACCOUNT, (*values, thread_id)).rowcount:
        raise refuse_opening(run, thread_id)
