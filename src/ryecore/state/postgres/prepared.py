"""Statements that are prepared once for each connection, and run without a cursor.

On the fast path a thread's transactions are one statement each, so its time on this machine is
mostly the driver's: a cursor adapts values by their types, and rows by theirs, for any statement.
These take a third of the time through psycopg's wrapper of libpq. The server knows each value's
type from the statement, so that values are sent as text; and no statement is prepared anew because
a number is larger than the one before.

Source: ADR 053.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import count
from typing import Any, Final, NamedTuple, cast

import anyio
import psycopg
from psycopg import errors

from ryecore.policy.cancelling import run_to_end
from ryecore.state.postgres.dialect import in_postgres
from ryecore.state.postgres.workers import CANCELLERS, GRACE_S, MustBlock, defer_cancellation

__all__ = ["PreparedRows", "PreparedStatements"]

_DONE: Final = (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK)


_MUST_PREPARE: Final = (errors.InvalidSqlStatementName, errors.FeatureNotSupported)
"""The errors for a statement that psycopg has dropped, and for one whose table has another column
since."""


class _Prepared(NamedTuple):
    """A statement on a connection: its name, and what its rows have, which its first result says.

    The columns are the places of their names; each has what reads it.
    """

    name: bytes
    columns: dict[str, int]
    readers: list[Callable[[bytes], Any]]


class PreparedRows(NamedTuple):
    """The rows that a statement has returned, with the places of their columns by name."""

    columns: Mapping[str, int]
    rows: list[tuple[Any, ...]]


class PreparedStatements:
    """The prepared statements of one connection, which is used by one thread at once."""

    def __init__(self, connection: "psycopg.Connection[Any]", cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._libpq = connection.pgconn
        self._encoding = connection.info.encoding
        self._numbers = count(1)
        self._known: dict[str, _Prepared] = {}

    def rows(self, sql: str, values: Sequence[Any]) -> PreparedRows:
        """Run a statement of the store as a transaction of its own, and return its rows.

        The values are texts, numbers, booleans, lists of numbers or None, and so are the rows'.

        Raises:
            psycopg.Error: The server refused it, or couldn't be reached.
        """
        sent = self._sent(values)
        prepared = self._known.get(sql) or self._prepare(sql)
        result = self._run(prepared, sent)
        if result.status not in _DONE:
            failure = self._failure(result)
            if not isinstance(failure, _MUST_PREPARE):
                raise failure
            self._known.clear()  # psycopg has dropped them all, as it does after a ROLLBACK
            prepared = self._prepare(sql)
            result = self._run(prepared, sent)
            if result.status not in _DONE:
                raise self._failure(result)
        return self._read(prepared, result)

    async def rows_awaited(self, sql: str, values: Sequence[Any]) -> PreparedRows:
        """Return the same to an event loop, which runs other tasks meanwhile.

        A cancelled caller waits for the statement, which is cancelled on the server after 250 ms.

        Raises:
            MustBlock: The statement isn't prepared yet. Nothing was done.
            psycopg.Error: The server refused it, or couldn't be reached.
        """
        prepared = self._known.get(sql)
        if prepared is None:
            raise MustBlock
        result = await self._run_awaited(prepared, self._sent(values))
        if result.status not in _DONE:
            failure = self._failure(result)
            if not isinstance(failure, _MUST_PREPARE):
                raise failure
            self._known.clear()  # as in `rows`
            raise MustBlock
        return self._read(prepared, result)

    async def _run_awaited(
        self, prepared: _Prepared, sent: list[bytes | None]
    ) -> psycopg.pq.abc.PGresult:
        results: list[psycopg.pq.abc.PGresult] = []
        self._libpq.send_query_prepared(prepared.name, sent)
        try:
            await self._receive(results)
        except anyio.get_cancelled_exc_class() as problem:
            was_cancelled = await self._finish(results)
            is_done = bool(results) and _outcome_of(results).status in _DONE
            if not defer_cancellation(problem) or (was_cancelled and not is_done):
                raise
        if not results:
            raise psycopg.OperationalError("the connection is lost")
        return _outcome_of(results)

    async def _receive(self, results: list[psycopg.pq.abc.PGresult]) -> None:
        """Send what isn't sent yet, and receive the rest of the results."""
        libpq = self._libpq
        while libpq.flush():
            await anyio.wait_writable(libpq.socket)
        while True:
            while libpq.is_busy():
                await _readable(libpq.socket)
                libpq.consume_input()
            result = libpq.get_result()
            if result is None:
                return
            results.append(result)

    async def _finish(self, results: list[psycopg.pq.abc.PGresult]) -> bool:
        """Receive the results for a cancelled caller; return whether they were cancelled."""
        was_cancelled = False

        async def finish() -> None:
            nonlocal was_cancelled
            try:
                while True:
                    with anyio.move_on_after(GRACE_S):
                        await self._receive(results)
                        return
                    was_cancelled = True
                    await CANCELLERS.run(self._cancel)
            except BaseException as problem:
                results.clear()  # what came before the commit may have been undone
                is_ended = was_cancelled and isinstance(problem, psycopg.Error)
                if not is_ended:  # `cancel` ends the connection where the server doesn't answer
                    raise

        with suppress(anyio.get_cancelled_exc_class()):  # once more
            await run_to_end(finish)
        return was_cancelled

    def _read(self, prepared: _Prepared, result: psycopg.pq.abc.PGresult) -> PreparedRows:
        count, columns, readers = result.ntuples, prepared.columns, prepared.readers
        if count and not readers:
            for place in range(result.nfields):
                columns[(result.fname(place) or b"").decode()] = place
                readers.append(self._reader_of(result.ftype(place)))
        rows = []
        for number in range(count):
            row = []
            for place, read in enumerate(readers):
                value = result.get_value(number, place)
                row.append(None if value is None else read(value))
            rows.append(tuple(row))
        return PreparedRows(columns, rows)

    def _sent(self, values: Sequence[Any]) -> list[bytes | None]:
        encoding, sent = self._encoding, list[bytes | None]()
        for value in values:
            kind = type(value)
            if value is None:
                sent.append(None)
            elif kind is int:
                sent.append(b"%d" % value)
            elif isinstance(value, str):
                if "\0" in value:
                    raise psycopg.DataError(
                        "PostgreSQL text fields cannot contain NUL (0x00) bytes"
                    )
                sent.append(value.encode(encoding))
            else:
                sent.append(_text_of(value))
        return sent

    def _run(self, prepared: _Prepared, sent: list[bytes | None]) -> psycopg.pq.abc.PGresult:
        return self._libpq.exec_prepared(prepared.name, cast("list[bytes]", sent))

    def _prepare(self, sql: str) -> _Prepared:
        first, *parts = in_postgres(sql).split("%s")
        query = first + "".join(f"${place}{part}" for place, part in enumerate(parts, 1))
        prepared = _Prepared(f"rye_{next(self._numbers)}".encode(), {}, [])
        result = self._libpq.prepare(prepared.name, query.encode(self._encoding))
        if result.status not in _DONE:
            raise self._failure(result)
        self._known[sql] = prepared
        return prepared

    def _failure(self, result: psycopg.pq.abc.PGresult) -> psycopg.Error:
        problem = errors.error_from_result(result, encoding=self._encoding)
        # Without a code, the connection has broken.
        return problem if problem.sqlstate else psycopg.OperationalError(str(problem))

    def _reader_of(self, oid: int) -> Callable[[bytes], Any]:
        return self._text if oid in _TEXTS else _READERS[oid]

    def _text(self, value: bytes) -> str:
        return value.decode(self._encoding)


