"""A dictionary that forgets its oldest entries."""

from contextlib import suppress
from typing import TypeVar

__all__ = ["BoundedDict"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """Holds so many entries at most: for a new one, the one that was added first goes.

    Threads may use it at the same time.
    """

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._max_entries:
            # Another thread may add or remove an entry between two steps: look again then.
            with suppress(RuntimeError, StopIteration):
                self.pop(next(iter(self)), None)
