"""One connection to a PostgreSQL server, on which the store's statements run.

In a writing transaction they are pipelined: a statement is sent without waiting for the one before
it, until somebody looks at a result. So what the rules don't look at costs no round trip.

Source: decision 77; ADR 039.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from ryecore.state.postgres.dialect import NamedRow, in_postgres
from ryecore.state.postgres.prepared import PreparedRows, PreparedStatements
from ryecore.state.statements import DatabaseTime, Rows
from ryecore.state.waiting import WorkerPlace

__all__ = ["ServerClock", "Session", "value_of"]

_CLOCK: Final = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
_CLOCK_EVERY_S: Final = 30.0
_CLOCK_TOLERANCE_S: Final = 1.0
"""How far clocks may be apart unnoticed, which a lease's tolerance covers."""
_CANCEL_S: Final = 2.0
_TIMES: Final = ("lease_until", "deadline")
"""The columns with times by the server's clock."""


class ServerClock:
    """How far a server's clock is ahead of this machine's.

    It changes only when one of the clocks was set, so that a row that is read twice is the same.
    """

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.read_at = -_CLOCK_EVERY_S
        self._was_set_s = 0.0

    def is_due(self) -> bool:
        """Return whether it hasn't been read lately, or this machine's clock was set since."""
        now_s = time.monotonic()
        was_set = abs(time.time() - now_s - self._was_set_s) > _CLOCK_TOLERANCE_S
        return was_set or now_s - self.read_at > _CLOCK_EVERY_S

    def set(self, server_s: float) -> None:
        """Compare the clocks, now that the server has told its time."""
        ahead_s = server_s - time.time()
        if abs(ahead_s - self.ahead_s) > _CLOCK_TOLERANCE_S:
            self.ahead_s = ahead_s
        self.read_at = time.monotonic()
        self._was_set_s = time.time() - self.read_at


