"""Runs that wait in queues, and their workers, in tables of the server.

Source: docs/design/queues.md; ADR 041.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from typing_extensions import override

from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.accounts import release
from ryecore.state.model import ThreadRecord
from ryecore.state.owners import lacks_worker
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.run_queue import QueuedRequest, QueueEntry, QueueLoad, RunQueue, WorkerRecord
from ryecore.state.schema import NOW
from ryecore.state.statements import DatabaseTime, Row, Statements
from ryecore.state.thread_rows import (
    SET_LEASE,
    as_json,
    ask_to_stop,
    columns,
    crash_result,
    end_row,
    new_lease,
    ownership_of,
    record_of,
)

__all__ = ["PostgresRunQueue"]

# ruff: noqa: S608 - what is spliced into statements is this package's own constants

_FIND: Final = "SELECT * FROM requests JOIN threads USING (thread_id) WHERE thread_id = ?"
_OF_CHAIN: Final = """WITH RECURSIVE earlier (thread_id) AS (
        VALUES (?) UNION SELECT threads.continuation_of FROM threads JOIN earlier USING (thread_id)
        WHERE threads.continuation_of IS NOT NULL
    ) SELECT requests.* FROM requests JOIN earlier USING (thread_id) LIMIT 1"""
_ACTIVE: Final = (
    "SELECT * FROM requests WHERE thread_id IN (SELECT coalesce(chain_root_id, thread_id)"
    " FROM threads WHERE queue IS NOT NULL AND completed_at IS NULL)"
)
_COUNT: Final = """WITH RECURSIVE earlier (thread_id) AS (
        VALUES (?) UNION SELECT threads.continuation_of FROM threads JOIN earlier USING (thread_id)
        WHERE threads.continuation_of IS NOT NULL
    ) UPDATE requests SET takeovers = takeovers + 1
    WHERE thread_id IN (SELECT thread_id FROM earlier) RETURNING takeovers"""
_PUT_OUTCOME: Final = "UPDATE requests SET outcome = ? WHERE thread_id = ? AND outcome IS NULL"
_WAITING: Final = (
    "SELECT * FROM threads WHERE queue = ? AND completed_at IS NULL AND status = 'created'"
    " AND continuation_of IS NULL AND created_at::timestamptz"
    " <= statement_timestamp() - make_interval(secs => ?) ORDER BY rowid"
)
# "min (" is the aggregate; "min(" would become PostgreSQL's "least(".
_LOAD: Final = (
    "SELECT queue, status, boot_id, pid_namespace, pid, start_ticks, time_namespace,"
    " count(*) AS runs, min (created_at) AS oldest_at, min (lease_until) AS lease_until"
    " FROM threads WHERE queue IS NOT NULL AND completed_at IS NULL"
    " GROUP BY queue, status, boot_id, pid_namespace, pid, start_ticks, time_namespace"
    " ORDER BY queue, oldest_at"
)
_ENTER: Final = (
    "INSERT INTO workers (worker_id, queue, concurrency, host, project, boot_id, pid_namespace,"
    " pid, start_ticks, time_namespace, lease_until, lease_machine_s, started_at)"
    f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {NOW})"
    f" ON CONFLICT (worker_id) DO UPDATE SET {SET_LEASE}"
)


class PostgresRunQueue(RunQueue):
    """The requests of runs in queues, and the workers, on the server."""

    awaited: ClassVar = frozenset({"find", "request_of"})
    """The operations that an event loop awaits itself; see `in_workers`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @override
    async def put(
        self, thread_id: str, request: QueuedRequest, entry: QueueEntry | None = None
    ) -> None:
        deadline = None if request.deadline is None else DatabaseTime(request.deadline)
        async with self._database.writing(thread_id) as run:
            run.execute(
                "INSERT INTO requests (thread_id, body, priority, deadline) VALUES (?, ?, ?, ?)",
                (thread_id, request.body, request.priority, deadline),
            )
            if entry is not None:
                run.execute(*entry)

    @override
    async def find(self, thread_id: str) -> tuple[QueuedRequest, ThreadRecord] | None:
        rows = await self._database.fetch(_FIND, (thread_id,))
        return (_request(rows[0]), record_of(rows[0])) if rows else None

    @override
    async def request_of(self, thread_id: str) -> QueuedRequest | None:
        rows = await self._database.fetch(_OF_CHAIN, (thread_id,))
        if not rows:
            return None
        return _request(rows[0])

    @override
    async def active(self) -> tuple[QueuedRequest, ...]:
        return tuple(map(_request, await self._database.fetch(_ACTIVE)))

    @override
    async def waiting(self, queue: str, *, least_age_s: float = 0.0) -> tuple[ThreadRecord, ...]:
        return await self._find(_WAITING, (queue, least_age_s))

    @override
    async def end_dead(self, record: ThreadRecord) -> bool:
        thread_id = record.thread_id
        async with self._database.writing() as run:
            if not _is_dead(run, record):
                return False
            end_row(run, thread_id, "continued", as_json(crash_result(record, "error")))
            children = "SELECT thread_id FROM threads WHERE parent_id = ?"
            for (child,) in run.execute(children, (thread_id,)).fetchall():
                ask_to_stop(run, child, "cancel_requested")
            return True

    @override
    async def begin_anew(self, record: ThreadRecord) -> bool:
        thread_id = record.thread_id
        async with self._database.writing() as run:
            if not _is_dead(run, record) or record.continuation_of is not None:
                return False
            release(run, thread_id, "cancelled")  # what its parent has reserved for it
            run.execute("DELETE FROM charges WHERE thread_id = ?", (thread_id,))
            run.execute("DELETE FROM accounts WHERE thread_id = ?", (thread_id,))
            run.execute(
                "UPDATE threads SET status = 'created', fence = fence + 1, boot_id = NULL,"
                " pid_namespace = NULL, pid = NULL, start_ticks = NULL WHERE thread_id = ?",
                (thread_id,),
            )
            return True

    @override
    async def give_up(self, thread_id: str, result: object) -> None:
        async with self._database.writing() as run:
            given_up = run.execute(
                f"UPDATE threads SET status = 'error', updated_at = {NOW} WHERE thread_id = ?"
                " AND status = 'continued' AND continuation_thread_id IS NULL",
                (thread_id,),
            )
            if given_up.rowcount:
                run.execute(
                    "UPDATE results SET body = ? WHERE thread_id = ?", (as_json(result), thread_id)
                )

    @override
    async def count_takeover(self, thread_id: str) -> int:
        async with self._database.writing() as run:
            row = run.execute(_COUNT, (thread_id,)).fetchone()
            return 0 if row is None else int(row[0])

    @override
    async def put_outcome(self, thread_id: str, outcome: str) -> None:
        async with self._database.writing(thread_id) as run:
            run.execute(_PUT_OUTCOME, (outcome, thread_id))

    # Workers

    @override
    async def enter(self, worker: WorkerRecord) -> None:
        lease = new_lease()
        about = (worker.worker_id, worker.queue, worker.concurrency, worker.host, worker.project)
        # No rule of threads depends on the rows of workers: the schema's lock isn't needed.
        self._database.put(_ENTER, (*about, *columns(worker.process), *lease, *lease))

    @override
    async def leave(self, worker_id: str) -> None:
        self._database.put("DELETE FROM workers WHERE worker_id = ?", (worker_id,))

    @override
    async def load(self) -> tuple[QueueLoad, ...]:
        return tuple(map(_load, await self._database.fetch(_LOAD)))

    @override
    async def workers(self) -> tuple[WorkerRecord, ...]:
        rows = await self._database.fetch("SELECT * FROM workers ORDER BY started_at, worker_id")
        return tuple(map(_worker, rows))

    async def _find(self, query: str, values: Sequence[object]) -> tuple[ThreadRecord, ...]:
        return tuple(map(record_of, await self._database.fetch(query, values)))


