"""One SQLite file that several processes write: WAL, a gate in front of writers, migrations.

Source: decision 38.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Final
from weakref import WeakSet

from ryecore.errors import StateError
from ryecore.state.model import Durability

__all__ = ["Database", "Migration", "file_system_of", "is_shared"]

Migration = Sequence[str]
"""The statements that lead from one version of a file's schema to the next."""

_BUSY_TIMEOUT_S: Final = 30.0
_LOG_BYTES: Final = 4 * 2**20
# SQLite's shared memory needs one kernel: on these file systems two machines could both write.
_SHARED_FILE_SYSTEMS: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|gfs2|glusterfs|lustre|ncpfs|nfs4?|ocfs2|smb3|smbfs"
    r"|fuse\.(?:ceph|gcsfuse|glusterfs|rclone|s3fs|sshfs)"
)


class Database:
    """A SQLite file that is set up when it is opened, and safe for threads, processes and forks.

    Args:
        path: The file; its folder must exist.
        migrations: How each version of its schema is made from the one before.
        durability: What a commit survives.
        page_size_bytes: The size of its pages, where it is made anew. A commit writes every page
            that it touches whole, so small ones suit small rows.

    Raises:
        StateError: The file is no such database, was made by a newer version, stands on a file
            system that machines share, or can't be opened.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[Migration],
        *,
        durability: Durability = "process",
        page_size_bytes: int = 1024,
    ) -> None:
        self._path = path
        self._migrations = migrations
        self._durability = durability
        self._page_size_bytes = page_size_bytes
        self._lock = RLock()
        self._abandoned: list[object] = []
        self._transaction = _Transaction(self)
        shared = file_system_of(path.parent)
        if is_shared(shared):
            raise StateError(
                f"{path} stands on {shared}, a file system that machines share, where SQLite "
                "can't keep its promises.",
                next_step="Put the project on a local disk.",
            )
        self._open()

    def _open(self) -> None:
        with self._failing("opened"), ExitStack() as undo:
            gate = os.open(
                self._path.with_name(self._path.name + ".gate"),
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
            undo.callback(os.close, gate)
            connection = sqlite3.connect(
                self._path,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
            undo.callback(connection.close)
            connection.row_factory = sqlite3.Row
            self._pid, self._gate, self._connection = os.getpid(), gate, connection
            with self._through_the_gate():
                self._set_up()
            self._file = _file_at(self._path)
            undo.pop_all()
        _OPEN.add(self)

    def _set_up(self) -> None:
        run = self._connection.execute
        run("PRAGMA trusted_schema = OFF")
        run(f"PRAGMA page_size = {self._page_size_bytes}")
        run("PRAGMA journal_mode = WAL")
        # Each time the log is brought home it is synced: the rarer, the cheaper a commit is.
        run(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // self._page_size_bytes}")
        run(f"PRAGMA synchronous = {'FULL' if self._durability == 'machine' else 'NORMAL'}")
        run("PRAGMA foreign_keys = ON")
        (version,) = run("PRAGMA user_version").fetchone()
        if version > len(self._migrations):
            raise StateError(
                f"{self._path} was written by a newer ryecore (version {version} of its schema).",
                next_step="Upgrade ryecore.",
            )
        for number, statements in enumerate(self._migrations[version:], version + 1):
            run("BEGIN IMMEDIATE")
            try:
                for statement in statements:
                    run(statement)
                run(f"PRAGMA user_version = {number}")
                run("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        os.chmod(self._path, 0o600)

    def write(self) -> "_Transaction":
        """One transaction that writes: committed at the end, undone by an exception.

        Raises:
            StateError: It can't be written; nothing of it was.
        """
        return self._transaction

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """The rows that a query finds.

        Raises:
            StateError: The file can't be read.
        """
        with self._lock, self._failing("read"):
            self._reopen_if_forked()
            return self._connection.execute(query, parameters).fetchall()

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection]:
        """Several queries that see one and the same state.

        Raises:
            StateError: The file can't be read.
        """
        with self._lock, self._failing("read"):
            self._reopen_if_forked()
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._roll_back()

    @contextmanager
    def quiet(self, most_s: float) -> Iterator[bool]:
        """Have what is read meanwhile wait for no other thread of this process.

        Args:
            most_s: After how many seconds it is given up.

        Yields:
            Whether it is so; False where another one still reads or writes.
        """
        is_quiet = self._lock.acquire(timeout=most_s)
        try:
            yield is_quiet
        finally:
            if is_quiet:
                self._lock.release()

    def is_in_place(self) -> bool:
        """Whether the file that is open still stands at its path."""
        try:
            return _file_at(self._path) == self._file
        except OSError:
            return False

    def close(self) -> None:
        """Close the file. Another use of this object opens nothing again."""
        with self._lock:
            if self._pid == os.getpid():
                self._connection.close()
                os.close(self._gate)
                self._pid = -1

    def before_fork(self) -> None:
        """Wait until no thread writes: SQLite's locks would be closed in the child for ever."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Go on; a child lets go of the gate, which it would else hold for a parent that dies."""
        if self._pid not in (-1, os.getpid()):
            os.close(self._gate)
        self._lock.release()

    def _reopen_if_forked(self) -> None:
        """A forked child opens its own: SQLite's connections don't survive a fork."""
        if self._pid == -1:
            raise StateError(f"{self._path} was closed.", next_step="Open another Rye.")
        if self._pid != os.getpid():
            self._abandoned.append(self._connection)  # closing it would take the parent's locks
            self._open()

    @contextmanager
    def _through_the_gate(self) -> Iterator[None]:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _begin(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            if self._pid != os.getpid():
                self._reopen_if_forked()
            if self._connection.in_transaction:
                raise RuntimeError("A transaction can't begin within another one.")
            # Correctness is SQLite's own lock. The gate makes writers wait in the kernel instead
            # of polling, where one can starve.
            fcntl.flock(self._gate, fcntl.LOCK_EX)
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except BaseException:
                self._roll_back()
                fcntl.flock(self._gate, fcntl.LOCK_UN)
                raise
        except BaseException as problem:
            self._lock.release()
            self._raise_as_state_error(problem, "written")
            raise
        return self._connection

    def _end(self, problem: BaseException | None) -> None:
        try:
            try:
                if problem is None:
                    self._connection.execute("COMMIT")
                else:
                    self._roll_back()
            except BaseException:
                self._roll_back()
                raise
            finally:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
        except (OSError, sqlite3.Error) as failed:
            self._raise_as_state_error(failed, "written")
        finally:
            self._lock.release()
        if problem is not None:
            self._raise_as_state_error(problem, "written")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as problem:
            self._raise_as_state_error(problem, done)

    def _raise_as_state_error(self, problem: BaseException, done: str) -> None:
        if not isinstance(problem, OSError | sqlite3.Error):
            return
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise StateError(
            f"{self._path} can't be {done}: {reason}.",
            next_step="See that its disk has room and that you may write there; a file that "
            "is broken can be moved away.",
        ) from problem


class _Transaction:
    """The one transaction that a database has at a time. A class, because a generator is slow."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        return self._database._begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database._end(problem)


_OPEN: Final[WeakSet[Database]] = WeakSet()
_FORKING: Final[list[Database]] = []
_ONE_FORK: Final = RLock()


def _before_fork() -> None:
    _ONE_FORK.acquire()
    _FORKING.extend(_OPEN)
    for database in _FORKING:
        database.before_fork()


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop().after_fork()
    _ONE_FORK.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _file_at(path: Path) -> tuple[int, int]:
    status = path.stat()
    return (status.st_dev, status.st_ino)


def is_shared(file_system: str) -> bool:
    """Whether several machines may have a file system of this type mounted at once."""
    return _SHARED_FILE_SYSTEMS.fullmatch(file_system) is not None


def file_system_of(folder: Path) -> str:
    """The type of the file system that a folder stands on; empty where that can't be told."""
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
