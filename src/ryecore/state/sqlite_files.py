"""The files of a SQLite database: where they may be, reading without writing, and the log.

A checkpoint syncs the write-ahead log and the database, and the first commit into a restarted log
syncs its header. SQLite does both within the next commit; here a thread does them.

Source: ADR 028; https://www.sqlite.org/wal.html.
"""

import errno
import fcntl
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock, Thread
from typing import Final, Protocol
from urllib.parse import quote
from weakref import WeakSet

from ryecore.state.waiting import SYNC_WORKERS, try_flock

__all__ = [
    "FORKS",
    "LogKeeper",
    "RunningSync",
    "commit_nothing",
    "connect_read_only",
    "file_identity",
    "file_system_of",
    "is_busy",
    "is_shared",
    "opened_copy",
]

# SQLite's shared memory needs one kernel: with these file systems, two machines could write.
_SHARED_FILE_SYSTEMS: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|gfs2|glusterfs|lustre|ncpfs|nfs4?|ocfs2|smb3|smbfs"
    r"|fuse\.(?:ceph|gcsfuse|glusterfs|rclone|s3fs|sshfs)"
)
_SUFFIXES: Final = ("", "-wal")


def connect_read_only(path: Path, version: int) -> sqlite3.Connection:
    """Connect to a database without writing beside it. Another `user_version` is refused.

    To read a log, SQLite needs a file of shared memory. If a writing process has left one, the
    database is read in place, else a copy is made and read.
    """
    with suppress(sqlite3.Error):
        place = f"file:{quote(str(path))}?mode=ro"
        connection = sqlite3.connect(
            place, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        if _version_of(connection) == version:
            return connection
        connection.close()
    with opened_copy(path) as copy:
        found = _version_of(copy)
        if found != version:
            raise sqlite3.DatabaseError(
                f"its schema has version {found}, and this ryecore reads version {version} where "
                "it may not be changed"
            )
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        copy.backup(connection)
        return connection


@contextmanager
def opened_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a SQLite file with its log, so that nothing is written beside the file."""
    with tempfile.TemporaryDirectory(prefix="rye-") as temporary:
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{temporary}/copy.db{suffix}")
        with closing(sqlite3.connect(f"{temporary}/copy.db", isolation_level=None)) as opened:
            opened.row_factory = sqlite3.Row
            opened.execute("PRAGMA trusted_schema = OFF")
            yield opened


def _version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the log, too
    return int(version)


def is_shared(file_system: str) -> bool:
    """Return whether several machines may mount a file system of this type at once."""
    return _SHARED_FILE_SYSTEMS.fullmatch(file_system) is not None


def file_system_of(folder: Path) -> str:
    """Return the type of a folder's file system; empty if unknown."""
    try:
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                mount, _, details = line.partition(" - ")
                if mount.split(" ", 3)[2] == number:
                    return details.split(" ", 1)[0]
    except (OSError, IndexError):
        pass
    return ""


_COMMITS: Final = 256
"""The number of this process's commits after which a checkpoint is made."""

_LOG_BYTES: Final = 4 * 2**20
"""The size above which the log is restarted, for which writers wait a moment."""

_EXTENDED_BYTES: Final = 2 * _LOG_BYTES
"""The size of an extended log, which is seldom larger before it is restarted."""

_ROOM_TO_EXTEND_BYTES: Final = 100 * _EXTENDED_BYTES
_PIECE_BYTES: Final = 2**20

_GATE_WAIT_S: Final = 1.0
_GATE_PAUSE_S: Final = 0.002


def commit_nothing(transaction: sqlite3.Connection) -> None:
    """Write one page unchanged, so that a transaction's commit writes to the log."""
    (version,) = transaction.execute("PRAGMA user_version").fetchone()
    transaction.execute(f"PRAGMA user_version = {version}")


class LogKeeper:
    """Syncs the log of one open database, and makes its checkpoints in a thread of its own."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = f"{database}-wal"
        self._gate = f"{database}.gate"
        self._is_unsure = False  # a sync has failed, and the log was not written again since
        self._commits = 0
        self._working = Lock()

    def after_commit(self) -> None:
        """Count a commit, and start a checkpoint if it is due. It never waits."""
        self._commits += 1
        if self._commits >= _COMMITS and self._working.acquire(blocking=False):
            self._commits = 0
            try:
                Thread(target=self._work, name="ryecore-checkpoint", daemon=True).start()
            except RuntimeError:  # no thread can be started: a later commit tries again
                self._working.release()

    def sync(self) -> None:
        """Sync the log, so that commits survive a power cut.

        After a sync that failed, the log is written again first: the kernel may have dropped what
        it could not write, and would report the next sync as a success, in any process. The size
        of the gate's file, which needs no room, tells them all.
        """
        try:
            log = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # the last connection has synced it, moved it into the database, and removed it
        try:
            if not self._is_unsure:
                try:
                    os.fdatasync(log)
                except OSError:
                    self._is_unsure = True
                    with suppress(OSError):
                        os.truncate(self._gate, 1)
            if self._is_unsure or os.stat(self._gate).st_size > 0:
                self._write_again(log)
                self._is_unsure = False
        finally:
            os.close(log)

    def extend(self) -> None:
        """Write zeros behind the log, up to the size that it reaches before it is restarted.

        A sync of a log that grows writes the file system's journal, too, and waits for what other
        programs have in it. SQLite reads a log up to the first frame that isn't of its salt. A disk
        with little room is left to what is written.

        Raises:
            OSError: It can't be written, or other processes write all the time.

        Source: https://www.sqlite.org/fileformat2.html#walformat.
        """
        room = os.statvfs(self._gate)
        if room.f_bavail * room.f_frsize < _ROOM_TO_EXTEND_BYTES:
            return
        with self._working:  # no checkpoint, and no fork
            self._extend()
        self.sync()

    def _extend(self) -> None:
        with (
            closing(sqlite3.connect(self._database, timeout=0, isolation_level=None)) as own,
            self._gate_taken(),
        ):
            own.execute("PRAGMA trusted_schema = OFF")
            own.execute("PRAGMA wal_autocheckpoint = 0")
            own.execute("BEGIN IMMEDIATE")
            commit_nothing(own)
            own.execute("COMMIT")  # now there is a log, with its header
            own.execute("BEGIN IMMEDIATE")  # nobody writes meanwhile
            log = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                size_bytes = os.fstat(log).st_size
                while (left := _EXTENDED_BYTES - size_bytes) > 0:
                    zeros = bytes(min(left, _PIECE_BYTES))
                    size_bytes += os.pwrite(log, zeros, size_bytes)
            finally:
                os.close(log)

    def begin_sync(self) -> "RunningSync":
        """Begin a sync on an event loop, in which no thread of Python takes part."""
        return RunningSync(self, self._path, self._gate)

    async def sync_again(self) -> None:
        """Sync the log, which has to be written again before, in a worker thread."""
        self._is_unsure = True
        await SYNC_WORKERS.run(self.sync)

    def _write_again(self, log: int) -> None:
        """Write the log's content again, and sync it, while nobody else writes to it."""
        if not self._working.acquire(timeout=_GATE_WAIT_S):
            raise OSError(errno.EIO, "an earlier sync of the log failed")
        try:
            with (
                closing(sqlite3.connect(self._database, timeout=0, isolation_level=None)) as own,
                self._gate_taken(),
            ):
                own.execute("PRAGMA trusted_schema = OFF")
                own.execute("PRAGMA wal_autocheckpoint = 0")
                own.execute("BEGIN IMMEDIATE")
                writing = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    offset = 0
                    while piece := os.pread(log, _PIECE_BYTES, offset):
                        offset += os.pwrite(writing, piece, offset)
                finally:
                    os.close(writing)
                os.fdatasync(log)
                os.truncate(self._gate, 0)
        except sqlite3.Error as problem:
            raise OSError(errno.EIO, f"an earlier sync of the log failed: {problem}") from problem
        finally:
            self._working.release()

    @contextmanager
    def _gate_taken(self) -> Iterator[None]:
        """Keep writers away, once the current one has ended."""
        gate = os.open(self._gate, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            until = time.monotonic() + _GATE_WAIT_S
            while not try_flock(gate):
                if time.monotonic() >= until:
                    raise TimeoutError(errno.ETIMEDOUT, "other processes write all the time")
                time.sleep(_GATE_PAUSE_S)
            try:
                yield
            finally:
                fcntl.flock(gate, fcntl.LOCK_UN)  # a child that was forked may hold it open
        finally:
            os.close(gate)

    def pause(self) -> None:
        """Wait for the current checkpoint, and let no other begin."""
        self._working.acquire()

    def resume(self) -> None:
        """Allow checkpoints again."""
        self._working.release()

    def _work(self) -> None:
        try:
            with suppress(OSError, sqlite3.Error):  # the next one tries again
                self._checkpoint()
        finally:
            self._working.release()

    def _checkpoint(self) -> None:
        """Move the log into the database, and begin the log again where that is due.

        A log that was moved wholly is begun again by the next commit, which waits for the disk. So
        a reader keeps commits from that until one is made here.
        """
        with (
            closing(sqlite3.connect(self._database, timeout=0, isolation_level=None)) as own,
            closing(sqlite3.connect(self._database, timeout=0, isolation_level=None)) as reader,
        ):
            own.execute("PRAGMA trusted_schema = OFF")
            own.execute("PRAGMA wal_autocheckpoint = 0")
            own.execute("PRAGMA synchronous = NORMAL")
            (page_bytes,) = own.execute("PRAGMA page_size").fetchone()
            reader.execute("BEGIN")
            reader.execute("PRAGMA user_version").fetchone()
            _, pages, moved = own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * page_bytes >= _LOG_BYTES or pages == moved:
                self._begin_again(own, reader)

    def _begin_again(self, own: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        """Restart the log, and make the first commit into it."""
        with self._gate_taken():
            reader.execute("ROLLBACK")
            own.execute("PRAGMA wal_checkpoint(PASSIVE)")  # for the few commits since
            own.execute("BEGIN IMMEDIATE")
            commit_nothing(own)
            own.execute("COMMIT")


class RunningSync:
    """A sync of a database's log, while an event loop runs."""

    __slots__ = ("_keeper", "_sync")

    def __init__(self, keeper: LogKeeper, log: str, gate: str) -> None:
        # Imported where a loop runs: a short command has none.
        from ryecore.lillux.log_sync import LogSync  # noqa: PLC0415

        self._keeper = keeper
        self._sync: LogSync | None = LogSync(log, gate)

    async def finish(self) -> None:
        """Wait until the log is on the disk. A cancelled wait can be made again.

        Raises:
            OSError: It can't be synced.
        """
        if self._sync is None or not await self._sync.is_on_disk():
            self._sync = None
            await self._keeper.sync_again()


_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def is_busy(problem: BaseException) -> bool:
    """Return whether SQLite refused because another connection holds a lock."""
    code: int | None = getattr(problem, "sqlite_errorcode", None)
    return isinstance(problem, sqlite3.Error) and code is not None and code & 0xFF in _BUSY


class _Forkable(Protocol):
    def before_fork(self) -> None: ...

    def after_fork(self) -> None: ...


FORKS: Final[WeakSet[_Forkable]] = WeakSet()
"""The open databases, which prepare for each fork of this process and recover after it."""
_FORKING: Final[list[_Forkable]] = []
_ONE_FORK: Final = RLock()


def _before_fork() -> None:
    _ONE_FORK.acquire()
    _FORKING.extend(FORKS)
    for database in _FORKING:
        database.before_fork()


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop().after_fork()
    _ONE_FORK.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def file_identity(path: Path) -> tuple[int, int]:
    """Return what tells a file from another one at the same path: its device and inode."""
    status = path.stat()
    return (status.st_dev, status.st_ino)
