"""A PostgreSQL schema that several machines write: its transactions and statements.

psycopg's plain connections are used in worker threads, so that the store works on every event loop
and in code that has none. A statement of the fast path is awaited by the event loop. Either way, a
started operation is finished, or undone, though its caller is cancelled.

A writing transaction first takes an advisory lock: that of the schema, as one of SQLite takes its
file's, or that of one tree of threads beside a share of the schema's. So what it has read stays
true until it commits, and both databases keep the rules with the same statements.

Source: decisions 35, 37, 38 and 77; ADR 039; ADR 044.
"""

from binascii import crc32
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from threading import local
from typing import Any, Final, TypeVar, cast

import psycopg

from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.budget_functions import FAST_PATH_MISS
from ryecore.state.postgres.failures import failure_of
from ryecore.state.postgres.fast_path import DeferredOperations, FastPathMiss
from ryecore.state.postgres.joining import Ahead, JoiningLog, tree_query
from ryecore.state.postgres.pool import ConnectionPool
from ryecore.state.postgres.schema import MIGRATIONS
from ryecore.state.postgres.session import Session
from ryecore.state.postgres.upgrade import UPGRADE_WAIT_S, upgrade, version_of
from ryecore.state.postgres.workers import MustBlock, await_or_work, in_worker
from ryecore.state.statements import Rows, Statements
from ryecore.state.waiting import run_blocking

__all__ = ["PostgresDatabase"]

# ruff: noqa: S608 - what is spliced into statements is this package's own constants

T = TypeVar("T")

_WRITING: Final = crc32(b"ryecore writers") & 0x7FFFFFFF
_IN_TREE: Final = crc32(b"ryecore trees") & 0x7FFFFFFF
_NOTHING: Final[AbstractContextManager[Ahead | None]] = nullcontext(None)


class _Current(local):
    """What the thread's operations belong to: a transaction of several operations, or none."""

    session: Session | None = None
    tree: str | None = None
    undone: BaseException | None = None
    deferred: DeferredOperations | None = None


