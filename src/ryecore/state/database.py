"""A SQLite file that several processes write: WAL, a gate in front of writers, migrations.

`waiting.py` has how long a lock is waited for.

Source: decision 38.
"""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import RLock, get_ident
from types import TracebackType
from typing import Any, TypeVar

from ryecore.errors import StateError
from ryecore.lillux.os_errors import refuses_writing
from ryecore.state.model import Durability
from ryecore.state.refusals import Failing, raise_as_state_error
from ryecore.state.sqlite_files import (
    FORKS,
    LogKeeper,
    commit_nothing,
    connect_read_only,
    file_identity,
    file_system_of,
    is_busy,
    is_shared,
)
from ryecore.state.sqlite_schema import Migration, upgrade
from ryecore.state.waiting import GroupSync, LockWait, run_blocking, try_flock

__all__ = ["Database", "Migration"]

T = TypeVar("T")


class Database:
    """A SQLite file that is set up when it is opened, and safe for threads, processes and forks.

    Its folder must exist. Refused are files of a newer version, and file systems that machines
    share. A commit writes whole pages, so small ones suit small rows.
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
        self._awaited = _AwaitedTransaction(self)
        self._part = _Part(self)
        self._together_in = 0  # the thread whose operations belong to one transaction
        self._changes = 0  # of this connection, when the current one of them began
        self._undone: BaseException | None = None  # what undoes the transaction, though caught
        shared = file_system_of(path.parent)
        if is_shared(shared):
            raise StateError(
                f"{path} is on {shared}, a file system that machines share, where SQLite "
                "can't keep its promises.",
                next_step="Put the project on a local disk.",
            )
        self._open()

    def _open(self) -> None:
        with self._failing("opened"), ExitStack() as undo:
            try:
                gate = os.open(
                    self._path.with_name(self._path.name + ".gate"),
                    os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                    0o600,
                )
            except OSError as problem:
                if not refuses_writing(problem) or not self._path.exists():
                    raise
                self._open_read_only()
                return
            undo.callback(os.close, gate)
            # Never opened and closed here: that would release the locks of other connections.
            with suppress(FileExistsError, PermissionError):  # some file systems don't allow it
                os.mknod(self._path, 0o600)
            connection = sqlite3.connect(
                self._path,
                timeout=0,  # `LockWait` waits instead, which signals and cancellations end
                isolation_level=None,
                check_same_thread=False,
            )
            undo.callback(connection.close)
            connection.row_factory = sqlite3.Row
            self._pid, self._gate, self._connection = os.getpid(), gate, connection
            self._renew_keepers()
            self._wait_for(self._configure)
            if not self._wait_for(self._is_set_up):  # readers need no gate
                with self._through_the_gate():
                    self._wait_for(self._set_up)
            self._file = file_identity(self._path)
            undo.pop_all()
        FORKS.add(self)

    def _open_read_only(self) -> None:
        connection = connect_read_only(self._path, len(self._migrations))
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA trusted_schema = OFF")
        self._pid, self._gate, self._connection = os.getpid(), -1, connection
        self._renew_keepers()
        self._file = file_identity(self._path)
        FORKS.add(self)

    def _renew_keepers(self) -> None:
        """Make new keepers of the log; a forked child needs its own, with their own threads."""
        self._log = LogKeeper(self._path)
        self._sync = GroupSync(self._log.sync, self._log.begin_sync)

    def _configure(self) -> None:
        run = self._connection.execute
        run("PRAGMA trusted_schema = OFF")
        run(
            "PRAGMA wal_autocheckpoint = 0"
        )  # checkpoints wait for the disk: `LogKeeper` makes them
        run("PRAGMA synchronous = NORMAL")  # with machine durability, `GroupSync` syncs each commit
        run("PRAGMA foreign_keys = ON")

    def _is_set_up(self) -> bool:
        run = self._connection.execute
        (mode,) = run("PRAGMA journal_mode").fetchone()
        (version,) = run("PRAGMA user_version").fetchone()
        return bool(mode == "wal" and version == len(self._migrations))

    def _set_up(self) -> None:
        os.chmod(self._path, 0o600)
        run = self._connection.execute
        run(f"PRAGMA page_size = {self._page_size_bytes}")
        run("PRAGMA journal_mode = WAL")
        (version,) = run("PRAGMA user_version").fetchone()
        if version > len(self._migrations):
            raise StateError(
                f"{self._path} was written by a newer ryecore (version {version} of its schema).",
                next_step="Upgrade ryecore.",
            )
        upgrade(self._connection, self._migrations, version)

    def write(self, tree: str | None = None) -> "_Transaction":
        """Return a writing transaction: committed at its end, rolled back by an exception."""
        return self._transaction

    def writing(self, tree: str | None = None) -> "_AwaitedTransaction | _Part":
        """Return a writing transaction, awaited until no other process writes.

        Nothing is awaited within it, so no other task runs. In `together` it is a part of that.
        """
        return self._part if self._together_in == get_ident() else self._awaited

    async def together(
        self, work: Callable[[], Coroutine[Any, Any, T]], tree: str | None = None
    ) -> T:
        """Run operations that await nothing but this database as one transaction.

        One that raises after it has changed something undoes all, though its error is caught.
        """
        _ = self._try_begin() or await self._begin_awaited()
        self._together_in, self._undone = get_ident(), None
        try:
            result = run_blocking(work())
            if self._undone is not None:
                raise self._undone
        except BaseException as problem:
            self._together_in = 0
            self._end(problem)
            raise
        self._together_in = 0
        self._end(None)
        return result

    def _begin_part(self) -> sqlite3.Connection:
        connection = self._connection
        if not connection.in_transaction:  # SQLite rolled it back, as on a full disk
            failed = sqlite3.OperationalError("the transaction was rolled back")
            raise_as_state_error(self._path, failed, "written")
        self._changes = connection.total_changes
        return connection

    def _fail_part(self, problem: BaseException) -> None:
        if self._connection.total_changes != self._changes:
            self._undone = problem
        raise_as_state_error(self._path, problem, "written")

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return the rows that a query finds."""
        with self._lock, self._failing("read"):
            self._reopen_if_forked()
            return self._wait_for(lambda: self._connection.execute(query, parameters).fetchall())

    async def fetch(self, query: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return the rows that a query finds; other tasks run during a wait for a lock."""
        wait = None
        while True:
            with self._lock:
                self._reopen_if_forked()
                try:
                    return self._connection.execute(query, parameters).fetchall()
                except (OSError, sqlite3.Error) as problem:
                    if not is_busy(problem):
                        raise_as_state_error(self._path, problem, "read")
            wait = wait or self._new_wait()
            await wait.pause_async()

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose queries all see the same state."""
        with self._lock, self._failing("read"):
            self._reopen_if_forked()
            self._wait_for(lambda: self._connection.execute("BEGIN"))
            try:
                yield self._connection
            finally:
                self._roll_back()

    @contextmanager
    def quiet(self, most_s: float) -> Iterator[bool]:
        """Keep other threads of this process away, so that reads don't wait for them.

        Yields whether that succeeded within the time; else another thread still reads or writes.
        """
        is_quiet = self._lock.acquire(timeout=most_s)
        try:
            yield is_quiet
        finally:
            if is_quiet:
                self._lock.release()

    def begin_log(self) -> None:
        """Make the first commit of an empty log, which syncs its header and its folder."""
        try:
            is_empty = os.stat(f"{self._path}-wal").st_size == 0
        except FileNotFoundError:
            is_empty = True
        if is_empty:
            with self.write() as run:
                commit_nothing(run)

    def extend_log(self) -> None:
        """Make the log as long as it gets before it is restarted, so that its syncs take less.

        Raises:
            StateError: It can't be written, or other processes write all the time.
        """
        with self._failing("extended"):
            self._log.extend()

    def begin_sync(self) -> None:
        """Begin what `synced` waits for, on an event loop, which works on meanwhile."""
        if self._durability == "machine":
            with self._failing("synced"):
                self._sync.begin()

    async def synced(self) -> None:
        """Wait until all commits so far have the promised durability."""
        if self._durability == "machine":
            with self._failing("synced"):
                await self._sync.synced()

    def is_in_place(self) -> bool:
        """Return whether the open file is still at its path."""
        try:
            return file_identity(self._path) == self._file
        except OSError:
            return False

    def close(self) -> None:
        """Close the file. It isn't opened again."""
        with self._lock:
            if self._pid == os.getpid():
                self._log.pause()  # for ever
                self._connection.close()
                self._close_gate()
                self._pid = -1

    def before_fork(self) -> None:
        """Wait until no thread writes: the child would inherit held locks for ever."""
        self._lock.acquire()
        if self._pid != -1:
            self._log.pause()

    def after_fork(self) -> None:
        """Release the locks; a child drops the gate, which it would else hold for a dead parent."""
        if self._pid not in (-1, os.getpid()):
            self._close_gate()
        if self._pid != -1:
            self._log.resume()
        self._lock.release()

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1  # a forked child forks too, and another file may have the number then

    def _reopen_if_forked(self) -> None:
        """Open a new connection in a forked child: SQLite's connections don't survive a fork."""
        if self._pid == -1:
            raise StateError(f"{self._path} was closed.", next_step="Open another Rye.")
        if self._pid != os.getpid():
            self._abandoned.append(self._connection)  # closing it would release the parent's locks
            self._open()

    @contextmanager
    def _through_the_gate(self) -> Iterator[None]:
        wait = None
        while not try_flock(self._gate):
            wait = wait or self._new_wait()
            wait.pause()
        try:
            yield
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _wait_for(self, step: Callable[[], T]) -> T:
        """Repeat a step of a connection until no lock of another connection prevents it."""
        wait = None
        while True:
            try:
                return step()
            except sqlite3.Error as problem:
                if not is_busy(problem):
                    raise
            wait = wait or self._new_wait()
            wait.pause()

    def _new_wait(self) -> LockWait:
        names = (".gate", "", "-wal", "-shm")
        beside = (self._path.with_name(self._path.name + name) for name in names)
        return LockWait(self._path, *beside)

    def _begin(self) -> sqlite3.Connection:
        wait = None
        while (connection := self._try_begin()) is None:
            wait = wait or self._new_wait()
            wait.pause()
        return connection

    async def _begin_awaited(self) -> sqlite3.Connection:
        wait = None
        while (connection := self._try_begin()) is None:
            wait = wait or self._new_wait()
            await wait.pause_async()
        return connection

    def _try_begin(self) -> sqlite3.Connection | None:
        """Begin a writing transaction; return None if another process has one."""
        self._lock.acquire()
        try:
            if self._pid != os.getpid():
                self._reopen_if_forked()
            if self._connection.in_transaction:
                raise RuntimeError("A transaction can't begin within another one.")
            if self._take():
                return self._connection
        except BaseException as problem:
            self._lock.release()
            raise_as_state_error(self._path, problem, "written")
            raise
        self._lock.release()  # readers don't wait for another process's lock
        return None

    def _take(self) -> bool:
        """Begin a writing transaction, unless another process has one.

        SQLite's own lock makes it correct; the gate keeps writers from failing half-way.
        """
        if self._gate < 0:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._path))
        if not try_flock(self._gate):
            return False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException as problem:
            self._roll_back()
            fcntl.flock(self._gate, fcntl.LOCK_UN)
            if is_busy(problem):
                return False
            raise
        return True

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
            raise_as_state_error(self._path, failed, "written")
        finally:
            self._lock.release()
        if problem is not None:
            raise_as_state_error(self._path, problem, "written")
            return
        self._log.after_commit()
        if self._durability == "machine":
            with self._failing("synced"):
                self._sync.after_write()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _failing(self, done: str) -> Failing:
        return Failing(self._path, done)


class _Transaction:
    """The one transaction of a database at a time. A class, because a generator is slow."""

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


class _AwaitedTransaction:
    """The awaited transaction, begun without another coroutine if no other process writes."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __aenter__(self) -> sqlite3.Connection:
        database = self._database
        return database._try_begin() or await database._begin_awaited()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database._end(problem)


class _Part:
    """An operation of a transaction that is open already."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __aenter__(self) -> sqlite3.Connection:
        return self._database._begin_part()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is not None:
            self._database._fail_part(problem)
