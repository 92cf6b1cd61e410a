"""The logs of threads on a PostgreSQL server: the lines of a transcript, a row for each write.

A log's row has its length, and the fence of its writer. A write moves the length on from where this
writer left it, if the fences of the log and of its thread are still the
writer's. So a process whose thread was taken over or ended elsewhere adds nothing any more, and a
write whose answer was lost is found to have happened, or not.

Source: docs/design/threads.md#storage; decisions 38, 47 and 77; ADR 042.
"""

import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from typing_extensions import override

from ryecore.errors import StateError, StateLocked
from ryecore.lillux.keys import SigningKey
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.owners import is_abandoned, is_lost
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.log_bytes import LogSource
from ryecore.state.postgres.record_log import RELEASE, PostgresRecordLog, log_exists
from ryecore.state.postgres.workers import WORKERS, in_worker
from ryecore.state.record_log import RecordLog, RecordStore, Recovery
from ryecore.state.thread_rows import columns, new_lease, record_of
from ryecore.state.transcript_check import (
    Record,
    proved_records,
    read_chain,
    read_records,
    verify_transcript,
)
from ryecore.state.transcript_report import TranscriptReport, Unit
from ryecore.state.transcript_store import streamed
from ryecore.state.waiting import ChangeWatcher

if TYPE_CHECKING:
    from ryecore.state.statements import Row

__all__ = ["LoadKey", "PostgresRecordStore", "Watch"]

LoadKey: TypeAlias = Callable[[], SigningKey]
"""Loads the user's run key."""

Watch: TypeAlias = Callable[[str], AbstractAsyncContextManager[ChangeWatcher]]
"""Returns a watcher of a thread's changes."""

_LOOK_AGAIN_S: Final = 0.2

_OPEN: Final = (
    "INSERT INTO logs (thread_id, boot_id, pid_namespace, pid, start_ticks, time_namespace,"
    " lease_until, owner_fence)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT fence FROM threads WHERE thread_id = ?))"
    " ON CONFLICT DO NOTHING"
)
_TAKE_OVER: Final = (
    "UPDATE logs SET fence = fence + 1, boot_id = ?, pid_namespace = ?, pid = ?, start_ticks = ?,"
    " time_namespace = ?, lease_until = ?,"
    " owner_fence = (SELECT fence FROM threads WHERE threads.thread_id = logs.thread_id)"
    " WHERE thread_id = ? AND fence = ? RETURNING fence, length"
)


