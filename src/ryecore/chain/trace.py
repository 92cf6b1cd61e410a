"""The event log of one execution: what was decided, in order, secrets left out."""

from collections.abc import Iterable, Mapping

from ryecore.errors import RyeError
from ryecore.policy.context import EventSink

__all__ = ["Event", "Trace"]

Event = Mapping[str, object]


class Trace:
    """Collects events. Observing changes nothing of what is observed.

    Args:
        sink: Told each event as it happens.
    """

    def __init__(self, sink: EventSink | None = None) -> None:
        self._events: list[Event] = []
        self._sink = sink

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened so far."""
        return tuple(self._events)

    def add(self, step: str, **facts: object) -> None:
        """Record an event."""
        event = {"step": step, **facts}
        self._events.append(event)
        if self._sink is not None:
            self._sink(event)

    def extend(self, events: Iterable[Event]) -> None:
        """Record events again that another time recorded."""
        for event in events:
            self._events.append(event)
            if self._sink is not None:
                self._sink(event)

    def failing(self, step: str, **facts: object) -> "_Failing":
        """Record a failing event where the block raises; its success is the block's to record."""
        return _Failing(self, step, facts)


class _Failing:
    """A block of `Trace.failing`. It is a class, since a generator takes longer."""

    __slots__ = ("_facts", "_step", "_trace")

    def __init__(self, trace: Trace, step: str, facts: Mapping[str, object]) -> None:
        self._trace = trace
        self._step = step
        self._facts = facts

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RyeError):
            self._trace.add(self._step, **self._facts, failed=True, error=str(error))
