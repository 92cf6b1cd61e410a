"""What was read of signed files, remembered as long as they stand as they were read.

Source: ADR 003.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar, cast

from attrs import frozen

from ryecore.caches import BoundedDict
from ryecore.chain.trace import Event, Trace
from ryecore.items.signature import utc_now
from ryecore.lillux.witness import Evidence, Witness

__all__ = ["Remembered"]

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
    """Answers by key, each with a witness of all that was seen on disk.

    Threads may ask at the same time; at worst an answer is made twice.
    """

    def __init__(self) -> None:
        self._answers: BoundedDict[Hashable, _Answer] = BoundedDict(_MAX_REMEMBERED)

    def recall(self, key: Hashable, trace: Trace, make: Callable[[Trace, Evidence], T]) -> T:
        """An answer that still holds, or a new one.

        Args:
            key: What is asked; one key always stands for one `make`.
            trace: Told what making the answer told, whether it is made now or was before.
            make: Makes it, and tells what it saw on disk. What it raises is not remembered.
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
