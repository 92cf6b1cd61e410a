"""The rows of threads: reading them, and writing them in a transaction of the registry.

Source: docs/design/threads.md#registry; docs/design/threads.md#spawns; decisions 35 and 40.
"""

import json
from collections.abc import Mapping
from typing import Final

from ryecore.convert.json_text import make_encoder
from ryecore.errors import InputError, LimitReached, StateError, ThreadConflict
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.accounts import close_account, open_account
from ryecore.state.model import (
    Cost,
    Predecessor,
    RemotePlace,
    SpawnLimit,
    Status,
    ThreadRecord,
    check_status,
    has_ended,
    thread_not_found,
)
from ryecore.state.owners import LEASE_S, host_name, lacks_follower, moment
from ryecore.state.refusals import id_taken
from ryecore.state.schema import BELOW_AND_AFTER, ENDED, NOW, below
from ryecore.state.statements import DatabaseTime, Row, Statements

__all__ = [
    "CLAIM",
    "COUNT_SPAWN",
    "NO_OWNER",
    "OWNERSHIP",
    "SET_LEASE",
    "SET_OWNERSHIP",
    "as_json",
    "ask_to_stop",
    "columns",
    "conflict",
    "cost_values",
    "count_spawn",
    "crash_result",
    "created_record",
    "describe_death",
    "end_abandoned",
    "end_row",
    "insert_row",
    "new_lease",
    "ownership",
    "ownership_of",
    "record_of",
    "result_of",
    "set_place",
    "take_over",
    "tells_of_death",
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


def record_of(row: Row) -> ThreadRecord:
    """Return a row as a record. Values that ryecore never writes are refused."""
    try:
        return _record_of(row)
    except (ValueError, RecursionError):
        raise _damaged(row["thread_id"]) from None


def result_of(thread_id: str, body: str) -> object:
    """Parse a stored result."""
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


def _record_of(row: Row) -> ThreadRecord:
    limits = None if row["limits"] is None else json.loads(row["limits"])
    if limits is not None and not isinstance(limits, dict):
        raise ValueError("Limits are a mapping.")
    labels = {} if row["labels"] is None else json.loads(row["labels"])
    if not isinstance(labels, dict):
        raise ValueError("Labels are a mapping.")
    owner = None
    if row["pid"] is not None and not has_ended(row["status"]):
        owner = ProcessId(
            row["boot_id"],
            row["pid_namespace"],
            row["pid"],
            row["start_ticks"],
            row["time_namespace"],
        )
    digest, node = row["transcript_digest"], row["node"]
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
            row["cached_tokens"],
            row["unpriced"],
            row["cache_saved_microcents"],
        ),
        spawn_count=row["spawn_count"],
        continuation_of=row["continuation_of"],
        continuation_thread_id=row["continuation_thread_id"],
        chain_root_id=row["chain_root_id"],
        root_id=row["root_id"],
        limits=limits,
        transcript_head=None if digest is None else (row["transcript_length"], digest),
        place=None if node is None else RemotePlace(row["remote"], node),
        labels=labels,
        queue=row["queue"],
        host=row["host"] if row["pid"] is not None else None,
    )


def ownership_of(record: ThreadRecord) -> tuple[object, ...]:
    """Return the owner of a thread, and its lease."""
    return (record.fence, record.owner, record.lease_until, record.lease_machine_s)


# ASCII, which keeps lone surrogates, too.
_encode: Final = make_encoder(spaced=True, allow_nan=True, default=str)


def as_json(result: object) -> str:
    """Return a result in its stored form."""
    try:
        return _encode(result)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The result can't be written as JSON: {problem}.",
            next_step="Return text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None


def describe_death(pid: int | None, when: str = "") -> str:
    """Return the sentence about the death of a process, with words such as " before it began"."""
    who = f"The process {pid}" if pid else "Its process"
    return f"{who} ended{when} without recording a result."


