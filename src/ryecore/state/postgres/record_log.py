"""The log of a thread on a PostgreSQL server, while this process writes it.

A write is one statement, of its own, or together with rows of the registry or the ledger that
depend on it: then all of that is one transaction. What can wait a little is written with the next
statement, or by a thread of this process after 50 ms; where it goes ahead of rows, after a second.

Source: docs/design/threads.md#storage; decisions 38, 47 and 77; ADR 042.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Lock, Thread
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from typing_extensions import override

from ryecore.errors import RyeError, StateError, StateUnreachable, ThreadConflict
from ryecore.lillux.keys import SigningKey
from ryecore.lillux.processes import current_process
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.fast_path import FastPathMiss
from ryecore.state.postgres.joining import Ahead
from ryecore.state.postgres.workers import (
    GRACE_S,
    MustBlock,
    await_or_work,
    current_call,
    in_worker,
)
from ryecore.state.record_buffer import Chain, RecordBuffer
from ryecore.state.record_log import RecordLog
from ryecore.state.thread_rows import columns, new_lease
from ryecore.state.transcript_format import Head

__all__ = ["RELEASE", "PostgresRecordLog", "log_exists"]

T = TypeVar("T")

_IDLE_S: Final = 1.0
_SOON_S: Final = 0.05
_AHEAD_S: Final = 1.0
"""How long lines that go ahead of rows wait for these, before they are written by themselves."""


_APPEND: Final = "append_records(?, ?, ?, ?, ?, ?, ?)"
_OPEN: Final = "open_log(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LENGTH: Final = (
    "SELECT length FROM logs WHERE logs.thread_id = ? AND logs.fence = ?"
    " AND (owner_fence IS NULL OR EXISTS (SELECT 1 FROM threads AS it"
    " WHERE it.thread_id = logs.thread_id AND it.fence = owner_fence))"
)
_REFUSALS: Final = (RyeError, FastPathMiss, MustBlock)
"""The errors of a statement that has changed nothing, except where the server can't be reached."""

RELEASE: Final = "UPDATE logs SET pid = NULL WHERE thread_id = ? AND fence = ?"
"""Releases a log for another writer."""


class _LateWriter:
    """Calls writes in a thread: the loop that they come from waits for no server."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without a thread, as a forked process does."""
        self._changed = Condition()
        self._writes: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._is_running = False

    def write(self, write: Callable[[], None], after_s: float = 0.0) -> None:
        """Call a function in the thread, once so many seconds have passed."""
        due_s = time.monotonic() + after_s
        with self._changed:
            is_first = not self._writes or due_s < self._writes[0][0]
            heappush(self._writes, (due_s, next(self._numbers), write))
            if not self._is_running:
                self._is_running = True
                Thread(target=self._run, name="ryecore streams", daemon=True).start()
            elif is_first:
                self._changed.notify()

    def _run(self) -> None:
        while (write := self._next()) is not None:
            write()

    def _next(self) -> Callable[[], None] | None:
        """Wait until a write is due; None once there has been none for a while."""
        with self._changed:
            while True:
                wait_s = self._writes[0][0] - time.monotonic() if self._writes else _IDLE_S
                if self._writes and wait_s <= 0:
                    return heappop(self._writes)[2]
                if not self._changed.wait(wait_s) and not self._writes:
                    self._is_running = False
                    return None


_LATE: Final = _LateWriter()
os.register_at_fork(after_in_child=_LATE.reset)


class _Write(NamedTuple):
    """A write of all buffered lines: how many, their bytes, the chain after them, its statement.

    It `closes` the log, or not.
    """

    lines: int
    size: int
    chain: Chain
    call: str
    values: tuple[Any, ...]
    closes: bool


