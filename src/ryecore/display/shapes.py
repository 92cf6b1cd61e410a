"""The sizes of shapes and of their texts, and the position of their borders, in pixels."""

import math
import unicodedata
from typing import Final

from ryecore.display.picture import Box, Shape
from ryecore.display.sanitize import to_one_line
from ryecore.frozen import frozen

__all__ = [
    "BADGE",
    "BOLD",
    "DETAIL_SIZE",
    "LABEL_SIZE",
    "LINE_HEIGHT",
    "LINE_LABEL_SIZE",
    "STACKED",
    "Sized",
    "depth_at",
    "port_room",
    "shorten_end",
    "size_line_label",
    "size_of",
    "width_em",
]

LABEL_SIZE: Final = 13.0
DETAIL_SIZE: Final = 11.0
LINE_LABEL_SIZE: Final = 11.0
LINE_HEIGHT: Final = 16.0
BOLD: Final = 1.12
"""The factor by which bold text is wider."""
BADGE: Final = 16.0
"""The width of a status icon."""
STACKED: Final = 4.0
"""The shift of each of the two boxes behind the first one of a stack."""

_NARROW: Final = frozenset("fijlrtI.,:;'|!()[]{}/\\ `·-")
_WIDE: Final = frozenset("mwMWGOQ@%—…→")
_NARROW_EM: Final = 0.4
_WIDE_EM: Final = 0.95
_CAPITAL_EM: Final = 0.72
_COMMON_EM: Final = 0.61
_FULL_EM: Final = 1.05

_PADDING: Final = 12.0
_BADGE_GAP: Final = 8.0
_MAX_LABEL_EM: Final = 22.0
_MAX_DETAIL_EM: Final = 28.0
_MAX_DETAILS: Final = 8
_MAX_LINE_LABEL_EM: Final = 20.0
_LEAST_WIDTH: Final = 48.0
_DIAMOND_STRETCH: Final = 2.1
"""The height of a diamond, in heights of its text."""


@frozen
class Sized:
    """A box with the texts it shows, and its size. `text_width` includes the status icon."""

    box: Box
    label: str
    details: tuple[str, ...]
    text_width: float
    width: float
    height: float

    @property
    def text_height(self) -> float:
        """The height of all its texts."""
        return LINE_HEIGHT * (1 + len(self.details))

    @property
    def badge_width(self) -> float:
        """The part of the texts' width that its status icon takes."""
        return BADGE + _BADGE_GAP if self.box.status else 0.0


def size_of(box: Box) -> Sized:
    """Measure a box; texts that are too long are shortened."""
    label = shorten_middle(to_one_line(box.label), _MAX_LABEL_EM)
    details = [shorten_end(to_one_line(one), _MAX_DETAIL_EM) for one in box.details]
    if len(details) > _MAX_DETAILS:
        details = [*details[: _MAX_DETAILS - 1], f"… {len(details) - _MAX_DETAILS + 1} more"]
    text_width = max(
        width_em(label) * LABEL_SIZE * BOLD,
        *(width_em(one) * DETAIL_SIZE for one in details),
        0.0,
    )
    badge = BADGE + _BADGE_GAP if box.status else 0.0
    text_width += badge
    text_height = LINE_HEIGHT * (1 + len(details))
    width, height = max(text_width + 2 * _PADDING, _LEAST_WIDTH), text_height + 1.4 * _PADDING
    if box.shape == "diamond":
        height = _DIAMOND_STRETCH * text_height + _PADDING
        width = max((text_width + _PADDING) / (1 - text_height / height), _LEAST_WIDTH * 1.5)
    elif box.shape == "round":
        width += height / 3
    elif box.shape == "stack":
        width, height = width + 2 * STACKED, height + 2 * STACKED
    return Sized(box, label, tuple(details), text_width, _even(width), _even(height))


def size_line_label(label: str) -> tuple[str, float, float]:
    """Return the label of a line as it is shown, its width and its height."""
    shown = shorten_end(to_one_line(label), _MAX_LINE_LABEL_EM)
    if not shown:
        return "", 0.0, 0.0
    return shown, _even(width_em(shown) * LINE_LABEL_SIZE + 10), LINE_HEIGHT + 2


def port_room(shape: Shape, side: float, across: float) -> float:
    """Return how far from the middle of a side a line may meet it."""
    if shape == "diamond":
        return side * 0.2
    if shape == "round":
        return max((side - min(side, across)) / 2, 0.0)
    return max(side / 2 - 14, 0.0)


def depth_at(shape: Shape, offset: float, side: float, across: float) -> float:
    """Return how far behind the edge of a box's rectangle its border is."""
    if shape == "diamond":
        return abs(offset) / (side / 2) * across / 2
    return 0.0


def _even(length: float) -> float:
    return 2.0 * math.ceil(length / 2)


# Widths of text


def width_em(text: str) -> float:
    """Return how wide a text is at most in a common sans-serif font, in units of its size."""
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
    """Cut a text at its end where it is too long."""
    if width_em(text) <= room_em:
        return text
    return _beginning(text, room_em - _WIDE_EM) + "…"


def shorten_middle(text: str, room_em: float) -> str:
    """Cut a text in its middle where it is too long."""
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
