"""Excerpts: the part of a text around the words that were found. Pure, and linear in the length.

The time of SQLite's own `snippet` and `highlight` is quadratic in the hits, so that one file could
delay every search.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from ryecore.display.sanitize import replace_controls

__all__ = ["MAX_PREVIEW_CHARACTERS", "beginning", "excerpt", "plain"]

MAX_PREVIEW_CHARACTERS: Final = 200
_BEFORE: Final = 60
_MAX_PHRASES: Final = 16
_MAX_TRIES: Final = 200
# As in FTS5's unicode61, letters and digits make words, and an underscore separates them.
_WORDS: Final = re.compile(r"[^\W_]+")
_GAP: Final = r"[\W_]+"


def plain(text: str) -> str:
    """Return a text as it is indexed, with a space for each character that isn't printable."""
    return replace_controls(text, " ")


def excerpt(text: str, phrases: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return at most 200 characters of a text on one line, and the places of the hits in them.

    Both are empty where the text has no hit. A phrase that ends in `*` matches beginnings of words.
    """
    text = " ".join(text.split())
    folded = text.translate(_FOLD)
    patterns = [pattern for phrase in phrases[:_MAX_PHRASES] if (pattern := _pattern(phrase))]
    found = [place for word, regex in patterns if (place := _first(folded, word, regex))]
    if not found:
        return "", ()
    first, last = min(found)
    start = max(0, first - _BEFORE) if last > MAX_PREVIEW_CHARACTERS else 0
    end = min(len(text), start + MAX_PREVIEW_CHARACTERS)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    inside = (start + len(before), end - len(after))
    hits = {
        (hit.start() - start, hit.end() - start)
        for _, regex in patterns
        for hit in regex.finditer(folded, *inside)
    }
    return before + text[inside[0] : inside[1]] + after, _apart(sorted(hits))


def beginning(text: str) -> str:
    """Return the first 200 characters of a text, on one line."""
    text = " ".join(text[: 4 * MAX_PREVIEW_CHARACTERS].split())
    cut = text[: MAX_PREVIEW_CHARACTERS - 1]
    return text if len(text) <= MAX_PREVIEW_CHARACTERS else f"{cut}…"


def _pattern(phrase: str) -> tuple[str, re.Pattern[str]] | None:
    """Return the first word of a phrase, and the pattern of the phrase in a folded text."""
    words = _WORDS.findall(phrase.translate(_FOLD))
    if not words:
        return None
    end = "" if phrase.endswith("*") else r"(?![^\W_])"
    return words[0], re.compile(rf"(?<![^\W_]){_GAP.join(map(re.escape, words))}{end}")


def _first(folded: str, word: str, regex: re.Pattern[str]) -> tuple[int, int] | None:
    """Return the first place of a phrase. A text of near misses is given up after some tries."""
    at = -1
    for _ in range(_MAX_TRIES):
        at = folded.find(word, at + 1)
        if at < 0:
            return None
        if hit := regex.match(folded, at):
            return hit.span()
    return None


def _apart(hits: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the hits that don't overlap an earlier one."""
    kept: list[tuple[int, int]] = []
    for first, last in hits:
        if not kept or first >= kept[-1][1]:
            kept.append((first, last))
    return tuple(kept)


class _Fold(dict[int, str]):
    """A translation table that removes case and diacritics character by character."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        base = unicodedata.normalize("NFD", char)[:1].lower()
        self[code] = base if len(base) == 1 else char
        return self[code]


_FOLD: Final = _Fold()