class PostgresRecordStore(RecordStore):
    """The logs of a project's threads on a server.

    The run key is loaded when it is needed; `watch` returns a watcher of a thread's changes.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        load_key: LoadKey,
        watch: Watch,
    ) -> None:
        self._database = database
        self._load_key = load_key
        self._watch = watch

    @override
    async def create(self, thread_id: str) -> RecordLog:
        log = PostgresRecordLog(self._database, thread_id, self._load_key(), 1)
        values = (thread_id, *columns(current_process()), new_lease()[0], thread_id)
        if not await in_worker(lambda: self._database.change(_OPEN, values)):
            raise StateError(
                f"The transcript {self._source(thread_id)} can't be made: it exists.",
                next_step="Start a thread with another id, or resume this one.",
            )
        return log

    def begin(self, thread_id: str, file: bytes) -> RecordLog:
        """Return a new log, which begins with its first write, together with the thread's file."""
        return PostgresRecordLog(self._database, thread_id, self._load_key(), 1, file)

    @override
    async def resume(
        self, thread_id: str, head: tuple[int, str] | None = None
    ) -> tuple[RecordLog, Recovery]:
        return await in_worker(lambda: self._resume(thread_id, head))

    def _resume(self, thread_id: str, head: tuple[int, str] | None) -> tuple[RecordLog, Recovery]:
        key, source, found = self._load_key(), self._source(thread_id), self._find(thread_id)
        if found is None:
            raise StateError(
                f"There is no transcript {source}.",
                next_step="See which threads there are: rye threads list --all",
            )
        if self._has_writer(found):
            raise StateLocked(
                f"The transcript {source} is written by the process {found['pid']}.",
                next_step="Wait until its thread has ended, or stop it: rye threads cancel",
                path=str(source),
            )
        values = (*columns(current_process()), new_lease()[0], thread_id, found["fence"])
        taken = self._database.read(_TAKE_OVER, values)
        if not taken:
            raise StateLocked(
                f"Another process has just opened the transcript {source}.",
                next_step="Wait until its thread has ended, or stop it: rye threads cancel",
                path=str(source),
            )
        ((fence, size),) = taken
        log = PostgresRecordLog(self._database, thread_id, key, fence)
        try:
            with source.open() as file:
                chain, last_type = read_chain(file, size, thread_id, key.public, head)
            chain.check(source)
            recovery = log._continue(chain, last_type)
            if recovery.is_torn:
                self._cut(thread_id, fence, log.offset)
        except BaseException:
            self._database.change(RELEASE, (thread_id, fence))
            raise
        return log, recovery

    def _cut(self, thread_id: str, fence: int, size: int) -> None:
        """Drop what follows the last whole record, which somebody else has put there."""
        with self._database.write() as run:
            run.execute("DELETE FROM records WHERE thread_id = ? AND start >= ?", (thread_id, size))
            run.execute(
                "UPDATE records SET body = left(body, CAST(? - start AS int)) WHERE thread_id = ?"
                " AND start = (SELECT max(start) FROM records WHERE thread_id = ?)",
                (size, thread_id, thread_id),
            )
            run.execute(
                "UPDATE logs SET length = ? WHERE thread_id = ? AND fence = ?",
                (size, thread_id, fence),
            )

    def _find(self, thread_id: str) -> "Row | None":
        rows = self._database.read("SELECT * FROM logs WHERE thread_id = ?", (thread_id,))
        return rows[0] if rows else None

    def _has_writer(self, log: "Row") -> bool:
        """Return whether a process that may live writes a log."""
        if log["pid"] is None:
            return False
        rows = self._database.read("SELECT * FROM threads WHERE thread_id = ?", (log["thread_id"],))
        if rows and log["owner_fence"] is not None:
            thread = record_of(rows[0])
            return thread.fence == log["owner_fence"] and not is_abandoned(thread)
        writer = ProcessId(
            log["boot_id"],
            log["pid_namespace"],
            log["pid"],
            log["start_ticks"],
            log["time_namespace"],
        )
        return not is_lost(writer, log["lease_until"], 0.0)

    async def is_open(self, thread_id: str) -> bool:
        """Return whether a log's writer hasn't closed it, dead or alive."""
        log = await in_worker(lambda: self._find(thread_id))
        return log is not None and log["pid"] is not None

    def copy(self, thread_id: str, path: Path) -> None:
        """Write a log to a file, which is replaced. It waits for the server.

        Raises:
            OSError: There is no log, or the file can't be written.
        """
        with self._source(thread_id).open() as log, path.open("wb") as file:
            shutil.copyfileobj(log, file)

    @override
    async def exists(self, thread_id: str) -> bool:
        return await in_worker(lambda: log_exists(self._database, thread_id))

    @override
    def read(
        self, thread_id: str, *, from_offset: int = 0, to_offset: int | None = None
    ) -> AsyncGenerator[Record, None]:
        records = read_records(
            self._source(thread_id), from_offset=from_offset, to_offset=to_offset
        )
        return streamed(records, WORKERS)

    @override
    def read_proved(
        self, thread_id: str, head: tuple[int, str] | None, *, ended: bool
    ) -> AsyncGenerator[Record, None]:
        key = self._load_key().public
        records = proved_records(self._source(thread_id), thread_id, key, head, ended=ended)
        return streamed(records, WORKERS)

    @override
    async def follow(
        self,
        thread_id: str,
        has_ended: Callable[[], Awaitable[bool]],
        *,
        from_start: bool = True,
        follow: bool = True,
    ) -> AsyncGenerator[Record, None]:
        offset = 0 if from_start else await self._size(thread_id)
        async with self._watch(thread_id) as watched:
            while True:
                ended = await has_ended()
                if await self._size(thread_id) > offset:
                    async with aclosing(self.read(thread_id, from_offset=offset)) as records:
                        async for record in records:
                            offset = record.end
                            yield record
                if ended or not follow:
                    return
                await watched.changed(_LOOK_AGAIN_S)

    async def _size(self, thread_id: str) -> int:
        log = await in_worker(lambda: self._find(thread_id))
        return 0 if log is None else int(log["length"])

    @override
    async def verify(
        self,
        thread_id: str,
        head: tuple[int, str] | None = None,
        *,
        ended: bool,
        unit: Unit = "turn",
    ) -> TranscriptReport:
        return await in_worker(lambda: self._verify(thread_id, head, ended, unit))

    def _verify(
        self, thread_id: str, head: tuple[int, str] | None, ended: bool, unit: Unit
    ) -> TranscriptReport:
        key, log = self._load_key().public, self._find(thread_id)
        is_closed = ended and not (log is not None and self._has_writer(log))
        return verify_transcript(
            self._source(thread_id), thread_id, key, head, ended=is_closed, unit=unit
        )

    def _source(self, thread_id: str) -> LogSource:
        return LogSource(self._database, thread_id)
