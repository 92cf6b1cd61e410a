"""What was written to files of threads, held by the registry's file until they are on the disk.

With machine durability, each file would need syncs of its own. Instead, what was written to it is
added to the registry's file, too, whose log is synced once for all threads that wait. The file
itself is synced later, in a thread of its own. After a loss of power, whoever opens the project's
threads first writes back what the files lack.

Source: ADR 030.
"""

import errno
import json
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from threading import Lock, Thread
from typing import Final

from ryecore.errors import RyeError, StateError
from ryecore.items.files import write_atomically
from ryecore.lillux.processes import current_process
from ryecore.state.database import Database
from ryecore.state.refusals import advice
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript import Transcript

__all__ = ["WriteAhead"]

_ROWS: Final = 2048
_BYTES: Final = 8 * 2**20
_ROWS_OF_ONE: Final = 256
_BYTES_OF_ONE: Final = 2**20
_NAME: Final = re.compile(r"[a-z]+\.(?:jsonl?|md)")

_ADD: Final = (
    "INSERT INTO write_ahead (thread_id, boot_id, name, offset, mtime_ns, data)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_WRITTEN_BEFORE: Final = (
    "SELECT write_ahead.* FROM write_ahead JOIN threads USING (thread_id)"
    " WHERE write_ahead.boot_id <> ? ORDER BY thread_id, seq"
)
_LACKED: Final = "SELECT 1 FROM write_ahead WHERE thread_id = ? AND boot_id <> ? LIMIT 1"
_NAMES: Final = "SELECT DISTINCT name FROM write_ahead WHERE thread_id = ?"
_ROWS_OF: Final = "SELECT * FROM write_ahead WHERE thread_id = ? ORDER BY seq"
_DUE: Final = (
    "SELECT thread_id, max(seq) AS last FROM write_ahead JOIN threads USING (thread_id)"
    " GROUP BY thread_id HAVING completed_at IS NOT NULL OR count(*) >= ? OR sum(length(data)) >= ?"
)


