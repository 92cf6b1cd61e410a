# rye:signed:2026-11-28T17:20:55Z:c9856c1e8bd2485289a0ac1aec30777265462407eed5614ba4c042c48dfd231d:k4fhR6GTf9LKIYGlD2ytjYeulFmYTkquTHkkhn71oRnywlZgX6EAWRza8jJobDSwxzPL0qQBl-xO5emW160FAg:a50d0ff255b90b74
"""Glob patterns that are matched one path component at a time, so that a walk can prune."""

from __future__ import annotations

import fnmatch
import re

from answers import Refused
from tree import SKIPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    State = frozenset[int]


class Pattern:
    """A relative pattern with `*`, `?`, `[...]` and `**` for any number of folders.

    Its state is the set of components up to which a path has matched so far.
    """

    def __init__(self, text: str) -> None:
        names = [name for name in text.split("/") if name not in ("", ".")]
        if not names or text.startswith("/") or ".." in names or "\0" in text:
            raise Refused(
                f"{text!r} can't be used as a pattern: write a relative one without `..`, such as "
                "`src/**/*.py`, and give the folder as path."
            )
        self._names = [None if name == "**" else _matcher(name) for name in names]
        self._skipped = SKIPPED.difference(names)
        self.start = self._closed({0})

    def step(self, state: State, name: str) -> State:
        """The state after one more component."""
        after = set()
        for index in state:
            if index < len(self._names):
                matches = self._names[index]
                if matches is None:
                    after.add(index)
                elif matches(name):
                    after.add(index + 1)
        return self._closed(after)

    def enter(self, state: State, name: str) -> State | None:
        """The state in a folder; None if nothing in it can match, or if it is one to skip."""
        return None if name in self._skipped else self.step(state, name) or None

    def matches(self, state: State, name: str) -> bool:
        """Whether the path that ends with this name matches as a whole."""
        return len(self._names) in self.step(state, name)

    def _closed(self, state: set[int]) -> State:
        for index, matches in enumerate(self._names):
            if index in state and matches is None:
                state.add(index + 1)  # `**` may stand for nothing
        return frozenset(state)


def _matcher(name: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(name)).match
