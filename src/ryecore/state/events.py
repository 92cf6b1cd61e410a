"""The event bus of a run: it stamps events and delivers them to any number of slow consumers.

One ring holds the latest events, and each consumer has its own position in it. So an event costs
the run one append, however many consume it, and a consumer that nobody reads costs nothing.

Source: docs/design/agent-node.md#events.
"""

import time
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import ClassVar, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import anyio
from attrs import frozen

from ryecore.errors import InputError

__all__ = ["Envelope", "EventBody", "EventBus", "EventStream", "EventsMissed"]


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
