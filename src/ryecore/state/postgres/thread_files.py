"""The signed files of threads on a PostgreSQL server.

Source: docs/design/threads.md#the-threads-file; decision 77.
"""

from typing import Final

from ryecore.errors import StateError, ThreadConflict
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.workers import in_worker

__all__ = ["PostgresThreadFiles"]

_PUT: Final = (
    "INSERT INTO thread_files (thread_id, body) SELECT CAST(? AS text), CAST(? AS text)"
    " WHERE NOT EXISTS (SELECT 1 FROM threads WHERE thread_id = ? AND completed_at IS NOT NULL)"
    " ON CONFLICT (thread_id) DO UPDATE SET body = excluded.body"
)
_END: Final = "UPDATE thread_files SET body = ? WHERE thread_id = ?"


class PostgresThreadFiles:
    """The signed files of a project's threads, each a text by the thread's id."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def name_of(self, thread_id: str) -> str:
        """Return what a message calls a thread's file."""
        return f"The file of {thread_id} on {self._database.shown}"

    async def put(self, thread_id: str, content: bytes) -> None:
        """Write the file of a thread that hasn't ended; by its owner."""
        values = (thread_id, content.decode(), thread_id)
        if not await in_worker(lambda: self._database.change(_PUT, values)):
            raise ThreadConflict(
                f"{self.name_of(thread_id)} can't be written: the thread has ended.",
                next_step=f"See what became of it: rye threads show {thread_id}",
                thread_id=thread_id,
                state="ended",
            )

    async def end(self, thread_id: str, content: bytes) -> None:
        """Write the file of a thread that has ended, if it has one."""
        text, deferred = content.decode(), self._database.deferred
        if deferred is None or not deferred.defer_file(thread_id, text):
            await in_worker(lambda: self._database.put(_END, (text, thread_id)))

    async def get(self, thread_id: str) -> bytes:
        """Return the file of a thread; StateError where it has none."""
        query = "SELECT body FROM thread_files WHERE thread_id = ?"
        rows = await in_worker(lambda: self._database.read(query, (thread_id,)))
        if not rows:
            raise StateError(
                f"{self.name_of(thread_id)} can't be read: there is none.",
                next_step="See which threads there are: rye threads list --all",
            )
        return str(rows[0]["body"]).encode()
