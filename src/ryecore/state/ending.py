"""Write how a thread's row ends, within a transaction of the registry."""

# ruff: noqa: S608 - what is spliced into statements is this package's own constants

import sqlite3

from ryecore.state.accounts import release
from ryecore.state.model import Status, ThreadRecord, has_ended
from ryecore.state.rows import as_json, crash_result
from ryecore.state.schema import BELOW_AND_AFTER, ENDED, NOW, below

__all__ = ["ask_to_stop", "end_abandoned", "set_result", "set_status"]


def set_status(run: sqlite3.Connection, thread_id: str, status: Status) -> None:
    """Set a thread's status; one that ends it closes its account and its owner's writing.

    Args:
        run: The transaction.
        thread_id: The thread.
        status: The status.
    """
    run.execute(
        f"UPDATE threads SET status = ?, updated_at = {NOW} WHERE thread_id = ?",
        (status, thread_id),
    )
    if has_ended(status):
        run.execute(
            f"UPDATE threads SET completed_at = {NOW}, fence = fence + 1 WHERE thread_id = ?",
            (thread_id,),
        )
        release(run, thread_id, status)  # whatever ends a thread closes its account


def set_result(run: sqlite3.Connection, thread_id: str, body: str) -> None:
    """Store a thread's result.

    Args:
        run: The transaction.
        thread_id: The thread.
        body: The result as JSON.
    """
    run.execute(
        "INSERT INTO results (thread_id, body) VALUES (?, ?)"
        " ON CONFLICT (thread_id) DO UPDATE SET body = excluded.body",
        (thread_id, body),
    )


def ask_to_stop(
    run: sqlite3.Connection, thread_id: str, column: str, *, and_after: bool = False
) -> None:
    """Ask a thread and all below it to stop.

    Args:
        run: The transaction.
        thread_id: The thread.
        column: `cancel_requested` or `kill_requested`.
        and_after: Whether threads that were handed off stop in those that go on from them.
    """
    found = BELOW_AND_AFTER if and_after else below("threads")
    run.execute(
        f"{found} UPDATE threads SET {column} = 1, updated_at = {NOW}"
        f" WHERE thread_id IN (SELECT thread_id FROM below) AND status NOT IN ({ENDED})",
        (thread_id,),
    )


def end_abandoned(run: sqlite3.Connection, record: ThreadRecord) -> None:
    """End a thread whose process has died: killed where that was asked for, else error.

    Those below it, which may run in other processes, are asked to stop.

    Args:
        run: The transaction.
        record: The thread's row.
    """
    status: Status = "killed" if record.kill_requested else "error"
    set_status(run, record.thread_id, status)
    set_result(run, record.thread_id, as_json(crash_result(record, status)))
    ask_to_stop(run, record.thread_id, "cancel_requested")
