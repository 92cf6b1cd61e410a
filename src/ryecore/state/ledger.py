"""The budget ledger: what each thread may spend, holds and has spent, exact across processes.

Each method is one transaction. The accounts stand in the registry's own file, because two files
can't commit together.

Source: docs/design/threads.md#budget; docs/design/threads.md#the-end; decisions 37, 39 and 40.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

import sqlite3
from typing import Final

from attrs import astuple

from ryecore.errors import BudgetError
from ryecore.policy.budget import (
    MOST,
    NOTHING,
    Account,
    Amount,
    Charge,
    Dimension,
    Mark,
    Settled,
    TreeSum,
)
from ryecore.state.accounts import (
    MARK,
    account_of,
    cascade,
    charge,
    find,
    path_of,
    place,
    release,
    stop_subtree,
    transfer_account,
)
from ryecore.state.database import Database
from ryecore.state.model import Cost, Status
from ryecore.state.refusals import insufficient, not_registered, refuse_closed, refuse_opening
from ryecore.state.schema import OPEN_ACCOUNT, SET_COST, below
from ryecore.state.thread_rows import SET_LEASE, new_lease

__all__ = ["BudgetLedger"]

_HOLD: Final = (
    "UPDATE accounts SET spend_held = spend_held + ?, tokens_held = tokens_held + ?"
    " WHERE thread_id = ?"
)
_RESERVE: Final = (
    "UPDATE accounts SET spend_reserved = spend_reserved + ?, tokens_reserved = tokens_reserved + ?"
    " WHERE thread_id = ?"
)
_LEASE: Final = f"UPDATE threads SET {SET_LEASE} WHERE thread_id = ?"
_HEAD: Final = (
    f"UPDATE threads SET {SET_LEASE}, transcript_length = ?, transcript_digest = ?"
    " WHERE thread_id = ?"
)
_SNAPSHOT: Final = f"UPDATE threads SET {SET_LEASE}, {SET_COST} WHERE thread_id = ?"
_REQUESTS: Final = (
    "SELECT cancel_requested OR kill_requested OR completed_at IS NOT NULL,"
    " handoff_requested, completed_at FROM threads WHERE thread_id = ?"
)
# A hold stands on its whole path: it is counted where that ends, or at the top of this tree.
_TREE: Final = (
    f"{below('accounts')} SELECT count(*), sum(spend_own), sum(tokens_own),"
    " sum(spend_held * (thread_id = ? OR (state = 'open' AND reserves_spend))),"
    " sum(tokens_held * (thread_id = ? OR (state = 'open' AND reserves_tokens)))"
    " FROM accounts WHERE thread_id IN (SELECT thread_id FROM below)"
)
_SETTLED: Final = frozenset({"counted", "estimated"})


class BudgetLedger:
    """The accounts of a project's threads, in money and in tokens.

    A root is registered with its ceiling. A child either reserves a part of what its parent has
    left, or shares it: then each of its holds is placed on every account up to and including the
    nearest one that reserved. Before a request the worst that it can cost is held, so that what is
    spent and held never passes a ceiling, whoever races; after it, what it really cost is charged
    in full.

    Args:
        database: The database of the registry, where each thread stands before it has an account.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # Opening an account

    async def until_free(self) -> None:
        """Wait until no other process writes, while other tasks of the event loop run.

        Raises:
            StateLocked: Another process writes for too long.
        """
        await self._database.until_free()

    async def synced(self) -> None:
        """Wait until all writes so far survive what the durability names.

        Raises:
            StateError: It can't be synced.
        """
        await self._database.synced()

    @property
    def is_held_up(self) -> bool:
        """Whether a write would wait for the disk now; `until_free` waits with the event loop."""
        return self._database.is_held_up

    def register(self, thread_id: str, ceiling: Amount) -> None:
        """Open the account of a root. One that is open stays as it is.

        Args:
            thread_id: The thread, which the registry knows.
            ceiling: What it and all those below it may spend.

        Raises:
            BudgetError: The thread has an account already, as another one's child.
            ThreadNotFound: The registry knows no such thread.
            ThreadConflict: The thread has ended.
            StateError: Nothing can be written.

        Source: docs/design/threads.md#budget; decision 39.
        """
        spend, tokens = _whole_numbers(ceiling)
        with self._database.write() as run:
            if not _is_open(run, thread_id, None):
                _open(run, (thread_id, None, 1, 1, spend, tokens))

    def reserve(
        self,
        thread_id: str,
        parent_id: str,
        wanted: Amount,
        *,
        reserves_spend: bool,
        reserves_tokens: bool,
    ) -> Amount:
        """Open the account of a child, and set its budget aside where it reserves one.

        Asked again for the same child, it gives the same answer and sets nothing more aside.

        Args:
            thread_id: The child, which the registry knows.
            parent_id: The thread whose budget it is a part of.
            wanted: What it would like to spend at most.
            reserves_spend: Whether money is set aside for it alone; else it shares its parent's.
            reserves_tokens: The same of tokens.

        Returns:
            Its ceilings: what is wanted, or what its parent has left where that is less.

        Raises:
            InsufficientBudget: The parent has nothing left, was stopped, or has ended.
            BudgetNotRegistered: The parent has no account.
            BudgetError: The child has an account already, of another parent.
            ThreadNotFound: The registry knows no such child.
            ThreadConflict: The child has ended.

        Source: docs/design/threads.md#budget; decisions 39 and 40.
        """
        spend, tokens = _whole_numbers(wanted)
        with self._database.write() as run:
            found = _is_open(run, thread_id, parent_id)
            if found:
                return Amount(found["spend_ceiling"], found["tokens_ceiling"])
            path = path_of(run, parent_id)
            refuse_closed(path[0].thread_id, path[0].state, path[0].stopped, wanted)
            for step in path:
                if step.on_spend and spend > step.spend_left:
                    spend = max(step.spend_left, 0)
                if step.on_tokens and tokens > step.tokens_left:
                    tokens = max(step.tokens_left, 0)
            ceilings = Amount(spend, tokens)
            if not spend and wanted.spend_microcents:
                self._refuse_unless_free(run, parent_id, "spend", reserves_spend, ceilings, wanted)
            if not tokens and wanted.tokens:
                self._refuse_unless_free(
                    run, parent_id, "tokens", reserves_tokens, ceilings, wanted
                )
            _open(run, (thread_id, parent_id, reserves_spend, reserves_tokens, spend, tokens))
            for step in path:
                aside = (
                    spend * reserves_spend * step.on_spend,
                    tokens * reserves_tokens * step.on_tokens,
                )
                if any(aside):
                    run.execute(_RESERVE, (*aside, step.thread_id))
            return ceilings

    def _refuse_unless_free(
        self,
        run: sqlite3.Connection,
        parent_id: str,
        dimension: Dimension,
        reserves: bool,
        left: Amount,
        wanted: Amount,
    ) -> None:
        """Nothing is left. A child may still share with a parent whose whole ceiling is nothing.

        Such a tree runs on what costs nothing, and no hold of anything else passes.
        """
        (ceiling,) = run.execute(
            f"SELECT {dimension}_ceiling FROM accounts WHERE thread_id = ?", (parent_id,)
        ).fetchone()
        if reserves or ceiling:
            raise insufficient(parent_id, dimension, left, wanted)

    # Requests

    def hold(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        head: tuple[int, str] | None = None,
    ) -> None:
        """Hold the worst that a request can cost, before it is sent. Renews the thread's lease.

        A hold that stands already is left as it is.

        Args:
            thread_id: The thread.
            turn: Its turn.
            attempt: Which try of that turn.
            amount: What the request can cost at most.
            head: The length in bytes and the digest of the transcript's last checkpoint, which
                are written into the thread's row.

        Raises:
            InsufficientBudget: The account, or one that it shares, has less left; the account was
                stopped; or the thread has ended. Nothing is held anywhere then.
            BudgetNotRegistered: The thread has no account.
            BudgetError: This try was settled already, or another amount is held for it.
            StateError: Nothing can be written.

        Source: decision 40.
        """
        spend, tokens = _whole_numbers(amount)
        with self._database.write() as run:
            path = path_of(run, thread_id)
            refuse_closed(path[0].thread_id, path[0].state, path[0].stopped, amount)
            if place(run, thread_id, turn, attempt, spend, tokens):
                for step in path:
                    # What costs nothing passes, even where more was spent than there was.
                    if spend and step.on_spend and spend > step.spend_left:
                        raise insufficient(step.thread_id, "spend", step.left, amount)
                    if tokens and step.on_tokens and tokens > step.tokens_left:
                        raise insufficient(step.thread_id, "tokens", step.left, amount)
                    run.execute(
                        _HOLD, (spend * step.on_spend, tokens * step.on_tokens, step.thread_id)
                    )
            if head is None:
                run.execute(_LEASE, (*new_lease(), thread_id))
            else:
                run.execute(_HEAD, (*new_lease(), *head, thread_id))

    def settle(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        actual: Amount,
        *,
        mark: Mark = "counted",
        snapshot: Cost | None = None,
    ) -> Settled:
        """Free a hold, and charge in full what the request cost.

        Where it cost more than was held, the account and all those below it are stopped. Settling
        again changes nothing; only a charge that was assumed or freed is corrected, all the way
        up, however long its thread has ended.

        Args:
            thread_id: The thread.
            turn: Its turn.
            attempt: Which try of that turn.
            actual: What the request cost.
            mark: How that is known.
            snapshot: What the thread has spent so far, for its row. This renews its lease too.

        Returns:
            Whether it overspent, and whether the thread shall stop.

        Raises:
            BudgetError: Nothing was held for this try.
            StateError: Nothing can be written.

        Source: decision 40; docs/design/threads.md#turn-loop.
        """
        spend, tokens = _whole_numbers(actual)
        with self._database.write() as run:
            path = path_of(run, thread_id)
            held_spend, held_tokens, old_spend, old_tokens, old = find(
                run, thread_id, turn, attempt
            )
            if old in _SETTLED:
                spend, tokens = old_spend, old_tokens
            else:
                freed = (held_spend, held_tokens) if old == "held" else (0, 0)
                charge(run, path, freed, (spend - old_spend, tokens - old_tokens))
                run.execute(MARK, (spend, tokens, mark, thread_id, turn, attempt))
            overspent = spend > held_spend or tokens > held_tokens
            if overspent and not path[0].stopped:
                stop_subtree(run, thread_id)
            shall_stop, handoff, ended = run.execute(_REQUESTS, (thread_id,)).fetchone()
            if snapshot is not None and ended is None:
                run.execute(_SNAPSHOT, (*new_lease(), *astuple(snapshot), thread_id))
            stopped = overspent or bool(path[0].stopped)
            return Settled(overspent, bool(shall_stop), stopped, bool(handoff))

    def free(self, thread_id: str, turn: int, attempt: int) -> None:
        """Give a hold back: the request provably never left. Nothing is charged.

        Raises:
            BudgetError: Nothing was held for this try, or it was settled already.
            StateError: Nothing can be written.

        Source: decision 40.
        """
        with self._database.write() as run:
            path = path_of(run, thread_id)
            held_spend, held_tokens, spend, tokens, old = find(run, thread_id, turn, attempt)
            if old in _SETTLED:
                raise BudgetError(
                    f"The try {attempt} of turn {turn} of {thread_id} was settled already.",
                    next_step="Free only what was never sent.",
                    account=thread_id,
                )
            freed = (held_spend, held_tokens) if old == "held" else (0, 0)
            charge(run, path, freed, (-spend, -tokens))
            run.execute(MARK, (0, 0, "freed", thread_id, turn, attempt))

    def transfer(self, thread_id: str, continuation_thread_id: str) -> Amount:
        """Close a thread's account, and open the one of the thread that goes on with the rest.

        Returns:
            What that thread may spend.

        Raises:
            InsufficientBudget: The account was stopped, or is closed.

        Source: decision 45.
        """
        with self._database.write() as run:
            return transfer_account(run, thread_id, continuation_thread_id)

    # The end

    def report_actual(self, thread_id: str, actual: Amount) -> None:
        """Raise what a thread has spent itself to what it says; it is never lowered.

        Args:
            thread_id: The thread.
            actual: What it spent in all, those below it not counted.

        Raises:
            BudgetNotRegistered: It has no account.

        Source: docs/design/threads.md#the-end.
        """
        spend, tokens = _whole_numbers(actual)
        with self._database.write() as run:
            path = path_of(run, thread_id)
            own_spend, own_tokens = run.execute(
                "SELECT spend_own, tokens_own FROM accounts WHERE thread_id = ?", (thread_id,)
            ).fetchone()
            more = (max(spend - own_spend, 0), max(tokens - own_tokens, 0))
            charge(run, path, (0, 0), more)

    def cascade_spend(self, thread_id: str) -> None:
        """Charge to those above what a thread and those below it spent of its reservation.

        What it shares was charged as it came. Said again, only the difference is charged.

        Raises:
            BudgetNotRegistered: It has no account.

        Source: docs/design/threads.md#the-end.
        """
        with self._database.write() as run:
            cascade(run, thread_id)

    def release(self, thread_id: str, status: Status) -> None:
        """Close an account: open holds are charged in full, it is cascaded, the rest given back.

        What still runs below it stays set aside above it. Said again, it changes nothing. Ending
        a thread in the registry does the same.

        Args:
            thread_id: The thread.
            status: The one that it ends with.

        Raises:
            BudgetNotRegistered: It has no account.

        Source: docs/design/threads.md#the-end; decision 40.
        """
        with self._database.write() as run:
            if run.execute(_KNOWN, (thread_id,)).fetchone() is None:
                raise not_registered(thread_id)
            release(run, thread_id, status)

    # Looking

    def account(self, thread_id: str) -> Account:
        """A thread's account.

        Raises:
            BudgetNotRegistered: It has none.
        """
        rows = self._database.read("SELECT * FROM accounts WHERE thread_id = ?", (thread_id,))
        if not rows:
            raise not_registered(thread_id)
        return account_of(rows[0])

    def remaining(self, thread_id: str) -> Amount:
        """What a thread may still hold: the least that any account it is charged to has left.

        Raises:
            BudgetNotRegistered: It has no account.
        """
        with self._database.look() as run:
            path = path_of(run, thread_id)
        if path[0].state != "open" or path[0].stopped:
            return NOTHING
        return Amount(
            max(min(step.spend_left for step in path if step.on_spend), 0),
            max(min(step.tokens_left for step in path if step.on_tokens), 0),
        )

    def tree(self, thread_id: str) -> TreeSum:
        """What a thread and all those below it have spent and hold.

        Raises:
            BudgetNotRegistered: It has no account.
        """
        (row,) = self._database.read(_TREE, (thread_id, thread_id, thread_id))
        if not row[0]:
            raise not_registered(thread_id)
        threads, spend, tokens, held_spend, held_tokens = row
        return TreeSum(Amount(spend, tokens), Amount(held_spend, held_tokens), threads)

    def charges(self, thread_id: str) -> tuple[Charge, ...]:
        """A thread's requests, in the order of their turns and tries."""
        rows = self._database.read(
            "SELECT turn, attempt, held_spend, held_tokens, spend, tokens, mark FROM charges"
            " WHERE thread_id = ? ORDER BY turn, attempt",
            (thread_id,),
        )
        return tuple(
            Charge(turn, attempt, Amount(held, held_tokens), Amount(spend, tokens), mark)
            for turn, attempt, held, held_tokens, spend, tokens, mark in rows
        )


_KNOWN: Final = "SELECT 1 FROM accounts WHERE thread_id = ?"


def _whole_numbers(amount: Amount) -> tuple[int, int]:
    """Money and tokens as they are stored."""
    spend, tokens = amount.spend_microcents, amount.tokens
    if spend < 0 or tokens < 0:
        raise ValueError(f"No amount is negative, and {amount} is.")
    return (spend if spend < MOST else MOST, tokens if tokens < MOST else MOST)


def _is_open(run: sqlite3.Connection, thread_id: str, parent_id: str | None) -> sqlite3.Row | None:
    """The account that a thread has already, as a child of this parent."""
    found: sqlite3.Row | None = run.execute(
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


def _open(run: sqlite3.Connection, values: tuple[object, ...]) -> None:
    if not run.execute(OPEN_ACCOUNT, values).rowcount:
        raise refuse_opening(run, str(values[0]))