def crash_result(record: ThreadRecord, status: Status) -> dict[str, object]:
    """Return the result of a thread whose process has died."""
    began = "" if record.status == "running" else " before it began"
    error = "It was killed." if status == "killed" else describe_death(record.pid, began)
    result: dict[str, object] = {"status": "error", "error": error, "error_type": status}
    # It wasn't stopped on request, so it may be recovered.
    died = status == "error" and not record.cancel_requested
    return {**result, "item_id": record.item_id, **({"died": True} if died else {})}


def tells_of_death(thread_id: str, body: str) -> bool:
    """Return whether a stored result is that of a thread whose process died."""
    result = result_of(thread_id, body)
    return isinstance(result, dict) and result.get("died") is True


def conflict(record: ThreadRecord, what: str) -> ThreadConflict:
    """Return the error for an operation that a thread's status doesn't allow."""
    return ThreadConflict(
        f"The thread {record.thread_id} is {record.status} and can't {what}.",
        next_step=f"See what became of it: rye threads show {record.thread_id}",
        thread_id=record.thread_id,
        state=record.status,
    )


# ruff: noqa: S608 - what is spliced into statements is this package's own constants


_END: Final = (
    f"UPDATE threads SET status = ?, updated_at = {NOW}, completed_at = {NOW}, fence = fence + 1,"
    " transcript_length = coalesce(?, transcript_length),"
    " transcript_digest = coalesce(?, transcript_digest),"
    " turns = coalesce(?, turns), input_tokens = coalesce(?, input_tokens),"
    " output_tokens = coalesce(?, output_tokens),"
    " spend_microcents = coalesce(?, spend_microcents),"
    " cost_estimated = coalesce(?, cost_estimated),"
    " cached_tokens = coalesce(?, cached_tokens), unpriced = coalesce(?, unpriced),"
    " cache_saved_microcents = coalesce(?, cache_saved_microcents)"
    f" WHERE thread_id = ? AND fence = coalesce(?, fence) AND status NOT IN ({ENDED})"
)
_SAME_HEAD: Final = (None, None)
_SAME_COST: Final = (None,) * 8


def end_row(
    run: Statements,
    thread_id: str,
    status: Status,
    body: str,
    *,
    fence: int | None = None,
    head: tuple[int, str] | None = None,
    snapshot: Cost | None = None,
) -> bool:
    """End a thread: store its result, which is JSON, close its account, fence its owner off.

    Returns whether it did: a thread that has ended, or has another fence, is left unchanged.
    """
    cost = _SAME_COST if snapshot is None else cost_values(snapshot)
    values = (status, *(head or _SAME_HEAD), *cost, thread_id, fence)
    ended = run.execute(_END, values)
    account = open_account(run, thread_id)
    if not ended.rowcount:  # known by now, as the account is
        return False
    if account is not None:  # any end of a thread closes it
        close_account(run, thread_id, status, account)
    run.execute(
        "INSERT INTO results (thread_id, body) VALUES (?, ?)"
        " ON CONFLICT (thread_id) DO UPDATE SET body = excluded.body",
        (thread_id, body),
    )
    return True


def cost_values(cost: Cost) -> tuple[int, ...]:
    """Return a cost as the values of `SET_COST`."""
    return (
        cost.turns,
        cost.input_tokens,
        cost.output_tokens,
        cost.spend_microcents,
        cost.estimated,
        cost.cached_tokens,
        cost.unpriced,
        cost.cache_saved_microcents,
    )


def ask_to_stop(run: Statements, thread_id: str, column: str, *, and_after: bool = False) -> None:
    """Ask a thread and its subtree to stop, by the column `cancel_requested` or `kill_requested`.

    The continuations of threads that were handed off are included if `and_after` is set.
    """
    found = BELOW_AND_AFTER if and_after else below("threads")
    run.execute(
        f"{found} UPDATE threads SET {column} = TRUE, updated_at = {NOW}"
        f" WHERE thread_id IN (SELECT thread_id FROM below) AND (status NOT IN ({ENDED})"
        # A worker is about to resume it: it passes the request on.
        " OR status = 'continued' AND continuation_thread_id IS NULL)",
        (thread_id,),
    )


