"""The piece of a text around the words that were found. Pure."""

from typing import Final

__all__ = ["HIT_END", "HIT_START", "MAX_PREVIEW_CHARACTERS", "excerpt", "plain"]

HIT_START: Final = "\x02"
HIT_END: Final = "\x03"
MAX_PREVIEW_CHARACTERS: Final = 200
_BEFORE: Final = 60


def plain(text: str) -> str:
    """Text as it is indexed: what isn't printable, line ends too, is a space."""
    return "".join(char if char.isprintable() else " " for char in text)


def excerpt(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Cut a text to a preview.

    Args:
        marked: The text, each word that was found between `HIT_START` and `HIT_END`.

    Returns:
        At most 200 characters on one line, and where the words that were found begin and end.
    """
    text, hits, opened = "", [], 0
    for char in " ".join(marked.split()):
        if char == HIT_START:
            opened = len(text)
        elif char == HIT_END:
            hits.append((opened, len(text)))
        else:
            text += char
    start = 0
    if len(text) > MAX_PREVIEW_CHARACTERS and hits and hits[0][1] > MAX_PREVIEW_CHARACTERS:
        start = max(0, hits[0][0] - _BEFORE)
    end = min(len(text), start + MAX_PREVIEW_CHARACTERS)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    shown = before + text[start + len(before) : end - len(after)] + after
    inside = range(start + len(before), end - len(after) + 1)
    return shown, tuple(
        (first - start, last - start) for first, last in hits if first in inside and last in inside
    )
