"""Text that others wrote, made harmless for the place where people read it.

A tool, a model, an MCP server or a cloned repository chooses the text. Shown as it is, it could
move a terminal's cursor, forge a line, hide a word or turn the direction of the rest. Every surface
(terminal, log, warning, notebook, SVG, mermaid, JSON, Markdown, a question for approval) uses one
of the functions below, and all of them follow the same two tables of characters.
"""

import json
import re
import warnings
from typing import Final

__all__ = [
    "RyeWarning",
    "drop_invisible",
    "escape_controls",
    "escape_html",
    "escape_json",
    "escape_markdown",
    "escape_mermaid",
    "is_visible",
    "replace_controls",
    "replace_invisible",
    "shorten",
    "to_one_line",
    "warn",
]

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

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

_MARKDOWN_CONTROLS: Final = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\uffff\ud800-\udfff"
    "\U0001d159\U000e0000-\U000e0fff]"
)
"""Controls, and what doesn't show. Prose keeps its blanks, and its emoji their selectors."""

_MERMAID_SYNTAX: Final = (
    r"""["#&<>`\\%{}*~;|\[\]()@^$!=]"""  # what mermaid, HTML or markdown would read
    r"|(?<![^\W_])_|_(?![^\W_])"  # emphasis
    r"|:(?=//)|(?<=www)\."  # a link
    r"|^[-+]|(?<=^\d)\.|(?<=^\d\d)\.|(?<=^\d\d\d)\."  # a list
)


def is_visible(char: str) -> bool:
    """Return whether a character shows as something; a space does, other blanks don't.

    Text that must not deceive (a name, a question, a stranger's words) is held to this. Other text
    is only kept from steering: emoji, for one, end in an invisible variation selector.
    """
    return char.isprintable() and char not in _INVISIBLE


# Lines for a terminal, a log or an error: controls are spelled out


def escape_controls(text: str, *, keep: str = "\t") -> str:
    r"""Spell out control, formatting and bidirectional characters, such as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def replace_controls(text: str, by: str = _REPLACEMENT, *, keep: str = "") -> str:
    """Replace each character that `escape_controls` escapes with `by`, except those of `keep`."""
    if text.isprintable():
        return text
    replaced = {ord(char): by for char in set(text) if not (char.isprintable() or char in keep)}
    return text.translate(replaced)  # a text has few different characters


def to_one_line(text: str) -> str:
    """Join a text's lines into one, with single blanks and without control characters."""
    return replace_controls(" ".join(text.split()))


def shorten(text: str, max_chars: int = 5000) -> str:
    """Return a text for an error: where it is long, its beginning and how much more there is."""
    more = len(text) - max_chars
    return text if more <= 0 else f"{text[:max_chars]}… {more} more characters"


# Text that must not deceive


def replace_invisible(text: str) -> str:
    """Replace every character that doesn't show, line ends included."""
    return "".join(char if is_visible(char) else _REPLACEMENT for char in text)


def drop_invisible(text: str) -> str:
    """Leave out every character that doesn't show; blanks and line ends stay."""
    return "".join(char for char in text if char.isspace() or is_visible(char))


# Text inside a format


def escape_html(text: str, *, keep: str = "\t") -> str:
    """Escape a text for HTML or SVG, and spell out its control characters."""
    import html  # noqa: PLC0415 - only for notebooks and pictures

    return html.escape(escape_controls(text, keep=keep))


def escape_json(document: str) -> str:
    r"""Escape controls inside a JSON document's strings as `\u001b`, which means the same to JSON.

    The document's own line ends stay.
    """
    if document.replace("\n", "").isprintable():
        return document
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in document
    )


def escape_markdown(text: str) -> str:
    r"""Spell out what doesn't show in prose, such as `\x1b`, and end lines by line feeds."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return re.sub(
        _MARKDOWN_CONTROLS,
        lambda found: found[0].encode("unicode_escape").decode(),
        text.replace("\r\n", "\n"),
    )


def escape_mermaid(text: str) -> str:
    """Write a text on one line, so that nothing of it is read as mermaid, Markdown or HTML."""
    return re.sub(_MERMAID_SYNTAX, lambda found: f"#{ord(found.group())};", to_one_line(text))


# Warnings whose text can't steer a terminal


# Python prints the file that a warning names unescaped. A caller's file could be a clone's.
_WHERE: Final = "<ryecore>"
_REGISTRY: Final[dict[str | tuple[str, type[Warning], int], int]] = {}


class RyeWarning(UserWarning):
    """A warning for a person. The work continues."""


def warn(text: str) -> None:
    """Warn once for each text, unless Python's filters say otherwise.

    Control characters are escaped, because the text may hold the names of a stranger's files.
    """
    warnings.warn_explicit(
        escape_controls(text), RyeWarning, _WHERE, 1, module="ryecore", registry=_REGISTRY
    )
