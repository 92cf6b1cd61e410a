"""Paths to values, and placeholders for them: one walker for every template. Pure.

Source: docs/design/templates.md.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from ryecore.frozen import frozen

__all__ = ["ABSENT", "Place", "ValuePath", "fill_placeholders", "parse_path", "step"]

Place: TypeAlias = tuple[str | int, ...]
"""Keys, and indexes of lists."""

ABSENT: Final = object()
"""The result of a path that leads nowhere."""

_WORD: Final = re.compile(r"[\w-]+")
_PART: Final = re.compile(r"[^.\[\]]+|\[([0-9]{1,9})\]")
_MAX_DIGITS: Final = 9


def step(found: object, part: str | int) -> object:
    """Return the part of a value at a key, or at an index as a number or its digits; else `ABSENT`.

    Only mappings, lists and tuples have parts: no attribute of an object is ever reached.
    """
    if isinstance(found, Mapping):
        return found.get(part, ABSENT)
    if isinstance(found, list | tuple):
        if isinstance(part, str):
            if not (part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS):
                return ABSENT
            part = int(part)
        return found[part] if -len(found) <= part < len(found) else ABSENT
    return ABSENT


@frozen
class ValuePath:
    """A path to a value: keys, and indexes of lists; the first is the root, such as `state`."""

    parts: Place

    def find(self, context: Mapping[str, object], default: object = None) -> object:
        """Return the value; the default where the path leads nowhere."""
        found: object = context
        for part in self.parts:
            found = found.get(part, ABSENT) if type(found) is dict else step(found, part)
        return default if found is ABSENT else found

    def __str__(self) -> str:
        text = ""
        for part in self.parts:
            if isinstance(part, int):
                text += f"[{part}]"
            elif _WORD.fullmatch(part):
                text += f".{part}" if text else part
            else:
                text += f"[{json.dumps(part, ensure_ascii=False)}]"
        return text


@lru_cache(maxsize=1024)
def parse_path(text: str) -> ValuePath:
    """Read a dotted path, as conditions and hooks write it; `.0` and `[0]` stand for an item.

    A key can't hold dots itself.
    """
    return ValuePath(
        tuple(int(found[1]) if found[1] else found[0] for found in _PART.finditer(text))
    )


def fill_placeholders(
    value: object, pattern: re.Pattern[str], value_of: Callable[[re.Match[str]], object]
) -> object:
    """Put values in for placeholders in all texts of a value, in one pass: none is expanded again.

    A text that is just one placeholder becomes the value, whatever its type; within a longer
    text, a value that is not text is JSON.
    """
    if isinstance(value, str):
        alone = pattern.fullmatch(value)
        if alone is not None:
            return value_of(alone)
        return pattern.sub(lambda found: _as_text(value_of(found)), value)
    if isinstance(value, Mapping):
        return {key: fill_placeholders(one, pattern, value_of) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [fill_placeholders(one, pattern, value_of) for one in value]
    return value


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