class Session:
    """A connection that runs the store's statements."""

    def __init__(self, connection: "psycopg.Connection[Any]", clock: ServerClock) -> None:
        self.connection = connection
        connection.row_factory = self._rows
        self.written: list[psycopg.Cursor[Any]] = []
        """The statements of the current transaction that may have changed something."""

        self.was_cancelled = False
        """Whether a statement was cancelled; a late cancellation might hit another statement."""

        self.place: WorkerPlace | None = None
        """The place of a worker that it takes, while an event loop uses it."""

        self._pipeline: psycopg.Pipeline | None = None
        self._clock = clock
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        self._prepared = PreparedStatements(connection, self.cancel)

    def first(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Run a statement of the store by itself, prepared, and return its first row, if any."""
        return _first_of(self._prepared.rows(sql, self._stored(parameters)))

    async def first_awaited(
        self, sql: str, parameters: Sequence[Any] = ()
    ) -> tuple[Any, ...] | None:
        """Return the same to an event loop; see `PreparedStatements.rows_awaited`."""
        return _first_of(await self._prepared.rows_awaited(sql, self._stored(parameters)))

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[NamedRow]:
        """Run a statement of the store by itself, prepared, and return its rows."""
        return self._named(self._prepared.rows(sql, self._stored(parameters)))

    async def rows_awaited(self, sql: str, parameters: Sequence[Any] = ()) -> list[NamedRow]:
        """Return the same to an event loop; see `PreparedStatements.rows_awaited`."""
        return self._named(await self._prepared.rows_awaited(sql, self._stored(parameters)))

    def _named(self, found: PreparedRows) -> list[NamedRow]:
        return list(map(self._row_maker(found.columns), found.rows))

    def _stored(self, parameters: Sequence[Any]) -> list[Any]:
        ahead_s = self._clock.ahead_s
        return [one + ahead_s if isinstance(one, DatabaseTime) else one for one in parameters]

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Run a statement of the store; ends of leases are stored by the server's clock."""
        # The server refuses a prepared one for ever once its table has another column, as after an
        # upgrade by a newer version.
        prepare = False if "SELECT *" in sql else None
        values = self._stored(parameters)
        cursor = self.connection.execute(in_postgres(sql).encode(), values or None, prepare=prepare)
        if self._pipeline is None:
            rows: Rows = cursor
            return rows
        if not sql.startswith("SELECT"):
            self.written.append(cursor)
        return _PipelineRows(cursor)

    def run(
        self, sql: str, values: Sequence[Any] = (), *, binary: bool = False
    ) -> "psycopg.Cursor[Any]":
        """Run a statement in PostgreSQL's words; its rows come as text, unless they are binary."""
        return self.connection.execute(sql.encode(), values or None, binary=binary)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction: committed at the end of the block, rolled back by an exception.

        Its statements are sent without waiting for each, until a result is looked at. The server
        takes those between two syncs as a transaction, as its documentation of pipelining says, so
        that nothing is sent to begin and end it.
        """
        self.written = []
        if not psycopg.Pipeline.is_supported():  # an old libpq
            self.run("BEGIN")
            try:
                yield
            except BaseException:
                self.roll_back()
                raise
            self.run("COMMIT")
            return
        failed: BaseException | None = None
        try:
            with self.connection.pipeline() as self._pipeline:
                try:
                    yield
                except BaseException as problem:
                    failed = problem
                    with suppress(psycopg.Error):
                        self.run("BEGIN")  # the transaction has an end of its own from here on
                    self.roll_back()
        except psycopg.Error:
            # The driver logs this where it is told of another error, so it isn't told: most often
            # both report a lost connection.
            if failed is None:
                raise
        finally:
            self._pipeline = None
        if failed is not None:
            raise failed

    def has_changed(self, before: int) -> bool:
        """Return whether a statement of the transaction has changed rows, from a number on."""
        try:
            return any(_rowcount(one) > 0 for one in self.written[before:])
        except psycopg.Error:
            return True

    def roll_back(self) -> None:
        """End a transaction without its changes."""
        with suppress(psycopg.Error):  # a lost connection has rolled back already
            self.run("ROLLBACK")

    def cancel(self) -> None:
        """Have the server end the current statement, from another thread.

        Where it can't be asked, the connection is ended, as if the network had cut it.
        """
        self.was_cancelled = True
        try:
            self.connection.cancel_safe(timeout=_CANCEL_S)
        except psycopg.Error:
            with (
                suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(self.connection.fileno())) as connected,
            ):
                connected.shutdown(socket.SHUT_RDWR)

    def is_alive(self) -> bool:
        """Return whether the server hasn't closed an idle connection, without asking it."""
        if self.connection.closed:
            return False
        # An idle connection is sent nothing but its end.
        return not self._poll.poll(0)

    def read_clock(self) -> None:
        """Read the server's clock, unless that was done within the last seconds."""
        if self._clock.is_due():
            self._clock.set(value_of(self.run(_CLOCK)))

    def _rows(self, cursor: "psycopg.Cursor[Any]") -> Callable[[Sequence[Any]], NamedRow]:
        result = cursor.pgresult
        if result is None:
            return self._row_maker({})
        # `cursor.description` has more than names, and takes ten times as long.
        places = range(result.nfields)
        return self._row_maker({(result.fname(one) or b"").decode(): one for one in places})

    def _row_maker(self, names: Mapping[str, int]) -> Callable[[Sequence[Any]], NamedRow]:
        """Return what makes rows of values, with their times by this machine's clock."""
        times = [names[one] for one in _TIMES if one in names]

        def make(values: Sequence[Any]) -> NamedRow:
            if times:
                values = [*values]
                for one in times:
                    if values[one] is not None:
                        values[one] -= self._clock.ahead_s
            return NamedRow(names, tuple(values))

        return make


def _first_of(found: PreparedRows) -> tuple[Any, ...] | None:
    return found.rows[0] if found.rows else None


class _PipelineRows:
    """The result of a statement that may not have come yet."""

    def __init__(self, cursor: "psycopg.Cursor[Any]") -> None:
        self._cursor = cursor
        self.fetchone = cursor.fetchone
        self.fetchall = cursor.fetchall

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    @property
    def rowcount(self) -> int:
        return _rowcount(self._cursor)


def _rowcount(cursor: "psycopg.Cursor[Any]") -> int:
    """Return how many rows a statement has changed, once that is known."""
    if cursor.pgresult is None:  # in a pipeline
        try:
            cursor.scroll(0)  # waits for its result, and those before
        except (psycopg.ProgrammingError, IndexError):  # it has no rows
            if cursor.pgresult is None:
                raise
    return cursor.rowcount


def value_of(cursor: "psycopg.Cursor[Any]") -> Any:
    """Return the one value of a query."""
    ((value,),) = cursor.fetchall()
    return value
