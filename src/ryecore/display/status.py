"""The signs and colours of statuses: told apart without colour too."""

from typing import Final

from attrs import frozen

from ryecore.display.picture import BoxStatus

__all__ = ["SIGNS", "Sign", "Tone"]


@frozen
class Tone:
    """The colours of a status on a light or a dark ground.

    Attributes:
        fill: Of the box.
        stroke: Of its border, and of its sign.
    """

    fill: str
    stroke: str


@frozen
class Sign:
    """What a status looks like.

    Attributes:
        char: Its sign as text.
        path: Its sign as an SVG path around 0,0 that is at most 8 wide.
        is_filled: Whether the path is filled; else it is a line.
        light: Its colours on a light ground.
        dark: Its colours on a dark ground.
    """

    char: str
    path: str
    is_filled: bool
    light: Tone
    dark: Tone


_GREY: Final = (Tone("#f6f8fa", "#6e7781"), Tone("#1c2128", "#8b949e"))
_BLUE: Final = (Tone("#e9f2fe", "#0969da"), Tone("#13233a", "#58a6ff"))
_GREEN: Final = (Tone("#e9f7ed", "#1a7f37"), Tone("#12261a", "#3fb950"))
_RED: Final = (Tone("#feeceb", "#cf222e"), Tone("#2f1719", "#f85149"))
_ORANGE: Final = (Tone("#fff3e0", "#bc4c00"), Tone("#2e1f10", "#f0883e"))
_OCHRE: Final = (Tone("#fbf5dd", "#8a6100"), Tone("#282211", "#d29922"))

SIGNS: Final[dict[BoxStatus, Sign]] = {
    "pending": Sign("…", "M-3.2 0h.01M0 0h.01M3.2 0h.01", False, *_GREY),
    "running": Sign("▸", "M-2-3.6 3.8 0-2 3.6z", True, *_BLUE),
    "retrying": Sign("↻", "M2.6 2.3A3.5 3.5 0 1 1 2.6-2.3M3.4-4.2 2.9-1.9.6-2.5", False, *_ORANGE),
    "completed": Sign("✓", "M-3.6.2-1 2.8 3.6-2.5", False, *_GREEN),
    "failed": Sign("✗", "M-2.7-2.7 2.7 2.7M2.7-2.7-2.7 2.7", False, *_RED),
    "cancelled": Sign("■", "M-2.8-2.8h5.6v5.6h-5.6z", True, *_OCHRE),
    "skipped": Sign("»", "M-3.4-2.8-.6 0-3.4 2.8M.4-2.8 3.2 0 .4 2.8", False, *_GREY),
}
"""In the order in which a legend explains them."""
