"""Thread: the handle of a directive's thread that was started."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import anyio
from attrs import evolve

from ryecore.display.text import StyledText
from ryecore.errors import BudgetNotRegistered
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.events import EventsMissed
from ryecore.state.model import ThreadRecord
from ryecore.state.record_stream import follow_records, stream_records
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript_check import Record
from ryecore.state.waiting import run_in_thread
from ryecore.threads.events import ThreadEvent
from ryecore.threads.host import ThreadHost
from ryecore.threads.loop.recorder import Recorder
from ryecore.threads.rendering import render_tree
from ryecore.threads.result import ThreadResult, kept_result
from ryecore.threads.tree import load_tree

__all__ = ["Thread"]

_COLUMNS: Final = 80
_MOST_WAIT_S: Final = 0.2


class Thread:
    """A directive's thread: what happens in it, what comes of it, and what it costs.

    `Rye.start` makes it. It goes on whether somebody listens or not, until it ends, is cancelled,
    or the Rye is closed.

    Attributes:
        thread_id: What `rye.threads` and `rye threads` know it by.
        item_id: The directive, as a canonical ref.
    """

    def __init__(
        self, host: ThreadHost, thread_id: str, item_id: str, *, is_settled: bool = False
    ) -> None:
        self._host = host
        self._result: ThreadResult | None = None
        self._failed: Exception | None = None
        self._ended = anyio.Event() if is_settled else None  # else the registry knows
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
        """The money and the tokens that it, what it was handed off to, and all below have used."""
        cost, thread_id = NOTHING, self.thread_id
        while thread_id:
            cost += self._spent(thread_id)
            following = self._host.registry.get_thread(thread_id).continuation_thread_id
            thread_id = following or ""
        return cost

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
        if self._ended is None:
            return await self._looked_up()
        await self._ended.wait()
        if self._result is None:
            raise self._failed or RuntimeError("It ended without a result.")
        return self._result

    def cancel(self) -> None:
        """Ask it, what goes on with it, and all below, to stop. It doesn't wait for that.

        Raises:
            StateError: The wish can't be written, so that other processes don't know of it.
        """
        thread_id: str | None = self.thread_id
        while thread_id is not None:
            running = self._host.running.get(thread_id)
            if running is not None:
                running.cancellation.cancel()
            thread_id = self._host.store.cancel(thread_id).continuation_thread_id

    async def events(
        self, *, from_start: bool = True, follow: bool = True
    ) -> AsyncGenerator[ThreadEvent, None]:
        """What happens in it, until it has ended: the transcript so far, and then live.

        Args:
            from_start: Whether to begin with what has happened already.
            follow: Whether to go on until it has ended; else what has happened so far is all.

        Yields:
            The records of its transcript. Live, text comes as it is streamed; of what is past, in
            larger pieces.
        """
        running = self._host.running.get(self.thread_id)
        if running is None or running.recorder is None:
            events = self._followed(from_start=from_start, follow=follow)
        else:
            events = self._live(running.recorder, from_start=from_start, follow=follow)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()  # a reader that leaves leaves nothing behind

    async def _live(
        self, recorder: Recorder, *, from_start: bool, follow: bool
    ) -> AsyncGenerator[ThreadEvent, None]:
        """The events of a thread that runs here. What a slow reader misses is in the transcript."""
        path = self._host.store.folder_of(self.thread_id) / TRANSCRIPT
        offset, live = recorder.listen()
        place = _Place(offset)
        if from_start:
            async with aclosing(stream_records(path, to_offset=offset)) as records:
                async for record in records:
                    yield _event(record)
        if not follow:
            return
        while True:
            async for envelope in live:
                if isinstance(envelope, EventsMissed):
                    break
                place.pass_by(envelope.event)
                yield envelope.event
            else:
                return
            until = None if recorder.is_closed else recorder.listen()
            missed = stream_records(
                path, from_offset=place.offset, to_offset=until[0] if until else None
            )
            async with aclosing(missed) as records:
                async for record in records:
                    event = place.beyond(_event(record))
                    if event is not None:
                        yield event
            if until is None:
                return
            offset, live = until
            place = _Place(offset)

    async def _followed(
        self, *, from_start: bool, follow: bool
    ) -> AsyncGenerator[ThreadEvent, None]:
        """The events of a thread that runs in another process, or nowhere any more."""
        folder = self._host.store.folder_of(self.thread_id)
        followed = follow_records(
            folder, lambda: self.record.ended, from_start=from_start, follow=follow
        )
        async with aclosing(followed) as records:
            async for record in records:
                yield _event(record)

    async def _looked_up(self) -> ThreadResult:
        """What came of a thread that this handle has not started, as the registry keeps it."""
        host, thread_id = self._host, self.thread_id
        while True:
            record = await host.store.wait(thread_id)
            if record.status != "continued" or record.continuation_thread_id is None:
                return await run_in_thread(self._kept, record)
            thread_id = record.continuation_thread_id

    def _kept(self, record: ThreadRecord) -> ThreadResult:
        host = self._host
        said = host.registry.get_result(record.thread_id)
        return kept_result(record, said, self._spent(record.thread_id))

    def _spent(self, thread_id: str) -> Amount:
        try:
            return self._host.ledger.tree(thread_id).spent
        except BudgetNotRegistered:  # it ended before it had an account
            return NOTHING

    def settle(self, result: ThreadResult | None, failed: Exception | None) -> None:
        """Say how it ended. The service calls this."""
        self._result, self._failed = result, failed
        if self._ended is not None:
            self._ended.set()

    def render(self, *, width: int = _COLUMNS) -> StyledText:
        """It and all below it, with what they have used of their limits.

        Args:
            width: How many columns there are.
        """
        tree = load_tree(self._host.store, self.thread_id)
        return render_tree([tree], width=width, now=time.time())

    def __repr__(self) -> str:
        return f"Thread({self.thread_id!r})"

    def __str__(self) -> str:
        return self.render().plain()

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - for notebooks alone
        from ryecore.threads.picture import tree_picture  # noqa: PLC0415

        # It is shown between two cells: nothing is settled, and nobody is waited for.
        try:
            registry = self._host.registry
            with registry.quiet(_MOST_WAIT_S) as is_quiet:
                if is_quiet:
                    tree = load_tree(self._host.store, self.thread_id, settles=False)
                    return to_html(tree_picture([tree], now=time.time()))
            why = "its registry is busy"
        except Exception as problem:  # of whatever kind: what is shown of it is no part of a run
            why = f"its registry can't be read: {problem}"
        text = StyledText()
        text.line((self.item_id, "strong"), "  ", (self.thread_id, "id"), (f"  {why}", "warn"))
        return text.html()


class _Place:
    """How far a reader of live events has come in the transcript.

    Each record stands there once. Streamed text stands in other pieces, so it is counted in
    characters since the last record.

    Args:
        offset: Where the transcript stood when the reader began to listen, in bytes.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._records = 0
        self._chars = 0

    def pass_by(self, event: ThreadEvent) -> None:
        """Count what the reader is given."""
        if event.type == "token_delta":
            self._chars += len(event.payload["text"])
        else:
            self._records += 1
            self._chars = 0

    def beyond(self, event: ThreadEvent) -> ThreadEvent | None:
        """What the reader wasn't given yet of the next event of the transcript."""
        if event.type != "token_delta":
            self._records -= 1
            return None if self._records >= 0 else event
        if self._records > 0:
            return None
        text = event.payload["text"]
        known, self._chars = self._chars, max(self._chars - len(text), 0)
        if known >= len(text):
            return None
        return evolve(event, payload={"text": text[known:]}) if known else event


def _event(record: Record) -> ThreadEvent:
    return ThreadEvent(record.thread_id, record.timestamp, record.type, record.payload)
