"""The connections of a process to a PostgreSQL schema, which are kept for further statements.

Source: decision 77; ADR 039; ADR 055.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from ryecore.errors import StateError
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.connecting import connect
from ryecore.state.postgres.session import ServerClock, Session
from ryecore.state.postgres.workers import WORKERS, MustBlock, current_call

__all__ = ["ConnectionPool"]

_MAX_OUTAGE_S: Final = 20.0
"""How long a server is waited for that could be reached before, in seconds."""

_TRY_AGAIN_S: Final = 0.1


class ConnectionPool:
    """The connections to a schema. The first one is opened when it is needed.

    Args:
        address: The address.
        place: What tells this place's changes from those of others.
    """

    def __init__(self, address: PostgresAddress, place: str) -> None:
        self._address = address
        self._place = place
        self._pid = os.getpid()
        self._idle: deque[Session] = deque()
        self._abandoned: list[object] = []
        self._clock = ServerClock()
        self._is_closed = False
        self._was_reached = False

    def connect(self) -> "psycopg.Connection[Any]":
        """Return a new connection beside those of the pool, which the caller closes."""
        return connect(self._address, self._place)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Yield a connection that nobody else uses; a broken one isn't kept."""
        session, call = self._open_session(), current_call()
        try:
            if call is not None:
                call.use(session)
            yield session
        finally:
            if call is not None:
                call.leave()
            self.give_back(session)

    async def borrow(self) -> Session:
        """Return a connection for a statement that an event loop awaits; see `give_back`.

        Raises:
            MustBlock: None is idle, so that one has to be opened.
        """
        place = await WORKERS.take_place()
        try:
            session = None if self._clock.is_due() else self._idle_session()
            if session is None:
                raise MustBlock
        except BaseException:
            place.leave()
            raise
        session.place = place
        return session

    def give_back(self, session: Session) -> None:
        """Keep a connection for others, unless it is broken."""
        place, session.place = session.place, None
        status = session.connection.pgconn.transaction_status
        is_idle = status == psycopg.pq.TransactionStatus.IDLE
        if self._is_closed or session.was_cancelled or not is_idle:
            session.connection.close()
        else:
            self._idle.append(session)
        if place is not None:
            place.leave()  # which fails where its event loop is closed

    def close(self) -> None:
        """Close the connections. None is opened again."""
        self._is_closed = True
        if self._pid == os.getpid():
            while self._idle:
                self._idle.pop().connection.close()

    def _open_session(self) -> Session:
        """Return a connection on which nothing was sent yet.

        A server that could be reached before is waited for: most often it is restarted.
        """
        until_s = time.monotonic() + _MAX_OUTAGE_S
        while True:
            try:
                session = self._idle_session() or Session(self.connect(), self._clock)
                session.read_clock()
            except psycopg.OperationalError:
                if not self._was_reached or time.monotonic() > until_s:
                    raise
                if (call := current_call()) is not None:
                    call.check()
                time.sleep(_TRY_AGAIN_S)
            else:
                self._was_reached = True
                return session

    def _idle_session(self) -> Session | None:
        if self._is_closed:
            raise StateError(f"{self._address.shown} was closed.", next_step="Open another Rye.")
        if self._pid != os.getpid():  # a forked child must not touch its parent's connections
            self._abandoned.append(self._idle)
            self._idle, self._pid = deque(), os.getpid()
        while self._idle:
            with suppress(IndexError):
                session = self._idle.pop()
                if session.is_alive():
                    return session
                session.connection.close()
        return None
