"""The events of a run, their recorder, and the bus that delivers them to slow consumers.

One ring holds the latest events, and each consumer has its own position in it. So an event costs
the run one append, however many consume it, and a consumer that nobody reads costs nothing.

Source: docs/design/agent-node.md#events.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from threading import get_ident
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
)

import anyio
from attrs import evolve

from ryecore.display.sanitize import to_one_line
from ryecore.display.text import progress_words
from ryecore.errors import InputError, StateError
from ryecore.frozen import frozen
from ryecore.policy.reports import REPORT_TYPES, ToolProgress, run_event_of

if TYPE_CHECKING:
    from ryecore.policy.context import EventSink
    from ryecore.policy.reports import ToolReport
    from ryecore.state.record_log import RecordLog, RecordStore
    from ryecore.state.transcript_format import Head, Record

__all__ = [
    "Envelope",
    "EventBody",
    "EventBus",
    "EventStream",
    "EventsMissed",
    "Recorder",
    "RunEvent",
]


class EventBody(Protocol):
    """An event without its envelope."""

    def to_dict(self) -> Mapping[str, object]:
        """Return the event's own keys in the wire format."""
        ...


Body = TypeVar("Body", bound=EventBody)

_NOT_YET: Final = 0
_CLOSED: Final = -1

# Makes an envelope in half the time of its constructor, which is a Python function.
_new: Final = tuple.__new__


class Envelope(NamedTuple, Generic[Body]):
    """An event, with its time and its run.

    It is a tuple, because one is made for each token, and a frozen class takes three times as long.

    Attributes:
        run_id: The run.
        timestamp: Its time in seconds since 1970 (UTC), with a fraction.
        sequence_number: Its number in the run, from 1, without gaps.
        event: The event.
    """

    run_id: str
    timestamp: float
    sequence_number: int
    event: Body

    def to_dict(self) -> dict[str, object]:
        """Return the event in the wire format: the envelope's keys beside its own."""
        return {
            "runId": self.run_id,
            "timestamp": self.timestamp,
            "sequenceNumber": self.sequence_number,
            **self.event.to_dict(),
        }


