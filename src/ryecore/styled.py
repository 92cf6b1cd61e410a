"""Text with styles, for a terminal, a notebook or a log."""

from typing import Final

from attrs import field, frozen

__all__ = ["Span", "StyledText", "is_visible", "printable"]

_ANSI: Final = {
    "good": "32", "bad": "31", "warn": "33", "dim": "2", "strong": "1", "id": "36",
}  # fmt: skip
_CSS: Final = {
    "good": "color:#2da44e", "bad": "color:#e5534b", "warn": "color:#bf8700",
    "dim": "opacity:.6", "strong": "font-weight:600", "id": "color:#3b8eea",
}  # fmt: skip

_INVISIBLE: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800),
        (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0x1D159, 0x1D159),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)  # fmt: skip
"""Characters that Python counts as printable, though nothing shows: fillers and joiners.

Source: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point.
"""

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
        """The text without styles."""
        return "\n".join(
            printable("".join(text for text, _ in line).rstrip()) for line in self.lines
        )

    def ansi(self) -> str:
        """The text for a terminal."""
        return "\n".join(
            "".join(
                f"\x1b[{_ANSI[style]}m{printable(text)}\x1b[0m" if style else printable(text)
                for text, style in line
            )
            for line in self.lines
        )

    def html(self) -> str:
        """The text for a notebook: self-contained, nothing is loaded."""
        import html  # noqa: PLC0415 - for notebooks alone

        body = "\n".join(
            "".join(
                f'<span style="{_CSS[style]}">{html.escape(printable(text))}</span>'
                if style
                else html.escape(printable(text))
                for text, style in line
            )
            for line in self.lines
        )
        return f'<pre style="line-height:1.4;white-space:pre-wrap">{body}</pre>'


def printable(text: str) -> str:
    """Return a text whose control and bidirectional characters are escaped: it steers nothing."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def is_visible(char: str) -> bool:
    """Return whether a character shows as something; a space does, other blanks don't.

    Text that must not deceive (a name, a question, a stranger's words) is held to this. Other text
    may hold what only `printable` escapes: emoji, for one, end in a variation selector.

    Args:
        char: One character.
    """
    return char.isprintable() and char not in _INVISIBLE
