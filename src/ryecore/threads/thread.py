"""The handle of a directive's thread."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from attrs import evolve

from ryecore.display.text import StyledText
from ryecore.policy.budget import Amount
from ryecore.runs.handle import RunHandle
from ryecore.state.events import EventsMissed
from ryecore.state.model import ThreadRecord
from ryecore.state.transcript_format import Record
from ryecore.threads.events import Recorder, ThreadEvent
from ryecore.threads.lifecycle import ThreadLifecycle
from ryecore.threads.rendering import render_tree
from ryecore.threads.result import ThreadResult, kept_result
from ryecore.threads.tree import TreeNode, load_tree

__all__ = ["Thread"]

_COLUMNS: Final = 80
_MOST_WAIT_S: Final = 0.2


class Thread(RunHandle[ThreadResult]):
    """The handle of a directive's thread: its events, its result, its cost, a way to stop it.

    `Rye.start` makes it. The thread needs no listener. It runs until it ends, is cancelled, or the
    Rye that started it is closed.

    Attributes:
        item_id: The directive, as a canonical ref.
    """

    @property
    def thread_id(self) -> str:
        """Its id, for `rye.threads` and `rye threads`."""
        return self._run_id

    async def events(
        self, *, from_start: bool = True, follow: bool = True
    ) -> AsyncGenerator[ThreadEvent, None]:
        """Stream the events of the thread: the transcript so far, then live events until its end.

        Args:
            from_start: Whether to begin with the past events.
            follow: Whether to continue until the thread has ended.

        Yields:
            The records of its transcript. Live text comes as it is streamed, past text in larger
            pieces.
        """
        running = self._host.running.get(self.thread_id)
        if isinstance(running, ThreadLifecycle) and running.recorder is not None:
            events = self._live(running.recorder, from_start=from_start, follow=follow)
        else:
            events = self._followed(from_start=from_start, follow=follow)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()  # closes the subscription of a reader that stops early

    async def _live(
        self, recorder: Recorder, *, from_start: bool, follow: bool
    ) -> AsyncGenerator[ThreadEvent, None]:
        """Stream a local thread's events; what a slow reader misses comes from the transcript."""
        log = self._host.store.records
        offset, live = await recorder.listen()
        place = _Place(offset)
        if from_start:
            async with aclosing(log.read(self.thread_id, to_offset=offset)) as records:
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
            until = None if recorder.is_closed else await recorder.listen()
            missed = log.read(
                self.thread_id, from_offset=place.offset, to_offset=until[0] if until else None
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
        """Stream the events of a thread that runs in another process, or has ended."""
        followed = self._host.store.records.follow(
            self.thread_id, self._has_ended, from_start=from_start, follow=follow
        )
        async with aclosing(followed) as records:
            async for record in records:
                yield _event(record)

    @property
    def _resume_command(self) -> str:
        return f"rye threads resume {self._run_id}"

    async def _read_result(self, record: ThreadRecord, total: Amount) -> ThreadResult:
        return kept_result(record, await self._host.registry.get_result(record.thread_id), total)

    async def render(self, *, width: int = _COLUMNS) -> StyledText:
        """Render the thread and all below it, with their use and limits.

        Args:
            width: The width in columns.
        """
        tree = await load_tree(self._host.store, self.thread_id)
        return render_tree([tree], width=width, now=time.time())

    def __str__(self) -> str:
        found = self._glance()
        if isinstance(found, StyledText):
            return found.plain()
        return render_tree([found], width=_COLUMNS, now=time.time()).plain()

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - for notebooks alone
        from ryecore.threads.picture import tree_picture  # noqa: PLC0415

        found = self._glance()
        if isinstance(found, StyledText):
            return found.html()
        return to_html(tree_picture([found], now=time.time()))

    def _glance(self) -> TreeNode | StyledText:
        """Return the tree, for a rendering that may not wait; or a line that tells why not.

        A notebook renders it between two cells: nothing is settled.
        """
        store = self._host.store
        try:
            with store.quiet(_MOST_WAIT_S) as is_quiet:
                if is_quiet:
                    return store.run_now(load_tree(store, self.thread_id, settles=False))
            why = "its registry is busy"
        except Exception as problem:  # of any kind: rendering must not break a run
            why = f"its registry can't be read: {problem}"
        text = StyledText()
        text.line((self.item_id, "strong"), "  ", (self.thread_id, "id"), (f"  {why}", "warn"))
        return text


class _Place:
    """The position of a reader of live events in the transcript, which had `offset` bytes at first.

    Each record is there once. Streamed text is there in other pieces, so it is counted in
    characters since the last record.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._records = 0
        self._chars = 0

    def pass_by(self, event: ThreadEvent) -> None:
        """Count an event that the reader has received."""
        if event.type == "token_delta":
            self._chars += len(event.payload["text"])
        else:
            self._records += 1
            self._chars = 0

    def beyond(self, event: ThreadEvent) -> ThreadEvent | None:
        """Return the part of the transcript's next event that the reader hasn't received."""
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