@frozen
class EventsMissed:
    """A gap where a consumer missed events, because it fell behind or came late.

    Attributes:
        run_id: The run.
        first: The number of the first missed event.
        last: The number of the last missed event.
    """

    type: ClassVar[Literal["events:missed"]] = "events:missed"

    run_id: str
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of missed events."""
        return self.last - self.first + 1

    def to_dict(self) -> dict[str, object]:
        """Return the gap in the wire format."""
        return {
            "runId": self.run_id,
            "type": self.type,
            "first": self.first,
            "last": self.last,
            "count": self.count,
        }


class EventBus(Generic[Body]):
    """The events of one run, for its consumers.

    It belongs to the thread of one event loop, the first that uses it. Emitting from another
    thread is refused.

    Args:
        run_id: The run.
        now: Returns the time in seconds since 1970 (UTC).
        capacity: The number of events stored for consumers that are behind, at least 1.

    Raises:
        ValueError: The capacity is less than 1.
    """

    __slots__ = ("_bell", "_capacity", "_emitted", "_now", "_ring", "_thread", "run_id")

    def __init__(
        self, run_id: str, *, now: Callable[[], float] = time.time, capacity: int = 4096
    ) -> None:
        if capacity < 1:
            raise ValueError(f"The capacity is {capacity}, and must be at least 1.")
        self.run_id = run_id
        self._now = now
        self._capacity = capacity
        self._ring: list[Envelope[Body]] = []
        self._emitted = 0
        self._bell: anyio.Event | None = None
        self._thread = _NOT_YET

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        return f"EventBus({self.run_id!r}: {self._emitted} events{closed})"

    @property
    def is_closed(self) -> bool:
        """Whether the bus takes no more events."""
        return self._thread == _CLOSED

    @property
    def emitted(self) -> int:
        """The number of events so far, which is also the number of the last one."""
        return self._emitted

    def emit(self, event: Body) -> None:
        """Emit an event, without waiting for slow consumers.

        Raises:
            InputError: The bus is closed, or belongs to another thread.
        """
        if get_ident() != self._thread:
            self._enter()
        before = self._emitted
        envelope = _new(Envelope, (self.run_id, self._now(), before + 1, event))
        if before < self._capacity:
            self._ring.append(envelope)
        else:
            self._ring[before % self._capacity] = envelope
        self._emitted = before + 1
        if self._bell is not None:
            self._wake()

    def subscribe(self, *, from_start: bool = False) -> "EventStream[Body]":
        """Subscribe to the events. A stream that is simply dropped leaves nothing behind.

        Args:
            from_start: Whether to begin with the stored past events. Those that aren't stored any
                more come as one `EventsMissed`.
        """
        return EventStream(self, 0 if from_start else self._emitted)

    def close(self) -> None:
        """Close the bus: streams end after the stored events. Closing twice is fine.

        Raises:
            InputError: The bus belongs to another thread.
        """
        if not self.is_closed:
            self._enter()
            self._thread = _CLOSED
            self._wake()

    async def _wait(self) -> None:
        self._enter()
        if self._bell is None:
            self._bell = anyio.Event()
        await self._bell.wait()

    def _wake(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.set()

    def _enter(self) -> None:
        thread = get_ident()
        if self._thread == _NOT_YET:
            self._thread = thread
        elif self._thread == _CLOSED:
            raise InputError(
                f"The event bus of the run {self.run_id!r} is closed.",
                next_step="Close it after the run has ended.",
            )
        elif self._thread != thread:
            raise InputError(
                f"The event bus of the run {self.run_id!r} belongs to another thread.",
                next_step="Use it on the event loop that uses it first; from a worker thread, "
                "call anyio.from_thread.run_sync(bus.emit, event).",
            )


class EventStream(Generic[Body]):
    """The stream of one consumer, in order: envelopes, and gaps where it fell behind.

    `EventBus.subscribe` makes it. A read that is cancelled loses nothing.
    """

    __slots__ = ("_bus", "_seen")

    def __init__(self, bus: EventBus[Body], seen: int) -> None:
        self._bus = bus
        self._seen = seen

    def __aiter__(self) -> "EventStream[Body]":
        return self

    async def __anext__(self) -> Envelope[Body] | EventsMissed:
        # Inlined, because each event of each consumer passes here.
        bus = self._bus
        while (seen := self._seen) == bus._emitted:
            if bus.is_closed:
                raise StopAsyncIteration
            await bus._wait()
        lost = bus._emitted - bus._capacity
        if seen < lost:
            self._seen = lost
            return EventsMissed(bus.run_id, seen + 1, lost)
        self._seen = seen + 1
        return bus._ring[seen % bus._capacity]


UNLOGGED: Final = frozenset({"reasoning_delta"}) | REPORT_TYPES
"""The types of events that only live listeners get."""


@frozen
class RunEvent:
    """An event of a thread, or of a graph's run.

    Attributes:
        run_id: The thread, or the run.
        timestamp: The time, in seconds since 1970 (UTC).
        type: The type of its record in the log. Live listeners get what no log stores, too:
            a model's reasoning as `reasoning_delta` {text}, and in a graph {node, text}, as is an
            agent's answer there, `token_delta`; what a tool reports as `tool_progress` and
            `tool_log`.
        payload: The rest, JSON-ready.
    """

    run_id: str
    timestamp: float
    type: str
    payload: Mapping[str, Any]

    @classmethod
    def of(cls, record: "Record") -> Self:
        """Return the event of a record."""
        return cls(record.thread_id, record.timestamp, record.type, record.payload)

    def to_dict(self) -> dict[str, object]:
        """Return the event as its line in the log."""
        return {
            "timestamp": self.timestamp,
            "thread_id": self.run_id,
            "event_type": self.type,
            "payload": dict(self.payload),
        }


class Recorder:
    """The only writer of a run's events: first to its log, then to its listeners.

    The caller's event sink gets each of the `steps`, and what its payload names as the `subject`,
    but no values. `head` is the log's last checkpoint; `turn` counts turns, or a graph's steps;
    `progress` says how far the tool is that reported last, until the next record.
    """

    steps: ClassVar[frozenset[str]]
    subject: ClassVar[str]

    def __init__(
        self, run_id: str, log: "RecordLog", records: "RecordStore", sink: "EventSink | None"
    ) -> None:
        self.turn = 0
        self.progress = ""
        self.head: Head | None = None
        self._run_id = run_id
        self._log = log
        self._records = records
        self._sink = sink
        self._bus: EventBus[RunEvent] | None = None
        self._shown = 0
        self._is_closed = False

    @property
    def position(self) -> tuple[int, str] | None:
        """The offset and the digest of the log's last checkpoint; None without one."""
        return None if self.head is None else (self.head.offset, self.head.digest)

    def append(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event of JSON, to be written by the next flush, commit or checkpoint."""
        try:
            self._log.append(kind, payload)
        except TypeError as problem:
            raise StateError(
                f"A record of {self._run_id} ({kind}) holds what JSON lacks: {problem}.",
                next_step="Use only texts, numbers, booleans, null, lists and mappings.",
            ) from None
        self.progress = ""
        self._shown += 1  # `show`, inlined: each record comes here
        if self._bus is not None:
            self._bus.emit(RunEvent(self._run_id, time.time(), kind, payload))
        if self._sink is not None and kind in self.steps:
            about = payload.get(self.subject, self._run_id)
            self._sink({"step": kind, "item_id": about, "turn": self.turn})

    def show(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Send an event to the live listeners, without storing it."""
        self._shown += 1
        if self._bus is not None:
            self._bus.emit(RunEvent(self._run_id, time.time(), kind, payload))

    def report(self, report: "ToolReport") -> None:
        """Send what a tool of the run reports to the live listeners, without storing it."""
        if self._is_closed:
            return
        if isinstance(report, ToolProgress):
            said = progress_words(report.progress, report.total, report.message)
            self.progress = f"{to_one_line(report.item_id.removeprefix('tool:'))}  {said}"
        self.show(*run_event_of(report))

    async def flush(self) -> None:
        """Write all records so far, so that they survive the death of the process."""
        await self._log.flush()

    async def write_ahead(self, *, closes: bool = False) -> None:
        """Write all records so far, before rows of the registry that depend on them, or with them.

        `closes` says that they are the last ones.
        """
        await self._log.write_ahead(closes=closes)

    async def write_soon(self) -> None:
        """Write all records so far with the next ones, or within a tenth of a second."""
        await self._log.write_soon()

    async def commit(self) -> None:
        """Write all records so far as safely as the durability demands, before an effect."""
        await self._log.commit()

    async def close_turn(self, turn: int, *, soon: bool = False) -> "Head":
        """Sign all records so far. The next commit, before an effect, makes that as durable.

        They are written with the next ones, or within a tenth of a second, where that is `soon`
        enough.
        """
        log = self._log
        self.head = head = await (log.sign(turn) if soon else log.checkpoint(turn))
        self._shown += 1
        if self._bus is not None:
            payload = {"turn": turn, "offset": head.offset, "digest": head.digest}
            self._bus.emit(RunEvent(self._run_id, time.time(), "checkpoint", payload))
        return head

    async def _listen(self) -> "tuple[int, EventStream[RunEvent]]":
        """Subscribe: return the log's length so far, and a stream of the events to come."""
        shown = -1
        while shown != self._shown:  # otherwise an event could be in neither part
            shown = self._shown
            await self.flush()
        if self._bus is None:
            self._bus = EventBus(self._run_id)
        return self._log.offset, self._bus.subscribe()

    async def events(
        self, *, from_start: bool = True, follow: bool = True
    ) -> AsyncGenerator[RunEvent, None]:
        """Stream the events: the written ones, then live ones until the log is closed.

        Each comes once; what a slow reader missed is read from the log.
        """
        place, is_read = _Place(0), from_start
        while True:
            live = None if self._is_closed else await self._listen()
            if is_read:
                read = self._records.read(
                    self._run_id, from_offset=place.offset, to_offset=live[0] if live else None
                )
                async with aclosing(read) as records:
                    async for record in records:
                        event = place.beyond(RunEvent.of(record))
                        if event is not None:
                            yield event
            if live is None or not follow:
                return
            place, is_read = _Place(live[0]), True
            async for envelope in live[1]:
                if isinstance(envelope, EventsMissed):
                    break
                place.pass_by(envelope.event)
                yield envelope.event
            else:
                return

    async def close(self) -> None:
        """Write pending records, close the log in any case, and end the listeners' streams."""
        try:
            await self._log.close()
        finally:
            self._is_closed = True
            if self._bus is not None:
                self._bus.close()


class _Place:
    """The position of a reader of live events in the log, which had `offset` bytes at first.

    Each record is there once. Streamed text is there in other pieces or not at all, so it is
    counted in characters since the last record.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._records = 0
        self._chars = 0

    def pass_by(self, event: RunEvent) -> None:
        """Count an event that the reader has received."""
        if event.type == "token_delta":
            self._chars += len(event.payload["text"])
        elif event.type not in UNLOGGED:
            self._records += 1
            self._chars = 0

    def beyond(self, event: RunEvent) -> RunEvent | None:
        """Return the part of the log's next event that the reader hasn't received."""
        if event.type != "token_delta":
            self._records -= 1
            return None if self._records >= 0 else event
        if self._records > 0:
            return None
        text = event.payload["text"]
        known, self._chars = self._chars, max(self._chars - len(text), 0)
        if not known:
            return event
        return evolve(event, payload={"text": text[known:]}) if known < len(text) else None