class WriteAhead:
    """What was written to files of one project's threads, and may not be on the disk yet.

    Args:
        database: The registry's.
        place: The folder of all threads.
        make_folder: Makes a thread's folder if it is missing, and returns its path.
    """

    def __init__(self, database: Database, place: str, make_folder: Callable[[str], str]) -> None:
        self._database = database
        self._place = place
        self._make_folder = make_folder
        self._boot_id = current_process().boot_id
        self._bytes = 0
        self._failed: set[str] = set()
        self._syncing = Lock()
        self._pid = os.getpid()

    async def add(self, thread_id: str, transcript: Transcript) -> None:
        """Add what was written to a transcript since the last call.

        It is on the disk at the latest when a later commit of the registry is.
        """
        if not transcript.unsynced:
            return
        async with self._database.writing() as run:
            data = b"".join(transcript.unsynced)
            row = (thread_id, self._boot_id, TRANSCRIPT, transcript.offset - len(data), None, data)
            seq = run.execute(_ADD, row).lastrowid
        transcript.unsynced.clear()  # no other task has run since they were joined
        self._count(seq, len(data))

    async def add_file(self, thread_id: str, name: str) -> None:
        """Add a whole file of a thread's folder, as it is now, unless it is missing.

        It is on the disk at the latest when a later commit of the registry is.

        Raises:
            StateError: It can't be read, or the registry can't be written.
        """
        path = f"{self._place}/{thread_id}/{name}"
        try:
            with _opened(path) as descriptor:
                status = os.fstat(descriptor)
                data = os.pread(descriptor, status.st_size, 0)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise StateError(
                f"{path} can't be read: {problem.strerror}.", next_step=advice(problem)
            ) from problem
        row = (thread_id, self._boot_id, name, None, status.st_mtime_ns, data)
        async with self._database.writing() as run:
            seq = run.execute(_ADD, row).lastrowid
        self._count(seq, len(data))

    def _count(self, seq: int | None, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bytes >= _BYTES or (seq or 0) % _ROWS == 0:
            self._bytes = 0
            self._start_syncing()

    async def synced(self) -> None:
        """Wait until all that was added is on the disk."""
        await self._database.synced()

    def restore(self) -> None:
        """Write back what files have lost with an earlier boot of the machine.

        Those that can't be written stay as they are, and the next call tries again.
        """
        first = self._database.read("SELECT boot_id FROM write_ahead ORDER BY seq LIMIT 1")
        if not first or first[0]["boot_id"] == self._boot_id:  # earlier boots come first
            return
        with suppress(StateError), self._database.write() as run:
            failed = []
            rows = run.execute(_WRITTEN_BEFORE, (self._boot_id,))
            for thread_id, rows_of_one in groupby(rows, key=lambda row: str(row["thread_id"])):
                try:
                    self._restore(thread_id, tuple(rows_of_one))
                except (OSError, RyeError):
                    failed.append(thread_id)
            run.execute(
                "DELETE FROM write_ahead WHERE boot_id <> ?"
                " AND thread_id NOT IN (SELECT value FROM json_each(?))",
                (self._boot_id, json.dumps(failed)),
            )

    def check_restored(self, thread_id: str) -> None:
        """Refuse a thread whose files lack what a loss of power took and nobody could write back.

        Its transcript would pass for a cut one.
        """
        if self._database.read(_LACKED, (thread_id, self._boot_id)):
            raise StateError(
                f"The files of {thread_id} lack what a loss of power took from them. It is still "
                "in threads.db, and couldn't be written back.",
                next_step="See that the disk can be written and has room, and try again: whoever "
                "opens the threads writes it back.",
            )

    def _restore(self, thread_id: str, rows: Sequence[sqlite3.Row]) -> None:
        if not all(_NAME.fullmatch(row["name"]) for row in rows):  # nobody has signed the rows
            raise OSError(errno.EPERM, "a row names no file of a thread")
        folder = self._make_folder(thread_id)
        whole = {row["name"]: row for row in rows if row["offset"] is None}  # the last of each
        for name, row in whole.items():
            if not _is_as_new(f"{folder}/{name}", row):
                write_atomically(f"{folder}/{name}", row["data"], mode=0o600)
        pieces = [row for row in rows if row["offset"] is not None]
        if pieces:
            with _opened(f"{folder}/{TRANSCRIPT}", os.O_RDWR | os.O_CREAT) as descriptor:
                for row in pieces:
                    offset, data = row["offset"], row["data"]
                    if os.fstat(descriptor).st_size < offset:
                        raise OSError(0, "what stood before is lost")
                    if os.pread(descriptor, len(data), offset) != data:
                        _write_at(descriptor, offset, data)
        self._sync(thread_id, {*whole, TRANSCRIPT})

    def _start_syncing(self) -> None:
        if self._pid != os.getpid():  # no thread survives a fork, but what it has locked stays so
            self._pid, self._syncing = os.getpid(), Lock()
        if self._syncing.acquire(blocking=False):
            try:
                Thread(target=self._sync_due, name="ryecore-sync", daemon=True).start()
            except RuntimeError:  # no thread can be started: a later call tries again
                self._syncing.release()

    def _sync_due(self) -> None:
        try:
            with suppress(OSError, StateError):  # the next one tries again
                self.sync_files()
        finally:
            self._syncing.release()

    def sync_files(self) -> None:
        """Sync the files of ended threads and long ones, and remove what was added of them.

        They may be those of other processes, even dead ones.
        """
        done = []
        for row in self._database.read(_DUE, (_ROWS_OF_ONE, _BYTES_OF_ONE)):
            with suppress(OSError):
                self._sync_all_of(row["thread_id"])
                done.append((row["thread_id"], row["last"]))
        if done:
            with self._database.write() as run:
                run.executemany("DELETE FROM write_ahead WHERE thread_id = ? AND seq <= ?", done)

    def _sync_all_of(self, thread_id: str) -> None:
        """Sync all that was added of a thread, and write it again after a sync that failed.

        The kernel may have dropped what it could not write, and would report the next sync as a
        success.
        """
        names = {row["name"] for row in self._database.read(_NAMES, (thread_id,))}
        if thread_id not in self._failed:
            try:
                self._sync(thread_id, names)
            except OSError:
                self._failed.add(thread_id)
            else:
                return
        self._write_again(thread_id)
        self._sync(thread_id, names)
        self._failed.discard(thread_id)

    def _write_again(self, thread_id: str) -> None:
        rows = self._database.read(_ROWS_OF, (thread_id,))
        last = {row["name"]: row["seq"] for row in rows}
        for row in rows:
            if row["offset"] is None and row["seq"] != last[row["name"]]:
                continue  # the file was replaced since
            path = f"{self._place}/{thread_id}/{row['name']}"
            with suppress(FileNotFoundError), _opened(path, os.O_RDWR) as descriptor:
                offset, data = row["offset"] or 0, row["data"]
                if os.pread(descriptor, len(data), offset) == data:
                    _write_at(descriptor, offset, data)
                elif row["offset"] is not None or not _is_as_new(path, row):
                    raise OSError(errno.EIO, "the file isn't as it was written")

    def _sync(self, thread_id: str, names: Collection[str]) -> None:
        """Sync files of a thread and the folders above them, unless they were removed."""
        folder = f"{self._place}/{thread_id}"
        for name in names:
            with suppress(FileNotFoundError), _opened(f"{folder}/{name}") as descriptor:
                os.fdatasync(descriptor)
        with suppress(FileNotFoundError):
            while len(folder) >= len(self._place):
                with _opened(folder, os.O_DIRECTORY) as descriptor:
                    os.fsync(descriptor)
                folder = os.path.dirname(folder)


def _is_as_new(path: str, row: sqlite3.Row) -> bool:
    """Return whether a file holds what a row has, or what was written after it."""
    try:
        with _opened(path) as descriptor:
            status, data = os.fstat(descriptor), row["data"]
            is_later = status.st_size > 0 and status.st_mtime_ns > (row["mtime_ns"] or 0)
            return is_later or bytes(data) == os.pread(descriptor, len(data) + 1, 0)
    except OSError:
        return False


@contextmanager
def _opened(path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a file. A link isn't followed, and a FIFO isn't waited for."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        offset, data = offset + written, data[written:]