class PostgresDatabase:
    """A schema of a database on a server. It connects when it is first used.

    Its methods block, except those that are awaited: `in_workers` makes parts of a store whose
    operations run in worker threads.
    """

    def __init__(self, address: PostgresAddress, place: str = "") -> None:
        self._address = address
        self.schema = address.schema
        self.shown = address.shown
        self.place = place
        """What tells this place's changes from those of others."""

        number = crc32(address.schema.encode()) >> 1
        self.lock = (_WRITING, number)
        """The numbers of the schema's advisory lock, which writing transactions hold or share."""

        self.tree_lock = (*self.lock, _IN_TREE ^ number)
        """The same, and the first number of the locks of its trees."""

        self.connections = ConnectionPool(address, place)
        self._current = _Current()
        self._joining: dict[str, JoiningLog] = {}

    # Transactions

    @contextmanager
    def write(self, tree: str | None = None) -> Iterator[Statements]:
        """Yield a writing transaction: committed at its end, rolled back by an exception.

        What the log of the thread `tree` has to write comes first in it.
        """
        session = self._running()
        if session is not None:
            if tree is None and self._current.tree is not None:
                raise RuntimeError("This operation reaches beyond the tree of its transaction.")
            with self._part(session):
                yield session
            return
        with (
            self.joined(tree) as ahead,
            self._failing("written"),
            self.connections.session() as session,
            session.transaction(),
        ):
            locked = self._lock(session, tree, ahead)
            yield session
            if ahead is not None and not locked.fetchone()[0]:
                raise ahead.refused()

    @property
    def deferred(self) -> DeferredOperations | None:
        """The operations that this thread's transaction has deferred; None where it runs each."""
        return self._current.deferred

    def _running(self) -> Session | None:
        """Return the transaction of several operations that this thread is in, if any."""
        if self._current.deferred is not None:
            raise FastPathMiss  # its results are needed now
        return self._current.session

    @property
    def holds_lock(self) -> bool:
        """Whether this thread is in a transaction of several operations, which has a lock."""
        return self._current.session is not None

    def join(self, thread_id: str, log: JoiningLog) -> None:
        """Let the next transaction of a thread's rows write what its log has to write."""
        self._joining[thread_id] = log

    def leave(self, thread_id: str, log: JoiningLog) -> None:
        """Forget a log that has nothing to write any more."""
        if self._joining.get(thread_id) is log:
            del self._joining[thread_id]

    def joined(
        self, thread_id: str | None, *, waits: bool = True
    ) -> AbstractContextManager[Ahead | None]:
        """Return what a thread's log has to write in the transaction within the block, if any."""
        # Within a transaction of several operations, it was written at its beginning.
        is_first = thread_id is not None and self._current.session is None
        log = self._joining.get(thread_id) if is_first and thread_id is not None else None
        return _NOTHING if log is None else log.joining(waits=waits)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Yield a transaction that writers of other rows don't wait for; see `write`."""
        with self._failing("written"), self.connections.session() as session:
            session.run("BEGIN")
            try:
                yield session
            except BaseException:
                session.roll_back()
                raise
            session.run("COMMIT")

    @contextmanager
    def statements(self, done: str) -> Iterator[Session]:
        """Yield a connection each of whose statements is a transaction of its own."""
        with self._failing(done), self.connections.session() as session:
            yield session

    def _lock(self, session: Session, tree: str | None, ahead: Ahead | None) -> Rows:
        """Take the lock of a thread's tree, or that of the schema; then write what goes ahead."""
        if tree is None:
            return session.execute("SELECT pg_advisory_xact_lock(?, ?)", self.lock)
        call, values = ("TRUE", ()) if ahead is None else (ahead.call, ahead.values)
        locked = f"SELECT {call} FROM lock_tree(?, ?, ?, ?, FALSE)"
        return session.execute(locked, (*values, *self.tree_lock, tree))

    @asynccontextmanager
    async def writing(self, tree: str | None = None) -> AsyncIterator[Statements]:
        """Yield the same to an operation, which awaits nothing else within it."""
        with self.write(tree) as run:
            yield run

    async def together(
        self, work: Callable[[], Coroutine[Any, Any, T]], tree: str | None = None
    ) -> T:
        """Run operations as one transaction; see `Transactions.together`."""
        if tree is not None and self._current.session is None:
            with suppress(FastPathMiss):
                return await self._as_one_call(work, tree)
        return await in_worker(lambda: self._one_by_one(work, tree))

    def _one_by_one(self, work: Callable[[], Coroutine[Any, Any, T]], tree: str | None) -> T:
        current = self._current
        with self.write(tree) as run:
            current.session, current.tree, current.undone = cast("Session", run), tree, None
            try:
                result = run_blocking(work())
                if current.undone is not None:
                    raise current.undone
            finally:
                current.session = current.tree = None
        return result

    async def _as_one_call(self, work: Callable[[], Coroutine[Any, Any, T]], tree: str) -> T:
        """Run operations as one call of a stored function.

        Raises:
            FastPathMiss: There is no function for them, or it has changed nothing.
        """
        current = self._current
        current.deferred = deferred = DeferredOperations(tree)
        try:
            result = run_blocking(work())
        finally:
            current.deferred = None
        function, values = deferred.as_call()
        if not await self.call_in_tree(tree, function, values):
            raise FastPathMiss
        return result

    async def operate(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an operation that blocks in a worker thread, if it is not in one."""
        return await in_worker(lambda: run_blocking(operation()))

    async def call_in_tree(self, thread_id: str, function: str, values: Sequence[Any]) -> Any:
        """Call a stored function, within the tree of a thread whose lock it shares.

        What the thread's log has to write is written before, in the same statement.
        """
        if self._current.deferred is not None:
            raise FastPathMiss  # before the log is asked, whose writer may wait for this loop
        return await await_or_work(
            self._awaited_in_tree, self._in_tree, thread_id, function, values
        )

    def _in_tree(self, thread_id: str, function: str, values: Sequence[Any]) -> Any:
        with self.joined(thread_id) as ahead:
            query, sent = tree_query(function, values, ahead, (*self.tree_lock, thread_id))
            is_written, result = self.read_row(query, sent)
            if ahead is not None and not is_written:
                raise ahead.refused()
            return result

    async def _awaited_in_tree(self, thread_id: str, function: str, values: Sequence[Any]) -> Any:
        session = await self.connections.borrow()
        try:
            with self.joined(thread_id, waits=False) as ahead:
                query, sent = tree_query(function, values, ahead, (*self.tree_lock, thread_id))
                is_written, result = await self.ask_for_row(session, query, sent)
                if ahead is not None and not is_written:
                    raise MustBlock  # the worker thread is refused, too, and looks for the reason
                return result
        finally:
            self.connections.give_back(session)

    @contextmanager
    def _part(self, session: Session) -> Iterator[None]:
        before = len(session.written)
        try:
            with self._failing("written"):
                yield
        except BaseException as problem:
            is_broken = isinstance(problem.__cause__, psycopg.Error)
            if is_broken or session.has_changed(before):
                self._current.undone = problem
            raise

    @contextmanager
    def look(self) -> Iterator[Statements]:
        """Yield a connection whose queries all see the same state."""
        running = self._running()
        if running is not None:
            yield running
            return
        with self._failing("read"), self.connections.session() as session:
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield session
            finally:
                with suppress(psycopg.Error):
                    session.run("COMMIT")  # after a ROLLBACK the driver drops what is prepared

    def read(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows that a query finds."""
        running = self._running()
        if running is not None:
            return running.execute(query, parameters).fetchall()
        with self._failing("read"), self.connections.session() as session:
            return session.rows(query, parameters)

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run one statement that needs no rules of others, and return how many rows it changed.

        It takes no lock but those of its rows, and is a transaction of its own.
        """
        running = self._running()
        if running is not None:
            return running.execute(statement, parameters).rowcount
        with self._failing("written"), self.connections.session() as session:
            return session.execute(statement, parameters).rowcount

    def put(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run one statement as `change` does, whatever it changes: in a transaction, unawaited."""
        running = self._running()
        if running is not None:
            running.execute(statement, parameters)
        else:
            self.change(statement, parameters)

    def read_row(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Run one statement as `change` does, and return its first row, if any."""
        running = self._running()
        if running is not None:
            return running.execute(query, parameters).fetchone()
        try:
            with self.connections.session() as session:
                return session.first(query, parameters)
        except psycopg.Error as problem:
            raise self._fast_path_failure(problem) from problem

    async def fetch_row(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the same to an operation, which the event loop awaits."""
        return await await_or_work(self._awaited_row, self.read_row, query, parameters)

    async def _awaited_row(self, query: str, parameters: Sequence[Any]) -> Any:
        session = await self.connections.borrow()
        try:
            return await self.ask_for_row(session, query, parameters)
        finally:
            self.connections.give_back(session)

    async def ask_for_row(self, session: Session, query: str, parameters: Sequence[Any]) -> Any:
        """Run one statement on a connection that was borrowed; return its first row, if any."""
        try:
            return await session.first_awaited(query, parameters)
        except psycopg.Error as problem:
            raise self._fast_path_failure(problem) from problem

    def _fast_path_failure(self, problem: psycopg.Error) -> BaseException:
        if problem.sqlstate == FAST_PATH_MISS:
            return FastPathMiss()
        return failure_of(self._address.shown, "written", problem)

    async def fetch(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows that a query finds to an operation, which the event loop may await."""
        return await await_or_work(self._awaited_rows, self.read, query, parameters)

    async def _awaited_rows(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        session = await self.connections.borrow()
        try:
            with self._failing("read"):
                return await session.rows_awaited(query, parameters)
        finally:
            self.connections.give_back(session)

    async def synced(self) -> None:
        """Wait until all commits are durable, as the server's `synchronous_commit` promises."""

    def close(self) -> None:
        """Close the connections. None is opened again."""
        self.connections.close()

    # The schema

    def set_up(self, *, wait_s: float = UPGRADE_WAIT_S) -> None:
        """Make or upgrade the schema, if need be; of several processes that do, one does it.

        Args:
            wait_s: The longest wait for those who use it, in seconds.

        Raises:
            StateLocked: Others kept it locked. Nothing was changed.
        """
        with self._failing("opened"), self.connections.session() as session:
            if version_of(session, self._address) < len(MIGRATIONS):
                upgrade(session, self._address, self.lock, wait_s)

    def version(self) -> int:
        """Return the version of the schema; 0 if there is none. A newer one is refused."""
        with self._failing("opened"), self.connections.session() as session:
            return version_of(session, self._address)

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as problem:
            raise failure_of(self._address.shown, done, problem) from problem
