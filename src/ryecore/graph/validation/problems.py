"""The problems of one graph, as they are found."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TypeAlias

from attrs import field, frozen

__all__ = ["Found", "Place", "Problems", "did_you_mean", "key_path", "listed"]

Place: TypeAlias = tuple[str | int, ...]
"""Where in the document: keys, and indexes of lists."""

_MAX_LISTED = 12
_MAX_COMPARED = 2000
_MANY = 100


@frozen
class Found:
    """One problem: where, and what."""

    place: Place
    message: str


@frozen
class Problems:
    """What was found so far."""

    errors: list[Found] = field(factory=list)
    warnings: list[Found] = field(factory=list)

    def error(self, place: Place, message: str) -> None:
        """Add what keeps the graph from running."""
        self.errors.append(Found(place, message))

    def warn(self, place: Place, message: str) -> None:
        """Add what only looks wrong."""
        self.warnings.append(Found(place, message))

    def guess(self, name: str, known: Iterable[str]) -> str:
        """What `did_you_mean` asks, or else what there is.

        Of many problems only the first have it: to compare all names with all others takes
        minutes where a large file is wrong throughout.
        """
        found = "" if len(self.errors) + len(self.warnings) >= _MANY else did_you_mean(name, known)
        return found or f" There is {listed(known)}."


def key_path(place: Place) -> str:
    """A place as people write it: `config.nodes.load.next[0].to`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def did_you_mean(name: str, known: Iterable[str], *, at_least: float = 0.6) -> str:
    """A question that names the nearest known name; empty where none is near.

    Args:
        name: What was written.
        known: What there is.
        at_least: How alike they have to be, from 0 to 1.
    """
    near = get_close_matches(name, list(known)[:_MAX_COMPARED], n=1, cutoff=at_least)
    return f" Did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names, for an error's text; the first few where there are many."""
    names = list(names)
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(names[:_MAX_LISTED]) + more) or "none"