def _is_dead(run: Statements, record: ThreadRecord) -> bool:
    """Return whether a run still has the owner that it had, and that one is dead or this process.

    A process calls it for a run of its own that it has left.
    """
    row = run.execute("SELECT * FROM threads WHERE thread_id = ?", (record.thread_id,)).fetchone()
    if row is None:
        return False
    found = record_of(row)
    is_own = found.status == "running" and found.owner == current_process()
    return ownership_of(found) == ownership_of(record) and (is_own or lacks_worker(found))


def _request(row: Row) -> QueuedRequest:
    return QueuedRequest(
        row["body"], row["priority"], row["deadline"], row["takeovers"], row["outcome"]
    )


def _process(row: Row) -> ProcessId:
    return ProcessId(
        row["boot_id"],
        row["pid_namespace"],
        row["pid"],
        row["start_ticks"],
        row["time_namespace"],
    )


def _load(row: Row) -> QueueLoad:
    if row["pid"] is None or row["status"] == "created":
        return QueueLoad(row["queue"], None, row["runs"], row["oldest_at"])
    return QueueLoad(row["queue"], _process(row), row["runs"], row["oldest_at"], row["lease_until"])


def _worker(row: Row) -> WorkerRecord:
    return WorkerRecord(
        row["worker_id"],
        row["queue"],
        row["concurrency"],
        row["host"],
        row["project"],
        _process(row),
        row["started_at"],
        row["lease_until"],
        row["lease_machine_s"],
    )
