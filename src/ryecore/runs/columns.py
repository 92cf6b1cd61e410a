"""Texts that have to fit into columns of a terminal."""

import json
import unicodedata
from typing import Final

__all__ = ["cleaned", "columns_of", "cut", "fitted", "main_line", "shown"]

_MAX_SHOWN: Final = 400


def cleaned(text: str) -> str:
    """A text on one line, without what could steer a terminal or turn its direction."""
    return "".join(
        one if unicodedata.category(one)[0] not in "CZ" or one == " " else "�"
        for one in " ".join(text.split())
    )


def columns_of(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def fitted(name: str, room: int) -> str:
    """A name whose end, which says most, is kept where it doesn't fit."""
    return name if columns_of(name) <= room else f"…{cut(name[::-1], room, mark='')[::-1][1:]}"


def cut(text: str, room: int, mark: str = "…") -> str:
    """A text whose beginning is kept where it doesn't fit.

    Args:
        text: The text.
        room: How many columns there are.
        mark: What says that there is more.
    """
    if columns_of(text) <= room:
        return text
    kept, left = "", room - len(mark)
    for one in text:
        left -= columns_of(one)
        if left < 0:
            break
        kept += one
    return kept + mark


def shown(value: object) -> str:
    """A value on one line, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return cut(cleaned(text[: 4 * _MAX_SHOWN]), _MAX_SHOWN)


def main_line(error: str) -> str:
    """Return an error's first line; of a Python traceback, the line that names the exception."""
    lines = error.strip().splitlines() or [""]
    if "Traceback (most recent call last)" not in lines[0]:
        return lines[0]
    frames = [at for at, line in enumerate(lines) if line.startswith('  File "')]
    behind = lines[frames[-1] + 1 :] if frames else []
    # Behind the exception, its message may continue, or a sentence of ryecore's may follow.
    return next((line for line in behind if line and not line[0].isspace()), lines[-1])
