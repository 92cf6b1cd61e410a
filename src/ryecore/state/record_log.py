"""The records of threads, as every store provides them: in order, durable, signed by checkpoints.

A thread has one log and one writer. A record is kept in memory until a commit; a checkpoint closes
a turn with a signed digest of everything before it. What a process that was killed left behind is
resumed: the records behind the last checkpoint stay, and the next checkpoint says that nobody
attests them.

Source: docs/design/threads.md#storage; decisions 38, 47 and 77.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from ryecore.state.transcript import Recovery
from ryecore.state.transcript_format import Head, Record
from ryecore.state.transcript_report import TranscriptReport

__all__ = ["RecordLog", "RecordStore"]


class RecordLog(Protocol):
    """The one writer of a thread's records."""

    @property
    def offset(self) -> int:
        """The position behind the last committed record."""
        ...

    def append(self, event_type: str, payload: Mapping[str, Any], /) -> None:
        """Keep a record in memory for the next commit.

        Args:
            event_type: Its type.
            payload: The rest, JSON-ready. It is read before this returns.

        Raises:
            StateError: It is too large.
        """
        ...

    async def commit(self) -> None:
        """Write the records that are kept, in their order.

        They survive what the store's durability names once this returns.

        Raises:
            StateError: They can't be written. They are kept, and the next commit tries again.
        """
        ...

    async def checkpoint(self, turn: int) -> Head:
        """Close a turn: write the records that are kept, and a signed checkpoint behind them.

        Args:
            turn: The turn.

        Returns:
            The head of the chain of checkpoints, for the registry.

        Raises:
            StateError: It can't be written; the next one tries again.
        """
        ...

    async def close(self) -> None:
        """Commit, and let another writer resume the log; a second time does nothing.

        Raises:
            StateError: The records that were kept can't be written. The log is closed all the same.
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
            head: Offset and digest of the last checkpoint that the registry knows, which the log
                must hold.

        Returns:
            The log, and what was found in it.

        Raises:
            StateLocked: Another process writes it.
            StateError: There is none, or it isn't what was signed.
        """
        ...

    def read(
        self, thread_id: str, *, from_offset: int = 0, to_offset: int | None = None
    ) -> AsyncGenerator[Record, None]:
        """Read a thread's committed records, in the order in which they were appended.

        Args:
            thread_id: The thread.
            from_offset: Where to begin: a record's `offset` or `end`.
            to_offset: Where to stop; the end by default.

        Yields:
            Each record, checkpoints included.

        Raises:
            StateError: There is no log, or it can't be read.
        """
        ...

    async def verify(
        self, thread_id: str, head: tuple[int, str] | None = None, *, ended: bool
    ) -> TranscriptReport:
        """Prove a thread's log by its checkpoints.

        Args:
            thread_id: The thread.
            head: Offset and digest of the last checkpoint that the registry knows.
            ended: Whether the thread has ended, so that nothing may stand behind the last
                checkpoint.

        Returns:
            What is proved, turn by turn; a missing log is reported as well.
        """
        ...
