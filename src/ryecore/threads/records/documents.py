"""Markdown of a thread: no text that was written by others can break out of its place.

Source: decision 36.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from ryecore.display.sanitize import escape_markdown

__all__ = ["fenced", "frontmatter"]

_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
_number: Final = json.JSONEncoder(allow_nan=False).encode
_FENCE: Final = re.compile(r"`{3,}")


def fenced(text: str, language: str = "text") -> str:
    """Text in a fence that nothing in it can close.

    Args:
        text: Anybody's.
        language: What the fence says that it holds; our own word.
    """
    shown = escape_markdown(text)
    longest = max(map(len, _FENCE.findall(shown)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{shown}{'' if shown.endswith(chr(10)) else chr(10)}{fence}\n"


def frontmatter(fields: Mapping[str, object]) -> str:
    """Fields as a YAML fence, each on a line of its own that no value can leave.

    Args:
        fields: Names, which are ours, and JSON-ready values, which may be anybody's.
    """
    lines = (f"{name}: {_scalar(value)}\n" for name, value in fields.items())
    return f"```yaml\n{''.join(lines)}```\n"


def _scalar(value: object) -> str:
    """JSON is YAML, but for halves of characters, and what YAML doesn't print."""
    if isinstance(value, str):
        return _quoted(escape_markdown(value))
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{_scalar(str(name))}: {_scalar(one)}" for name, one in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    return _number(value)