class PostgresRecordLog(RecordBuffer, RecordLog):
    """The log of a thread, while this process writes it.

    Args:
        database: The server.
        thread_id: The thread.
        key: The run key.
        fence: The log's fence.
        file: The thread's signed file, where file and log begin with the first write.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        thread_id: str,
        key: SigningKey,
        fence: int,
        file: bytes | None = None,
    ) -> None:
        super().__init__(thread_id, key)
        self._database = database
        self._fence = fence
        self._file = file
        self._writing = Lock()
        self._in_doubt: tuple[int, int, Chain] | None = None
        """A write whose answer was lost: its lines, its bytes, the chain after it."""

        self._closes = False
        self._is_closed = False
        self._is_released = False
        self._is_streaming = False
        self._is_due = False
        self._due_s: float | None = None
        """When lines that wait are to be written; None for those that were written since."""

    @override
    def append_delta(self, text: str, /) -> None:
        if self._add_delta(text) and not self._is_streaming:
            self._keep_delta()
            self._is_streaming = True  # what comes until this is written waits for the next write
            _LATE.write(self._stream)

    def _stream(self) -> None:
        """Write what has been streamed, for those who follow; a commit reports what fails."""
        self._is_streaming = False
        with suppress(RyeError):
            self._flush()

    def _write_late(self) -> None:
        self._is_due = False  # from here on, who has more to write sees to it
        due_s = self._due_s
        if due_s is None and not self._lines:
            return
        wait_s = 0.0 if due_s is None else due_s - time.monotonic()
        if wait_s > 0:
            self._write_after(wait_s)
            return
        with suppress(RyeError):
            self._flush()

    def _write_after(self, after_s: float) -> None:
        if not self._is_due:
            self._is_due = True
            _LATE.write(self._write_late, after_s)

    @override
    async def flush(self) -> None:
        if self._pieces:
            self._keep_delta()
        if self._lines or self._in_doubt is not None:
            await await_or_work(self._awaited_flush, self._flush)

    @override
    async def write_soon(self) -> None:
        if self._due_s is None:
            self._due_s = time.monotonic() + _SOON_S
        self._write_after(_SOON_S)

    @override
    async def write_ahead(self, *, closes: bool = False) -> None:
        if self._pieces:
            self._keep_delta()
        self._closes = closes
        if self._due_s is not None:  # the rows that follow write them
            self._due_s = time.monotonic() + _AHEAD_S
        self._database.join(self._thread_id, self)

    @override
    async def commit(self) -> None:
        await self.flush()

    @override
    async def sign(self, turn: int) -> Head:
        if self._pieces:
            self._keep_delta()
        if not self._writing.acquire(blocking=False):  # it may wait for the server
            return await in_worker(lambda: self._sign(turn))
        try:
            head = self._sign_kept(turn)
        finally:
            self._writing.release()
        await self.write_soon()
        return head

    def _sign(self, turn: int) -> Head:
        with self._writing:
            return self._sign_kept(turn)

    @override
    async def checkpoint(self, turn: int) -> Head:
        return await self._in_worker(lambda: self._close_turn(turn))

    @override
    async def close(self) -> None:
        if not self._is_released:
            self._is_released = True
            try:
                await self.flush()  # refused where the last write has closed it, and more came
            finally:
                is_open, self._is_closed = not self._is_closed, True
                self._database.leave(self._thread_id, self)
                if is_open:
                    await self._in_worker(self._release)

    async def _in_worker(self, work: Callable[[], T]) -> T:
        if self._pieces:
            self._keep_delta()
        return await in_worker(work)

    def _release(self) -> None:
        self._database.change(RELEASE, (self._thread_id, self._fence))

    def _flush(self) -> None:
        """Write the buffered lines as a statement of their own."""
        with _Writing(self) as ahead:
            if ahead is None:
                return
            row = self._database.read_row(f"SELECT {ahead.call}", ahead.values)
            if not row[0]:
                raise ahead.refused()

    async def _awaited_flush(self) -> None:
        session = await self._database.connections.borrow()
        try:
            with _Writing(self, waits=False) as ahead:
                if ahead is None:
                    return
                row = await self._database.ask_for_row(
                    session, f"SELECT {ahead.call}", ahead.values
                )
                if not row[0]:
                    raise MustBlock  # the worker thread is refused, too, and looks for the reason
        finally:
            self._database.connections.give_back(session)

    def _close_turn(self, turn: int) -> Head:
        head = self._sign(turn)
        self._flush()
        return head

    def joining(self, *, waits: bool = True) -> "_Writing":
        """Write the buffered lines within a transaction of others; None where there are none."""
        return _Writing(self, waits=waits, closes=self._closes)

    def _begin_write(self, *, waits: bool, closes: bool) -> _Write | None:
        """Keep other writers of this log away until `_end_write`, and return what to write."""
        if not waits and not self._writing.acquire(blocking=False):
            raise MustBlock
        call = current_call()
        while waits and not self._writing.acquire(timeout=-1 if call is None else GRACE_S):
            if call is not None:
                call.check()
        try:
            if self._in_doubt is not None:
                if not waits:
                    raise MustBlock
                self._resolve_doubt()
            return self._next_write(closes=closes)
        except BaseException:
            self._writing.release()
            raise

    def _end_write(self, write: _Write | None, problem: BaseException | None) -> None:
        try:
            if write is None:
                return
            place = write.lines, write.size, write.chain
            if problem is None:
                self._written(*place)
                self._is_closed = write.closes
            elif isinstance(problem, StateUnreachable) or not isinstance(problem, _REFUSALS):
                self._in_doubt = place  # such as the cancellation of a task that awaited it
        finally:
            self._writing.release()

    def _next_write(self, *, closes: bool) -> _Write | None:
        lines = len(self._lines)  # others may append meanwhile
        if not lines:
            return None
        if self._is_closed:
            raise StateError(
                f"The transcript of {self._thread_id} can't be written: it is closed.",
                next_step="Resume the thread.",
            )
        text = "".join(self._lines[:lines])
        size, chain = len(text), self._chain_after_kept(lines, text.encode("ascii"))
        lease, _ = new_lease()
        if self._file is None:
            values = (self._thread_id, self._fence, self._offset, size, text, lease, closes)
            return _Write(lines, size, chain, _APPEND, values, closes)
        owner, file = columns(current_process()), self._file.decode()
        opening = (self._thread_id, size, *owner, lease, file, text)
        return _Write(lines, size, chain, _OPEN, opening, closes=False)

    def _written(self, lines: int, size: int, chain: Chain) -> None:
        self._drop_kept(lines, size, chain)
        self._file = None
        if not self._lines:
            self._due_s = None
            self._database.leave(self._thread_id, self)

    def _resolve_doubt(self) -> None:
        """Find out whether the write happened whose answer was lost, before the next one."""
        if self._in_doubt is None:
            return
        rows = self._database.read(_LENGTH, (self._thread_id, self._fence))
        if not rows and (self._file is None or self._is_there()):
            raise self._refused()
        (lines, size, chain), self._in_doubt = self._in_doubt, None
        if rows and rows[0][0] == self._offset + size:
            self._written(lines, size, chain)

    def _is_there(self) -> bool:
        return log_exists(self._database, self._thread_id)

    def _exists(self) -> StateError:
        return StateError(
            f"The transcript of {self._thread_id} can't be made: it exists.",
            next_step="Start a thread with another id, or resume this one.",
        )

    def _why_refused(self) -> RyeError:
        is_other = self._file is not None and self._is_there()
        return self._exists() if is_other else self._refused()

    def _refused(self) -> ThreadConflict:
        return ThreadConflict(
            f"The transcript of {self._thread_id} can't be written: the thread has ended, or "
            "another process has taken it over.",
            next_step=f"Stop what runs here. See what became of it: rye threads show "
            f"{self._thread_id}",
            thread_id=self._thread_id,
            state="taken over",
        )


class _Writing:
    """A block whose statement writes the buffered lines of a log.

    It begins with what is to be written, if anything is. Without an error at its end, that is
    written; with one that leaves it open, it is in doubt.
    """

    __slots__ = ("_closes", "_log", "_waits", "_write")

    def __init__(self, log: PostgresRecordLog, *, waits: bool = True, closes: bool = False) -> None:
        self._log = log
        self._waits = waits
        self._closes = closes

    def __enter__(self) -> Ahead | None:
        log = self._log
        self._write = write = log._begin_write(waits=self._waits, closes=self._closes)
        return None if write is None else Ahead(write.call, write.values, log._why_refused)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._log._end_write(self._write, problem)


def log_exists(database: PostgresDatabase, thread_id: str) -> bool:
    """Return whether a thread has a log."""
    return bool(database.read("SELECT 1 FROM logs WHERE thread_id = ?", (thread_id,)))
