"""Rows of the registry as records, and records as the columns of a row."""

import json
import sqlite3

from ryecore.errors import InputError, StateError, ThreadConflict
from ryecore.lillux.processes import ProcessId
from ryecore.state.model import Cost, Status, ThreadRecord, check_status, has_ended

__all__ = [
    "as_json",
    "columns",
    "conflict",
    "crash_result",
    "describe_death",
    "record_of",
    "result_of",
    "tenure",
]


def columns(process: ProcessId) -> tuple[str, int, int, int, int]:
    """Return a process as the five columns that identify it."""
    return (
        process.boot_id,
        process.pid_namespace,
        process.pid,
        process.start_ticks,
        process.time_namespace,
    )


def record_of(row: sqlite3.Row) -> ThreadRecord:
    """A whole row as a record.

    Raises:
        StateError: It holds what no ryecore has written.
    """
    try:
        return _record_of(row)
    except (ValueError, RecursionError):
        raise _damaged(row["thread_id"]) from None


def result_of(thread_id: str, body: str) -> object:
    """A result as it was stored.

    Raises:
        StateError: It is no JSON.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _damaged(thread_id) from None


def _damaged(thread_id: str) -> StateError:
    return StateError(
        f"The registry's row of the thread {thread_id} is damaged.",
        next_step="Move .ai/state/threads aside, and threads begin anew.",
        thread_id=thread_id,
    )


def _record_of(row: sqlite3.Row) -> ThreadRecord:
    limits = None if row["limits"] is None else json.loads(row["limits"])
    if limits is not None and not isinstance(limits, dict):
        raise ValueError("Limits are a mapping.")
    owner = None
    if row["pid"] is not None and not has_ended(row["status"]):
        owner = ProcessId(
            row["boot_id"],
            row["pid_namespace"],
            row["pid"],
            row["start_ticks"],
            row["time_namespace"],
        )
    digest = row["transcript_digest"]
    return ThreadRecord(
        thread_id=row["thread_id"],
        item_id=row["item_id"],
        parent_id=row["parent_id"],
        status=check_status(row["status"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        completed_at=row["completed_at"],
        owner=owner,
        fence=row["fence"],
        lease_until=row["lease_until"],
        lease_machine_s=row["lease_machine_s"],
        owns_process=bool(row["owns_process"]),
        cancel_requested=bool(row["cancel_requested"]),
        kill_requested=bool(row["kill_requested"]),
        handoff_requested=bool(row["handoff_requested"]),
        model=row["model"],
        cost=Cost(
            row["turns"],
            row["input_tokens"],
            row["output_tokens"],
            row["spend_microcents"],
            bool(row["cost_estimated"]),
        ),
        spawn_count=row["spawn_count"],
        continuation_of=row["continuation_of"],
        continuation_thread_id=row["continuation_thread_id"],
        chain_root_id=row["chain_root_id"],
        root_id=row["root_id"],
        limits=limits,
        transcript_head=None if digest is None else (row["transcript_length"], digest),
    )


def tenure(record: ThreadRecord) -> tuple[object, ...]:
    """Who holds a thread, and until when."""
    return (record.fence, record.owner, record.lease_until, record.lease_machine_s)


def as_json(result: object) -> str:
    """A result as it is stored.

    Raises:
        InputError: It can't be written as JSON.
    """
    try:
        return json.dumps(result, default=str)  # ASCII: half a character is kept too
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The result can't be written as JSON: {problem}.",
            next_step="Return text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None


def describe_death(pid: int | None, when: str = "") -> str:
    """Return the sentence that says of a process that it died at its work.

    Args:
        pid: The process; None where it is not known.
        when: More about the time, such as " before it began".
    """
    who = f"The process {pid}" if pid else "Its process"
    return f"{who} ended{when} without recording a result."


def crash_result(record: ThreadRecord, status: Status) -> dict[str, object]:
    """The result of a thread whose process has died."""
    began = "" if record.status == "running" else " before it began"
    error = "It was killed." if status == "killed" else describe_death(record.pid, began)
    result: dict[str, object] = {"status": "error", "error": error, "error_type": status}
    # Nobody has stopped it, so it may be recovered.
    died = status == "error" and not record.cancel_requested
    return {**result, "item_id": record.item_id, **({"died": True} if died else {})}


def conflict(record: ThreadRecord, what: str) -> ThreadConflict:
    """The error that says that a thread's status doesn't allow something."""
    return ThreadConflict(
        f"The thread {record.thread_id} is {record.status} and can't {what}.",
        next_step=f"See what became of it: rye threads show {record.thread_id}",
        thread_id=record.thread_id,
        state=record.status,
    )