def _text_of(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int | float):
        return repr(value).encode()
    if isinstance(value, list):
        return f"{{{','.join(map(repr, value))}}}".encode()
    raise TypeError(f"No statement of the store has a value such as {value!r}.")


async def _readable(descriptor: int) -> None:
    """Wait until a connection can be read; on asyncio in half of the time that anyio takes."""
    try:
        loop = None if asyncio.current_task() is None else asyncio.get_running_loop()
    except RuntimeError:  # another event loop
        loop = None
    if loop is None:
        await anyio.wait_readable(descriptor)
        return
    ready = loop.create_future()
    loop.add_reader(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _outcome_of(results: Sequence[psycopg.pq.abc.PGresult]) -> psycopg.pq.abc.PGresult:
    """Return a statement's result: its failure, if any, which may be that of its commit."""
    return next((one for one in results if one.status not in _DONE), results[0])


def _boolean(value: bytes) -> bool:
    return value == b"t"


def _decimal(value: bytes) -> Decimal:
    return Decimal(value.decode())


_TEXTS: Final = frozenset(psycopg.adapters.types[name].oid for name in ("text", "name", "varchar"))
_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    **{psycopg.adapters.types[name].oid: int for name in ("int2", "int4", "int8")},
    psycopg.adapters.types["float8"].oid: float,
    psycopg.adapters.types["bool"].oid: _boolean,
    psycopg.adapters.types["numeric"].oid: _decimal,
}