def end_abandoned(run: Statements, record: ThreadRecord) -> None:
    """End a thread whose process has died: as killed if a kill was requested, else as error.

    Its subtree, which may run in other processes, is asked to stop.
    """
    status: Status = "killed" if record.kill_requested else "error"
    end_row(run, record.thread_id, status, as_json(crash_result(record, status)))
    ask_to_stop(run, record.thread_id, "cancel_requested")


_LEASE: Final = ("lease_until", "lease_machine_s")
_PROCESS: Final = ("boot_id", "pid_namespace", "pid", "start_ticks", "time_namespace")
_ALL: Final = (*_PROCESS, "host", *_LEASE)

OWNERSHIP: Final = ", ".join(_ALL)
"""The columns of an owner and its lease, as a list for INSERT."""

SET_OWNERSHIP: Final = ", ".join(f"{name} = ?" for name in _ALL)
"""The columns of an owner and its lease, as assignments for UPDATE."""

SET_LEASE: Final = ", ".join(f"{name} = ?" for name in _LEASE)
"""The columns of the lease alone, as assignments for UPDATE."""

CLAIM: Final = (
    f"UPDATE threads SET {SET_OWNERSHIP}, owns_process = ?, limits = coalesce(?, limits),"
    " model = coalesce(?, model), status = 'running', fence = fence + 1, parent_token_hash = NULL,"
    f" updated_at = {NOW} WHERE thread_id = ? AND status = 'created'"
    " AND (parent_token_hash IS NULL OR parent_token_hash = ?) RETURNING fence"
)
"""Claims a created thread for a process, and returns the fence."""


def ownership(process: ProcessId) -> tuple[object, ...]:
    """Return a process and a new lease, as the values of `OWNERSHIP`."""
    return (*columns(process), _host_of(process), *new_lease())


def _host_of(process: ProcessId) -> str | None:
    """Return the name of a process's machine, if it is this one."""
    here = current_process()
    is_here = (process.boot_id, process.pid_namespace) == (here.boot_id, here.pid_namespace)
    return host_name() if is_here else None


def new_lease() -> tuple[DatabaseTime, float]:
    """Return a new lease, as the values of `SET_LEASE`."""
    now = moment()
    return (DatabaseTime(now.unix_s + LEASE_S), now.machine_s + LEASE_S)


def set_place(run: Statements, thread_id: str, place: RemotePlace) -> None:
    """Set the node that runs a thread."""
    run.execute(
        f"UPDATE threads SET remote = ?, node = ?, updated_at = {NOW} WHERE thread_id = ?",
        (place.remote, place.node, thread_id),
    )


_TAKE_OVER: Final = (
    f"UPDATE threads SET {SET_OWNERSHIP}, owns_process = FALSE, fence = fence + 1,"
    f" updated_at = {NOW}"
    " WHERE thread_id = ? RETURNING fence"
)


def take_over(run: Statements, record: ThreadRecord, owner: ProcessId) -> int:
    """Take over a thread on a node that no living process follows, and return the new fence."""
    if not lacks_follower(record) and (record.place is None or record.owner != owner):
        raise conflict(record, "be taken over")
    values = (*ownership(owner), record.thread_id)
    return int(run.execute(_TAKE_OVER, values).fetchone()[0])


_INSERT: Final = (
    "INSERT INTO threads (thread_id, item_id, parent_id, root_id, model, limits, chain_root_id,"
    " continuation_of, cancel_requested, kill_requested, labels, queue, created_at, updated_at,"
    f" {OWNERSHIP}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {NOW}, {NOW},"
    " ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (thread_id) DO NOTHING RETURNING created_at"
)


