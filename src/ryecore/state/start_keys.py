"""The idempotency keys of starts, in the rows of threads.

Source: decisions 35 and 36.
"""

from typing import Final

from ryecore.errors import AlreadyStarted, InputError
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import ThreadRecord
from ryecore.state.owners import is_abandoned
from ryecore.state.statements import Statements
from ryecore.state.thread_rows import end_abandoned, record_of

__all__ = ["free_start_key", "keep_start_key", "refuse_started"]

_RESUMABLE: Final = ("error", "cancelled", "killed")
_NEVER_CLAIMED: Final = 1
"""The fence of a thread that ended before any process claimed it: only the end raised it."""


def _scope_of(run: Statements, start: IdempotencyKey, parent_id: str | None) -> str:
    if parent_id is None:
        return start.scope
    query = "SELECT coalesce(chain_root_id, thread_id) FROM threads WHERE thread_id = ?"
    row = run.execute(query, (parent_id,)).fetchone()
    return parent_id if row is None else str(row[0])


def refuse_started(run: Statements, start: IdempotencyKey | None, parent_id: str | None) -> None:
    """Refuse a start whose key was used; a thread that ended before it began frees its key.

    A thread whose process died before it could begin is ended first, so that it can't begin. The
    error for a repeated request names its thread, or the last one that resumed it; another request
    with the key is an InputError.
    """
    if start is None:
        return
    row = run.execute(
        "SELECT * FROM threads WHERE start_scope = ? AND start_key = ?",
        (_scope_of(run, start, parent_id), start.key),
    ).fetchone()
    if row is None:
        return
    record, digest = record_of(row), row["start_digest"]
    thread_id, item_id = record.thread_id, record.item_id
    is_dead = record.status == "created" and is_abandoned(record)
    if is_dead:
        end_abandoned(run, record)
    if is_dead or _never_began(record):
        free_start_key(run, thread_id)
        return
    if digest != start.digest:
        is_same = item_id == start.item_id
        difference = "with other parameters" if is_same else f"not {start.item_id}"
        raise InputError(
            f"The idempotency key {start.key} was used to start {item_id}, {difference}: "
            f"{thread_id}.",
            next_step="Use a key of its own for each request.",
        )
    last = _resumed(run, record)
    resumed = "" if last is record else f", which {last.thread_id} resumed"
    raise AlreadyStarted(
        f"{item_id} was started with the idempotency key {start.key} already, as "
        f"{thread_id}{resumed}.",
        next_step=f"See it: rye threads show {last.thread_id}",
        thread_id=last.thread_id,
        state=last.status,
    )


def _resumed(run: Statements, record: ThreadRecord) -> ThreadRecord:
    """Return the last thread that resumes a failed or stopped one; else the thread itself.

    A thread that was handed off counts as its continuations.
    """
    query = (
        "SELECT * FROM threads WHERE continuation_of = ?"
        " AND chain_root_id IS NOT NULL ORDER BY rowid DESC"  # a fork has none
    )
    last = record
    while record.status == "continued" or record.status in _RESUMABLE:
        rows = map(record_of, run.execute(query, (record.thread_id,)))
        following = next((one for one in rows if not _never_began(one)), None)
        if following is None:
            break
        if record.status != "continued":
            last = following
        record = following
    return last


def _never_began(record: ThreadRecord) -> bool:
    return record.ended and record.fence <= _NEVER_CLAIMED


def free_start_key(run: Statements, thread_id: str) -> None:
    """Free the key of a thread's start."""
    run.execute("UPDATE threads SET start_key = NULL WHERE thread_id = ?", (thread_id,))


def keep_start_key(
    run: Statements, thread_id: str, start: IdempotencyKey | None, parent_id: str | None
) -> None:
    """Store the key of a thread's start, if it has one, in the transaction that registers it."""
    if start is not None:
        run.execute(
            "UPDATE threads SET start_scope = ?, start_key = ?, start_digest = ?"
            " WHERE thread_id = ?",
            (_scope_of(run, start, parent_id), start.key, start.digest, thread_id),
        )
