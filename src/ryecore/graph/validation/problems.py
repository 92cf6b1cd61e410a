"""The problems of one graph, and the line on which each stands."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import field

from ryecore.convert.config import did_you_mean, known_names
from ryecore.convert.lines import Place, line_numbers
from ryecore.display.sanitize import shorten
from ryecore.frozen import frozen

__all__ = ["GraphFinding", "Problems", "node_lines"]

_MANY: Final = 100
_MAX_CHARS: Final = 2000


@frozen
class GraphFinding:
    """One problem and its place."""

    place: Place
    message: str


@frozen
class Problems:
    """The collected problems."""

    errors: list[GraphFinding] = field(factory=list)
    warnings: list[GraphFinding] = field(factory=list)

    def error(self, place: Place, message: str) -> None:
        """Add an error, which keeps the graph from running."""
        self.errors.append(GraphFinding(place, shorten(message, _MAX_CHARS)))

    def warn(self, place: Place, message: str) -> None:
        """Add a warning."""
        self.warnings.append(GraphFinding(place, shorten(message, _MAX_CHARS)))

    def guess(self, name: str, known: Iterable[str]) -> str:
        """Return the question of `did_you_mean`, or else the known names.

        Of many problems only the first have it: to compare all names with all others takes
        minutes where a large file is wrong throughout.
        """
        found = "" if len(self.errors) + len(self.warnings) >= _MANY else did_you_mean(name, known)
        return found or known_names(known)


_BLOCK_KEY: Final = re.compile(
    r"^( +)(?:\"([^\"\\\n]+)\"|'([^'\n]+)'|([^\s#'\"][^:\n]*)):(?=\s)", re.M
)


def node_lines(text: str, names: Iterable[str]) -> Mapping[str, int]:
    """Return the lines of nodes, from 1, by id, without parsing where the layout is plain.

    `text` was loaded before, so it is within bounds; `names` are in its order. Some lines may be
    missing.
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
    if len(firsts) == 1:  # otherwise other text may look like the nodes
        indent, at = firsts[0]
        run = by_indent[indent][at : at + len(wanted)]
        if tuple(name for name, _ in run) == wanted:
            return _counted(text, run)
    lines = line_numbers(text)
    return {name: lines[place] for name in wanted if (place := ("config", "nodes", name)) in lines}


def _counted(text: str, keys: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    lines: dict[str, int] = {}
    line, at = 1, 0
    for name, start in keys:
        line += text.count("\n", at, start)
        at = start
        lines[name] = line
    return lines
