"""Docstrings in Google's style: what comes first, and what is said of each argument. Pure."""

import re
from inspect import cleandoc
from itertools import pairwise
from typing import Final

from attrs import field, frozen

__all__ = ["DocString", "read_docstring"]

_SECTION: Final = re.compile(
    r"(?:Args|Arguments|Attributes|Examples?|Keyword Args|Keyword Arguments|Notes?|Parameters"
    r"|Raises|References|Returns?|See Also|Source|Todo|Warnings?|Warns|Yields?):[ \t]*\S*.*"
)
_ARGUMENTS: Final = ("Args:", "Arguments:", "Attributes:", "Parameters:", "Keyword Args:")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^:]*\))?:\s*(.*)")


@frozen
class DocString:
    """What a docstring says.

    Attributes:
        description: What stands before the first section.
        arguments: What is said of each argument or attribute, in one line.
    """

    description: str = ""
    arguments: dict[str, str] = field(factory=dict)


def read_docstring(text: str | None) -> DocString:
    """Read a docstring. What isn't in Google's style is description."""
    if not text:
        return DocString()
    lines = cleandoc(text).splitlines()
    starts = [at for at, line in enumerate(lines) if _SECTION.fullmatch(line)]
    description = lines[: starts[0]] if starts else lines
    arguments: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        if lines[start].strip() in _ARGUMENTS:
            arguments |= _entries(lines[start + 1 : end])
    return DocString("\n".join(description).strip(), arguments)


def _entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    name, indent = "", 0
    for line in lines:
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if not text:
            continue
        if depth == 0:
            break  # the section has ended, and prose follows
        found = _ENTRY.fullmatch(text)
        if found is not None and (not name or depth <= indent):
            name, indent = found[1], depth
            entries[name] = found[2]
        elif name:
            entries[name] = f"{entries[name]} {text}".strip()
    return entries
