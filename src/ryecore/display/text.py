"""Lines of styled text, and texts that fit into columns: for a terminal, a notebook or a log."""

import json
import unicodedata
from typing import Final

from attrs import field, frozen

from ryecore.display.sanitize import escape_controls, escape_html, to_one_line

__all__ = ["Span", "StyledText", "brief", "count_columns", "cut", "cut_start", "main_line"]

_ANSI: Final = {
    "good": "32", "bad": "31", "warn": "33", "dim": "2", "strong": "1", "id": "36",
}  # fmt: skip
_CSS: Final = {
    "good": "color:#2da44e", "bad": "color:#e5534b", "warn": "color:#bf8700",
    "dim": "opacity:.6", "strong": "font-weight:600", "id": "color:#3b8eea",
}  # fmt: skip

Span = tuple[str, str]
"""A text and its style."""


@frozen
class StyledText:
    """Lines of styled spans, which a terminal, a notebook or a log can show."""

    lines: list[list[Span]] = field(factory=list)

    def line(self, *spans: str | Span) -> None:
        """Add a line of plain texts and (text, style) pairs."""
        self.lines.append([(span, "") if isinstance(span, str) else span for span in spans])

    def add(self, other: "StyledText", indent: str = "") -> None:
        """Add another text's lines."""
        self.lines.extend([(indent, ""), *line] for line in other.lines)

    def plain(self) -> str:
        """Return the text without styles."""
        return "\n".join(
            escape_controls("".join(text for text, _ in line).rstrip()) for line in self.lines
        )

    def ansi(self) -> str:
        """Return the text for a terminal."""
        return "\n".join(
            "".join(
                f"\x1b[{_ANSI[style]}m{escape_controls(text)}\x1b[0m"
                if style
                else escape_controls(text)
                for text, style in line
            )
            for line in self.lines
        )

    def html(self) -> str:
        """Return the text for a notebook: self-contained, nothing is loaded."""
        body = "\n".join(
            "".join(
                f'<span style="{_CSS[style]}">{escape_html(text)}</span>'
                if style
                else escape_html(text)
                for text, style in line
            )
            for line in self.lines
        )
        return f'<pre style="line-height:1.4;white-space:pre-wrap">{body}</pre>'


# Texts that have to fit into columns


def count_columns(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def cut_start(name: str, room: int) -> str:
    """Cut a name at its start where it doesn't fit: its end says most."""
    return name if count_columns(name) <= room else f"…{cut(name[::-1], room, mark='')[::-1][1:]}"


def cut(text: str, room: int, mark: str = "…") -> str:
    """Cut a text at its end where it doesn't fit.

    Args:
        mark: What stands for the rest.
    """
    if count_columns(text) <= room:
        return text
    kept, left = "", room - len(mark)
    for one in text:
        left -= count_columns(one)
        if left < 0:
            break
        kept += one
    return kept + mark


def brief(value: object, columns: int = 400) -> str:
    """Return a value on one line, cut where it is long; JSON unless it is a text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return cut(to_one_line(text[: 4 * columns]), columns)


def main_line(error: str) -> str:
    """Return an error's first line; of a Python traceback, the line that names the exception."""
    lines = error.strip().splitlines() or [""]
    if "Traceback (most recent call last)" not in lines[0]:
        return lines[0]
    frames = [at for at, line in enumerate(lines) if line.startswith('  File "')]
    behind = lines[frames[-1] + 1 :] if frames else []
    # Behind the exception, its message may continue, or a sentence of ryecore's may follow.
    return next((line for line in behind if line and not line[0].isspace()), lines[-1])
