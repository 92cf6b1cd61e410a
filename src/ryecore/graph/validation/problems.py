"""The problems of one graph, and the line on which each stands."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, TypeAlias

from attrs import field, frozen

__all__ = [
    "Found",
    "Place",
    "Problems",
    "did_you_mean",
    "key_path",
    "lines_of",
    "listed",
    "nearest",
    "node_lines",
]

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


_BLOCK_KEY: Final = re.compile(
    r"^( +)(?:\"([^\"\\\n]+)\"|'([^'\n]+)'|([^\s#'\"][^:\n]*)):(?=\s)", re.M
)
_MAX_PLACES: Final = 1_000_000


def node_lines(text: str, names: Iterable[str]) -> Mapping[str, int]:
    """The lines of a graph's nodes, found without parsing where they stand one below the other.

    Args:
        text: The file, which was loaded before, and so is within bounds.
        names: The nodes' ids, in the file's order.

    Returns:
        Lines from 1, by id; not every one need be there.
    """
    wanted = tuple(names)
    if not wanted:
        return {}
    by_indent: dict[str, list[tuple[str, int]]] = {}
    firsts: list[tuple[str, int]] = []
    above: list[tuple[int, str]] = [(0, "")]
    for found in _BLOCK_KEY.finditer(text):
        indent = found[1]
        name = found[2] or found[3] or found[4].rstrip()
        while len(above) > 1 and above[-1][0] >= len(indent):
            above.pop()
        keys = by_indent.setdefault(indent, [])
        keys.append((name, found.start()))
        if name == wanted[0] and above[-1][1] == "nodes":
            firsts.append((indent, len(keys) - 1))
        above.append((len(indent), name))
    if len(firsts) == 1:  # else it may be that text of another kind looks like the nodes
        indent, at = firsts[0]
        run = by_indent[indent][at : at + len(wanted)]
        if tuple(name for name, _ in run) == wanted:
            return _counted(text, run)
    lines = lines_of(text)
    return {name: lines[place] for name in wanted if (place := ("config", "nodes", name)) in lines}


def _counted(text: str, keys: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    lines: dict[str, int] = {}
    line, at = 1, 0
    for name, start in keys:
        line += text.count("\n", at, start)
        at = start
        lines[name] = line
    return lines


def lines_of(text: str) -> Mapping[Place, int]:
    """The line of each key and each item of a list; empty where the text is no YAML.

    It goes through the parser's events, without recursion and without writing aliases out.

    Args:
        text: The file, which was loaded before, and so is within bounds.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 - only where there is a problem
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    found = _Lines()
    try:
        for event in YAML(typ="safe", plug_ins=[]).parse(text):
            found.take(event)
            if len(found.lines) > _MAX_PLACES:
                break
    except YAMLError:
        return {}
    return found.lines


def nearest(place: Place, lines: Mapping[Place, int]) -> Place:
    """A place, or the nearest one above it whose line is known."""
    return next(
        (place[:length] for length in range(len(place), 0, -1) if place[:length] in lines), ()
    )


class _Open:
    """A collection that is still open."""

    __slots__ = ("count", "is_mapping", "key", "place")

    def __init__(self, place: Place, is_mapping: bool) -> None:
        self.place, self.is_mapping = place, is_mapping
        self.count = 0
        self.key: str | None = None


class _Lines:
    """The lines, as the events come."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self._open: list[_Open] = []

    def take(self, event: object) -> None:
        from ruamel.yaml import events  # noqa: PLC0415

        match event:
            case events.MappingStartEvent() | events.SequenceStartEvent():
                place = self._place(event.start_mark.line + 1, None)
                self._open.append(_Open(place, isinstance(event, events.MappingStartEvent)))
            case events.MappingEndEvent() | events.SequenceEndEvent():
                self._open.pop()
            case events.ScalarEvent():
                self._place(event.start_mark.line + 1, event.value)
            case events.AliasEvent():
                self._place(event.start_mark.line + 1, None)

    def _place(self, line: int, scalar: str | None) -> Place:
        """The place of what begins here; a key notes its line, and the value behind it has it."""
        if not self._open:
            return ()
        inside = self._open[-1]
        if not inside.is_mapping:
            place: Place = (*inside.place, inside.count)
            self.lines[place] = line
            inside.count += 1
            return place
        inside.count += 1
        if inside.count % 2:
            inside.key = scalar if scalar is not None else ""
            place = (*inside.place, inside.key)
            self.lines.setdefault(place, line)
            return place
        return (*inside.place, inside.key or "")
