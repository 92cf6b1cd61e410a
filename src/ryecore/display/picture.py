"""A picture: boxes with statuses, and lines between them."""

from typing import Final, Literal

from attrs import field

from ryecore.display.text import BoxStatus
from ryecore.frozen import frozen

__all__ = [
    "SIGNS",
    "Box",
    "BoxStatus",
    "Direction",
    "Line",
    "LineKind",
    "Picture",
    "Shape",
    "StatusSign",
    "Tone",
]

Shape = Literal["box", "diamond", "round", "stack"]
"""A step, a decision, a start or an end, and something that is done several times."""
LineKind = Literal["solid", "dashed", "thick"]
Direction = Literal["down", "right"]


@frozen
class Box:
    """A box in a picture.

    Lines refer to its `id`, which is not shown. Without a `tooltip`, its whole label is one.
    """

    id: str
    label: str
    details: tuple[str, ...] = ()
    shape: Shape = "box"
    status: BoxStatus = ""
    tooltip: str = ""


@frozen
class Line:
    """An arrow from one box to another, or to the same one; `is_taken` if the run followed it."""

    start: str
    end: str
    label: str = ""
    kind: LineKind = "solid"
    is_taken: bool = False


@frozen
class Picture:
    """Boxes, placed in their order where nothing else decides, and lines.

    `legend` is whether the icons of its statuses are explained below it.
    """

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...] = field()
    title: str = ""
    legend: bool = True
    direction: Direction = "down"

    @lines.validator  # pyright: ignore[reportAttributeAccessIssue]
    def _lead_somewhere(self, _: object, lines: tuple[Line, ...]) -> None:
        ids = {box.id for box in self.boxes}
        if len(ids) < len(self.boxes):
            raise ValueError("Two boxes of a picture have the same id.")
        for line in lines:
            for end in (line.start, line.end):
                if end not in ids:
                    raise ValueError(f"A line of the picture leads to no box: {end!r}.")


# How statuses are drawn


@frozen
class Tone:
    """The colours of a status on a light or a dark background."""

    fill: str
    stroke: str


@frozen
class StatusSign:
    """The icon of a status in a drawing, and its colours."""

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

SIGNS: Final[dict[BoxStatus, StatusSign]] = {
    "pending": StatusSign("M-3.2 0h.01M0 0h.01M3.2 0h.01", False, *_GREY),
    "running": StatusSign("M-2-3.6 3.8 0-2 3.6z", True, *_BLUE),
    "retrying": StatusSign("M2.6 2.3A3.5 3.5 0 1 1 2.6-2.3M3.4-4.2 2.9-1.9.6-2.5", False, *_ORANGE),
    "completed": StatusSign("M-3.6.2-1 2.8 3.6-2.5", False, *_GREEN),
    "completed_with_errors": StatusSign("M0-3.6v4M0 3.2h.01", False, *_OCHRE),
    "failed": StatusSign("M-2.7-2.7 2.7 2.7M2.7-2.7-2.7 2.7", False, *_RED),
    "cancelled": StatusSign("M-2.8-2.8h5.6v5.6h-5.6z", True, *_OCHRE),
    "skipped": StatusSign("M-3.4-2.8-.6 0-3.4 2.8M.4-2.8 3.2 0 .4 2.8", False, *_GREY),
}
"""The icons of all statuses, in the order of a legend."""