NO_OWNER: Final = (None, None, None, None, 0)
"""The columns of a row without an owner, as `columns` returns them."""


def insert_row(
    run: Statements,
    thread_id: str,
    item_id: str,
    parent_id: str | None,
    *,
    root_id: str,
    owner: ProcessId | None,
    requests: tuple[bool, bool],
    model: str | None,
    limits: Mapping[str, object] | None,
    follows: Predecessor | None,
    labels: Mapping[str, str],
    queue: str | None = None,
) -> ThreadRecord:
    """Create a thread's row. The requests are those to cancel and to kill it.

    One that waits in a queue has no owner.
    """
    written = None if limits is None else as_json(limits)
    chain_root_id = None if follows is None else follows.chain_root_id
    continued = None if follows is None else follows.thread_id
    lease = new_lease()
    inserted = run.execute(
        _INSERT,
        (
            *(thread_id, item_id, parent_id, root_id, model, written, chain_root_id),
            *(continued, *requests, as_json(dict(labels)) if labels else None, queue),
            *(NO_OWNER if owner is None else columns(owner)),
            None if owner is None else _host_of(owner),
            *lease,
        ),
    ).fetchone()
    if inserted is None:
        raise id_taken(thread_id)
    return created_record(
        thread_id,
        item_id,
        parent_id,
        at=inserted[0],
        root_id=root_id,
        owner=owner,
        lease=lease,
        requests=requests,
        model=model,
        limits=limits,
        follows=follows,
        labels=labels,
        queue=queue,
    )


def created_record(
    thread_id: str,
    item_id: str,
    parent_id: str | None,
    *,
    at: str,
    root_id: str,
    owner: ProcessId | None,
    lease: tuple[float, float],
    requests: tuple[bool, bool],
    model: str | None,
    limits: Mapping[str, object] | None,
    follows: Predecessor | None,
    labels: Mapping[str, str],
    queue: str | None,
) -> ThreadRecord:
    """Return the record of a row that was just created, without reading it again."""
    return ThreadRecord(
        thread_id=thread_id,
        item_id=item_id,
        parent_id=parent_id,
        status="created",
        created_at=at,
        updated_at=at,
        completed_at=None,
        owner=owner,
        fence=0,
        lease_until=lease[0],
        lease_machine_s=lease[1],
        cancel_requested=requests[0],
        kill_requested=requests[1],
        model=model,
        continuation_of=None if follows is None else follows.thread_id,
        chain_root_id=None if follows is None else follows.chain_root_id,
        root_id=root_id,
        limits=None if limits is None else dict(limits),
        labels=dict(labels),
        queue=queue,
        host=None if owner is None else _host_of(owner),
    )


COUNT_SPAWN: Final = (
    "UPDATE threads SET spawn_count = spawn_count + 1"
    " WHERE thread_id = ? AND spawn_count < coalesce(?, spawn_count + 1) RETURNING spawn_count"
)
"""Counts one more child of a thread, unless that would pass a limit."""


def count_spawn(run: Statements, parent_id: str, limit: SpawnLimit) -> int:
    """Count one more child of a thread within its limit, and return the number of its children."""
    counted = run.execute(COUNT_SPAWN, (parent_id, limit.most)).fetchone()
    if counted is not None:
        return int(counted[0])
    row = run.execute(
        "SELECT spawn_count FROM threads WHERE thread_id = ?", (parent_id,)
    ).fetchone()
    if row is None:
        raise thread_not_found(parent_id)
    count: int = row[0]
    raise LimitReached(
        f"The thread {parent_id} has started {count} children of the {limit.most} that it may "
        "start.",
        next_step="Give it a higher limit of spawns, or do the rest in itself.",
        thread_id=parent_id,
        limit_code="spawns_exceeded",
        current_value=count,
        current_max=limit.most or 0,
    )
