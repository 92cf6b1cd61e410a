"""Notices of changes that other machines made, by LISTEN and NOTIFY.

The server's triggers tell of each end of a thread, each request to stop or hand off, and each
answer to an approval. A thread of this process listens, and wakes those who watch the folders of
threads here. Nobody relies on it alone: who waits looks again from time to time, too.

Source: docs/how-to/share-state-on-postgresql.md.
"""

import os
import select
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Final

import psycopg

from ryecore.caches import BoundedDict
from ryecore.errors import RyeError
from ryecore.state.postgres.database import PostgresDatabase

__all__ = ["Notices"]

_MAX_WATCHED: Final = 10_000
_TRY_AGAIN_MS: Final = 5_000
_ENDING_S: Final = 1.0


class Notices:
    """Listens to one schema, from the first time that somebody watches a thread."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._lock = Lock()
        self._watched: BoundedDict[str, bool] = BoundedDict(_MAX_WATCHED)
        self._listener: tuple[int, int, Thread] | None = None  # process, end of a pipe, thread

    def listen(self, thread_id: str | None, wake: Callable[[str | None], None]) -> None:
        """Wake those who watch a thread, or the requests to all (None), from now on.

        Args:
            thread_id: The thread.
            wake: Called in a thread with what has changed: a thread, or requests (None).
        """
        with self._lock:
            if thread_id is not None:
                self._watched[thread_id] = True
            if self._listener is None or self._listener[0] != os.getpid():
                ended, end = os.pipe()
                thread = Thread(
                    target=self._listen, args=(ended, wake), name="ryecore notices", daemon=True
                )
                self._listener = (os.getpid(), end, thread)
                thread.start()

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None and listener[0] == os.getpid():
            _, end, thread = listener
            os.write(end, b".")  # a forked child may have the pipe, too
            os.close(end)
            thread.join(_ENDING_S)

    def _listen(self, ended: int, wake: Callable[[str | None], None]) -> None:
        try:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            while True:
                with suppress(psycopg.Error, RyeError):  # the server is away: waits look again
                    if self._listen_once(ended, wake):
                        return
                if poll.poll(_TRY_AGAIN_MS):
                    return
        finally:
            os.close(ended)

    def _listen_once(self, ended: int, wake: Callable[[str | None], None]) -> bool:
        """Listen until the connection or the listening ends; return whether it was the latter."""
        with self._database.connections.connect() as connection:
            connection.execute(f'LISTEN "{self._database.schema}"'.encode())
            with self._lock:
                watched = tuple(self._watched)
            for thread_id in (None, *watched):  # what was missed until now
                wake(thread_id)
            poll = select.poll()
            for descriptor in (ended, connection.fileno()):
                poll.register(descriptor, select.POLLIN)
            while True:
                if any(descriptor == ended for descriptor, _ in poll.poll()):
                    return True
                connection.pgconn.consume_input()
                while (notice := connection.pgconn.notifies()) is not None:
                    self._hear(bytes(notice.extra).decode(), wake)

    def _hear(self, told: str, wake: Callable[[str | None], None]) -> None:
        place, kind, thread_id = told.split(" ", 2)
        if place == self._database.place:
            return  # its processes have woken each other by its folders
        if thread_id in self._watched:
            wake(thread_id)
        if kind == "requested":
            wake(None)
