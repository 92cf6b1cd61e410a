"""The errors of the store, each with its next step."""

import errno
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from ryecore.display.text import exact_dollars
from ryecore.errors import (
    BudgetNotRegistered,
    InsufficientBudget,
    StateError,
    StateUnreachable,
    ThreadConflict,
)
from ryecore.lillux.os_errors import failure_of
from ryecore.policy.budget import NOTHING, Amount, Dimension
from ryecore.state.model import Predecessor, Status, has_ended, thread_not_found
from ryecore.state.statements import Statements

__all__ = [
    "RESTORE_STEP",
    "Failing",
    "advice",
    "already_continued",
    "id_taken",
    "insufficient",
    "lease_lost",
    "not_registered",
    "raise_as_state_error",
    "refuse_another",
    "refuse_closed",
    "refuse_opening",
]


def not_registered(thread_id: str) -> BudgetNotRegistered:
    """Return the error for a thread without an account."""
    return BudgetNotRegistered(
        f"The thread {thread_id} has no account.",
        next_step="Register it, or reserve its budget of its parent, before it spends.",
        account=thread_id,
    )


def refuse_closed(thread_id: str, state: str, stopped: int, wanted: Amount) -> None:
    """Refuse requests to an account that has ended or was stopped."""
    if state != "open":
        raise InsufficientBudget(
            f"The thread {thread_id} is {state}: its budget is closed.",
            next_step="Start another thread.",
            account=thread_id,
            remaining=NOTHING,
            requested=wanted,
            reason="released",
        )
    if stopped:
        raise InsufficientBudget(
            f"The budget of the thread {thread_id} is stopped: a request cost more than was "
            "held for it.",
            next_step="See what it cost: rye threads show. Then start another thread.",
            account=thread_id,
            remaining=NOTHING,
            requested=wanted,
            reason="stopped",
        )


def refuse_opening(run: Statements, thread_id: str) -> StateError:
    """Return the error for a thread that can't have an account: it has ended, or is unknown."""
    row = run.execute("SELECT status FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    if row is None:
        return thread_not_found(thread_id)
    return ThreadConflict(
        f"The thread {thread_id} is {row[0]}, and can't be given a budget.",
        next_step="It was stopped before it began: start another one.",
        thread_id=thread_id,
        state=row[0],
    )


def insufficient(
    account: str, dimension: Dimension, left: Amount, wanted: Amount
) -> InsufficientBudget:
    """Return the error for an account that has less left than was requested."""
    if dimension == "spend":
        lacking = wanted.spend_microcents - left.spend_microcents
        needed = exact_dollars(wanted.spend_microcents, 8)
        there = exact_dollars(left.spend_microcents, 8)
        more = exact_dollars(lacking, 8)
    else:
        lacking = wanted.tokens - left.tokens
        needed, there = f"{wanted.tokens:,} tokens", f"{left.tokens:,} tokens"
        more = f"{lacking:,} tokens"
    return InsufficientBudget(
        f"Insufficient budget: this needs {needed}, and the thread {account} has {there} left.",
        next_step=f"Give {account} at least {more} more with a higher --limit {dimension}=..., or "
        "ask for less.",
        account=account,
        remaining=left,
        requested=wanted,
        dimension=dimension,
    )


def id_taken(thread_id: str) -> ThreadConflict:
    """Return the error for an id that another thread has."""
    return ThreadConflict(
        f"There is a thread {thread_id} already.",
        next_step="Give it another id.",
        thread_id=thread_id,
        state="created",
    )


def refuse_another(run: Statements, follows: Predecessor | None) -> None:
    """Refuse to continue a thread that was removed, or has a continuation already."""
    if follows is None:
        return
    query = "SELECT 1 FROM threads WHERE thread_id = ?"
    if run.execute(query, (follows.thread_id,)).fetchone() is None:
        raise thread_not_found(follows.thread_id)
    if follows.beside is None:
        return
    query = (
        "SELECT thread_id, status FROM threads"
        " WHERE continuation_of = ? AND chain_root_id IS NOT NULL"  # a fork has none
    )
    for other, status in run.execute(query, (follows.thread_id,)):
        if other not in follows.beside:
            raise already_continued(follows.thread_id, other, status)


def lease_lost(thread_id: str) -> StateUnreachable:
    """Return the error of a run whose lease couldn't be renewed in time."""
    return StateUnreachable(
        f"The state of {thread_id} couldn't be reached for so long that its lease is out.",
        next_step="Another worker resumes it, or this one once it can be reached again.",
        thread_id=thread_id,
    )


def already_continued(thread_id: str, other: str, status: Status) -> ThreadConflict:
    """Return the error for a thread that another one continues already."""
    verb = "was" if has_ended(status) else "is being"
    return ThreadConflict(
        f"{thread_id} {verb} continued already, by {other} ({status}).",
        next_step=f"See what becomes of that one: rye threads show {other}",
        thread_id=other,
        state=status,
    )


_UNKNOWN: Final = "See that the file is yours, and that its disk has room and is in order."
RESTORE_STEP: Final = (
    "Prove it: rye doctor. Then restore a backup of .ai/state, or begin anew: "
    "rye threads adopt --set-aside"
)
"""The next step for a damaged database."""

# SQLite's primary result codes, with the matching errno or a text.
_BY_SQLITE_CODE: Final[Mapping[int, int | str]] = {
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: "The disk fails or is full: make room, and look at the system's log.",
    sqlite3.SQLITE_CANTOPEN: "See that its folder is there and yours, and that files may be opened "
    "(ulimit -n).",
    sqlite3.SQLITE_CORRUPT: RESTORE_STEP,
    sqlite3.SQLITE_NOTADB: RESTORE_STEP,
}


def advice(problem: BaseException) -> str:
    """Return the next step for an error of the system or of SQLite; else a general one."""
    if isinstance(problem, OSError):
        found: int | str | None = problem.errno
    else:
        code = getattr(problem, "sqlite_errorcode", None)
        found = _BY_SQLITE_CODE.get(code & 0xFF) if isinstance(code, int) else None
    return (found if isinstance(found, str) else failure_of(found).next_step) or _UNKNOWN


class Failing:
    """A context whose errors of the system and of SQLite are raised as errors of the store.

    Args:
        path: The file that is used in it.
        done: What is done with the file, such as "read".
    """

    __slots__ = ("_done", "_path")

    def __init__(self, path: Path, done: str) -> None:
        self._path = path
        self._done = done

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is not None:
            raise_as_state_error(self._path, problem, self._done)


def raise_as_state_error(path: Path, problem: BaseException, done: str) -> None:
    """Raise an error of the system or of SQLite as one of the store; of another one, nothing."""
    if not isinstance(problem, OSError | sqlite3.Error):
        return
    reason = problem.strerror if isinstance(problem, OSError) else str(problem)
    raise StateError(f"{path} can't be {done}: {reason}.", next_step=advice(problem)) from problem
