"""Thread: the handle of a directive's thread that was started."""

import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ryecore.policy.budget import Amount
from ryecore.state.model import ThreadRecord
from ryecore.state.signs import Signs
from ryecore.state.transcript_check import Record, read_records
from ryecore.threads.continuing import TRANSCRIPT
from ryecore.threads.events import ThreadEvent
from ryecore.threads.host import ThreadHost
from ryecore.threads.result import ThreadResult
from ryecore.threads.view import render_tree
from ryecore.threads.watching import load_tree

if TYPE_CHECKING:
    pass

__all__ = ["Thread"]

_LOOK_AGAIN_S: Final = 0.2
_COLUMNS: Final = 100


class Thread:
    """A directive's thread: what happens in it, what comes of it, and what it costs.

    `Rye.start` makes it. It goes on whether somebody listens or not, until it ends, is cancelled,
    or the Rye is closed.

    Attributes:
        thread_id: What `rye.threads` and `rye threads` know it by.
        item_id: The directive, as a canonical ref.
    """

    def __init__(self, host: ThreadHost, thread_id: str, item_id: str) -> None:
        self._host = host
        self._result: ThreadResult | None = None
        self._failed: Exception | None = None
        self._ended = anyio.Event()
        self.thread_id = thread_id
        self.item_id = item_id

    @property
    def record(self) -> ThreadRecord:
        """Its row in the registry, as it is now."""
        return self._host.store.look(self.thread_id)

    @property
    def status(self) -> str:
        """Where it stands: created, running, completed, error, cancelled, continued or killed."""
        return self.record.status

    @property
    def cost(self) -> Amount:
        """The money and the tokens that it and all below it have used so far."""
        return self._host.ledger.tree(self.thread_id).spent

    @property
    def children(self) -> tuple[ThreadRecord, ...]:
        """The threads that it has started, oldest first."""
        return self._host.registry.list_children(self.thread_id)

    async def result(self) -> ThreadResult:
        """Wait until it has ended, and all that goes on with it.

        Returns:
            What came of it; of the last thread, where it was handed off.

        Raises:
            RyeError: It ended, but that could not be written.
        """
        await self._ended.wait()
        if self._result is None:
            raise self._failed or RuntimeError("It ended without a word.")
        return self._result

    def cancel(self) -> None:
        """Ask it, and all below it, to stop. It doesn't wait for that."""
        running = self._host.running.get(self.thread_id)
        if running is not None:
            running.cancellation.cancel()
        self._host.store.cancel(self.thread_id)

    async def events(self, *, from_start: bool = True) -> AsyncGenerator[ThreadEvent, None]:
        """What happens in it, until it has ended: the transcript so far, and then live.

        Args:
            from_start: Whether to begin with what has happened already.

        Yields:
            The records of its transcript. Live, text comes as it is streamed; of what is past, in
            larger pieces.
        """
        running = self._host.running.get(self.thread_id)
        path = self._host.store.folder_of(self.thread_id) / TRANSCRIPT
        if running is None or running.recorder is None:
            async for event in self._followed(from_start=from_start):
                yield event
            return
        offset, live = running.recorder.listen()
        if from_start:
            for record in read_records(path, to_offset=offset):
                yield _event(record)
        async for envelope in live:
            if hasattr(envelope, "event"):
                yield envelope.event

    async def _followed(self, *, from_start: bool) -> AsyncGenerator[ThreadEvent, None]:
        """The events of a thread that runs in another process, or nowhere any more."""
        folder = self._host.store.folder_of(self.thread_id)
        path, offset = folder / TRANSCRIPT, 0
        if not from_start and path.exists():
            offset = path.stat().st_size
        async with Signs(folder) as watched:
            while True:
                ended = (await anyio.to_thread.run_sync(lambda: self.record)).ended
                for record in read_records(path, from_offset=offset) if path.exists() else ():
                    offset = record.end
                    yield _event(record)
                if ended:
                    return
                await watched.changed(_LOOK_AGAIN_S)

    def settle(self, result: ThreadResult | None, failed: Exception | None) -> None:
        """Say how it ended. The service calls this."""
        self._result, self._failed = result, failed
        self._ended.set()

    def __repr__(self) -> str:
        return f"Thread({self.thread_id!r})"

    def _repr_html_(self) -> str:
        tree = load_tree(self._host.store, self.thread_id)
        return render_tree([tree], width=_COLUMNS, now=time.time()).html()


def _event(record: Record) -> ThreadEvent:
    return ThreadEvent(record.thread_id, record.timestamp, record.type, record.payload)
