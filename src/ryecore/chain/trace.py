"""The event log of one execution, and a cache of answers together with their events.

Source: ADR 003.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from ryecore.caches import BoundedDict
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.items.signature import utc_now
from ryecore.lillux.witness import Evidence, Witness
from ryecore.policy.context import EventSink

__all__ = ["Event", "Remembered", "Trace"]

Event = Mapping[str, object]


class Trace:
    """Collects events. Observing changes nothing of what is observed."""

    def __init__(self, sink: EventSink | None = None) -> None:
        self._events: list[Event] = []
        self._sink = sink

    @property
    def events(self) -> tuple[Event, ...]:
        """Return what happened so far."""
        return tuple(self._events)

    def add(self, step: str, **facts: object) -> None:
        """Record an event."""
        event = {"step": step, **facts}
        self._events.append(event)
        if self._sink is not None:
            self._sink(event)

    def extend(self, events: Sequence[Event]) -> None:
        """Record events of an earlier execution again."""
        self._events.extend(events)
        if self._sink is not None:
            for event in events:
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


T = TypeVar("T")

_MAX_REMEMBERED: Final = 4096


@frozen
class _Answer:
    value: Any
    events: tuple[Event, ...]
    witness: Witness
    expires_at: str | None

    def holds(self) -> bool:
        if not self.witness.holds():
            return False
        return self.expires_at is None or utc_now() <= self.expires_at


class Remembered:
    """Cached answers by key, each with a witness of all files that it was made from.

    Threads may ask at the same time; at worst an answer is made twice.
    """

    def __init__(self) -> None:
        self._answers: BoundedDict[Hashable, _Answer] = BoundedDict(_MAX_REMEMBERED)

    def recall(self, key: Hashable, trace: Trace, make: Callable[[Trace, Evidence], T]) -> T:
        """Return a cached answer that still holds, or make a new one. Errors are not cached.

        One key always stands for one `make`, which records what it read from disk.
        """
        found = self._answers.get(key)
        if found is not None and found.holds():
            trace.extend(found.events)
            return cast("T", found.value)
        evidence, before = Evidence(), len(trace.events)
        value = make(trace, evidence)
        if evidence.may_remember:
            events = trace.events[before:]
            self._answers[key] = _Answer(value, events, evidence.witness(), evidence.expires_at)
        return value
