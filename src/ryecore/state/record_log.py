"""The records of threads, as every store provides them: in order, durable, signed by checkpoints.

A thread has one log and one writer. A record is buffered until a commit; a checkpoint closes a turn
with a signed digest of everything before it. A log whose writer was killed can be resumed: the
records after the last checkpoint stay, and the next checkpoint marks them as unattested.

Source: docs/design/threads.md#storage; decisions 38, 47 and 77.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from ryecore.frozen import frozen
from ryecore.state.transcript_format import Head, Record
from ryecore.state.transcript_report import TranscriptReport, Unit

__all__ = ["RecordLog", "RecordStore", "Recovery"]


@frozen
class Recovery:
    """The state of a log when it was resumed.

    Attributes:
        head: Its last checkpoint; None if it has none.
        turn: The turn that this checkpoint closes; 0 for none.
        last_type: The type of the last record that isn't a checkpoint; empty if there is none.
        tail_records: The number of records after the last checkpoint. They are kept, and the next
            checkpoint marks them as unattested.
        is_torn: Whether bytes after the last whole record were dropped.
    """

    head: Head | None
    turn: int
    last_type: str
    tail_records: int
    is_torn: bool


class RecordLog(Protocol):
    """The one writer of a thread's records."""

    @property
    def offset(self) -> int:
        """The position after the last committed record."""
        ...

    def append(self, event_type: str, payload: Mapping[str, Any], /) -> None:
        """Buffer a record for the next commit.

        Args:
            event_type: Its type.
            payload: The rest, JSON-ready. It is read before this returns.

        Raises:
            StateError: It is too large.
        """
        ...

    def append_delta(self, text: str, /) -> None:
        """Append a piece of streamed text.

        The pieces between two records become one or more records of the type `token_delta`. The
        store chooses when it writes them, by the next commit at the latest, and doesn't sync them.

        Raises:
            StateError: Pieces can't be written. They stay buffered.

        Source: decision 47.
        """
        ...

    async def flush(self) -> None:
        """Write the buffered records, in order.

        Once this returns, they survive the death of the process, and from the next commit on
        whatever a commit survives.

        Raises:
            StateError: They can't be written. They stay buffered, and the next flush tries again.
        """
        ...

    async def write_ahead(self, *, closes: bool = False) -> None:
        """Write the buffered records, in order, before rows that depend on them, or with them.

        Once a later transaction of the registry or the ledger has written rows of this thread,
        they are written, too, and survive what the rows survive: such as a loss of power, once the
        registry was awaited to be `synced` after it. Until then they may be buffered still.

        Args:
            closes: Whether these are the last records, so that the log may be released with them.

        Raises:
            StateError: They can't be written. They stay buffered, and the next commit tries again.
        """
        ...

    async def write_soon(self) -> None:
        """Write the buffered records, in order, with the next write, or within a tenth of a second.

        Those that `write_ahead` takes next may wait a second for their rows. It is for records that
        no effect follows, such as those that the next ones follow at once.
        """
        ...

    async def commit(self) -> None:
        """Write the buffered records, in order, before an effect that they announce.

        Once this returns, they have the store's durability.

        Raises:
            StateError: They can't be written. They stay buffered, and the next commit tries again.
        """
        ...

    async def checkpoint(self, turn: int) -> Head:
        """Close a turn: write the buffered records, and a signed checkpoint after them.

        Once this returns, they survive the death of the process, and from the next commit on
        whatever a commit survives.

        Args:
            turn: The turn.

        Returns:
            The head of the chain of checkpoints, for the registry.

        Raises:
            StateError: It can't be written; the next one tries again.
        """
        ...

    async def sign(self, turn: int) -> Head:
        """Close a turn as `checkpoint` does, but write it as `write_soon` does."""
        ...

    async def close(self) -> None:
        """Commit, and release the log for another writer. A second call does nothing.

        Raises:
            StateError: The buffered records can't be written. The log is closed all the same.
        """
        ...


class RecordStore(Protocol):
    """The logs of a project's threads."""

    async def create(self, thread_id: str) -> RecordLog:
        """Begin a thread's log.

        Raises:
            StateError: It exists already, or can't be made.
        """
        ...

    async def resume(
        self, thread_id: str, head: tuple[int, str] | None = None
    ) -> tuple[RecordLog, Recovery]:
        """Open the log of a thread whose writer is gone.

        Args:
            thread_id: The thread.
            head: The offset and digest of the last checkpoint in the registry, which the log must
                have.

        Returns:
            The log, and its state at the recovery.

        Raises:
            StateLocked: Another process writes it.
            StateError: The log is missing, or isn't as it was signed.
        """
        ...

    async def exists(self, thread_id: str) -> bool:
        """Return whether a thread has a log, which may be unreadable."""
        ...

    def read(
        self, thread_id: str, *, from_offset: int = 0, to_offset: int | None = None
    ) -> AsyncGenerator[Record, None]:
        """Read a thread's committed records, in the order in which they were appended.

        Args:
            thread_id: The thread.
            from_offset: The start: a record's `offset` or `end`.
            to_offset: The end; by default that of the log.

        Yields:
            Each record, checkpoints included.

        Raises:
            StateError: The log is missing, or can't be read.
        """
        ...

    def read_proved(
        self, thread_id: str, head: tuple[int, str] | None, *, ended: bool
    ) -> AsyncGenerator[Record, None]:
        """Read a thread's records, and prove them by their checkpoints.

        The proof is complete once the last record is read. Until then, none may have an effect.

        Args:
            thread_id: The thread.
            head: The offset and digest of the last checkpoint in the registry.
            ended: Whether the thread has ended, so that all must be signed.

        Yields:
            Each record, checkpoints included; of a thread that hasn't ended, also those after the
            last checkpoint.

        Raises:
            StateError: The log is missing, can't be read, was altered or cut, or has records after
                its end.

        Source: decision 47.
        """
        ...

    def follow(
        self,
        thread_id: str,
        has_ended: Callable[[], Awaitable[bool]],
        *,
        from_start: bool = True,
        follow: bool = True,
    ) -> AsyncGenerator[Record, None]:
        """Read the records of a thread that runs anywhere, as they are committed.

        Args:
            thread_id: The thread. Its log may be missing until the thread has begun.
            has_ended: Returns whether the thread has ended.
            from_start: Whether to begin with the existing records.
            follow: Whether to wait for more until the thread has ended.

        Yields:
            Each record, checkpoints included.

        Raises:
            StateError: The log can't be read.
        """
        ...

    async def verify(
        self,
        thread_id: str,
        head: tuple[int, str] | None = None,
        *,
        ended: bool,
        unit: Unit = "turn",
    ) -> TranscriptReport:
        """Check a thread's log by its checkpoints.

        Args:
            thread_id: The thread.
            head: The offset and digest of the last checkpoint in the registry.
            ended: Whether the thread has ended, so that nothing may follow the last checkpoint,
                unless its writer is still alive.
            unit: The word for a turn.

        Returns:
            The result, turn by turn; a missing log is reported as well.
        """
        ...
