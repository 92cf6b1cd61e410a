"""Text in a picture: without what a drawing can't hold, and how wide it is."""

import unicodedata
from typing import Final

__all__ = ["clean", "shorten_end", "shorten_middle", "width_em"]

_NARROW: Final = frozenset("fijlrtI.,:;'|!()[]{}/\\ `·-")
_WIDE: Final = frozenset("mwMWGOQ@%—…→")
_NARROW_EM: Final = 0.4
_WIDE_EM: Final = 0.95
_CAPITAL_EM: Final = 0.72
_COMMON_EM: Final = 0.61
_FULL_EM: Final = 1.05


def clean(text: str) -> str:
    """A text on one line, without characters that XML forbids or that turn its direction."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    return "".join(
        one if one == " " or unicodedata.category(one)[0] not in "CZ" else "�"
        for one in " ".join(text.split())
    )


def width_em(text: str) -> float:
    """How wide a text is at most in a common sans-serif font, in units of its size."""
    return sum(map(_char_em, text))


def _char_em(char: str) -> float:
    if char in _NARROW:
        return _NARROW_EM
    if char in _WIDE:
        return _WIDE_EM
    if char.isascii():
        return _CAPITAL_EM if char.isupper() else _COMMON_EM
    if unicodedata.combining(char):
        return 0.0
    return _FULL_EM if unicodedata.east_asian_width(char) in "WFA" else _CAPITAL_EM


def shorten_end(text: str, room_em: float) -> str:
    """A text that fits; its beginning, where it is too long."""
    if width_em(text) <= room_em:
        return text
    return _beginning(text, room_em - _WIDE_EM) + "…"


def shorten_middle(text: str, room_em: float) -> str:
    """A text that fits; its beginning and its end, where it is too long."""
    if width_em(text) <= room_em:
        return text
    room_em -= _WIDE_EM
    first = _beginning(text, room_em * 0.4)
    last = _beginning(text[::-1], room_em - width_em(first))[::-1]
    return f"{first}…{last}"


def _beginning(text: str, room_em: float) -> str:
    for at, char in enumerate(text):
        room_em -= _char_em(char)
        if room_em < 0:
            return text[:at]
    return text
