"""What is drawn: boxes, and lines between them."""

from typing import Literal

from attrs import field, frozen

__all__ = ["Box", "BoxStatus", "Direction", "Line", "LineKind", "Picture", "Shape"]

Shape = Literal["box", "diamond", "round", "stack"]
"""A step, a decision, a beginning or an end, and what is done several times."""
BoxStatus = Literal[
    "", "pending", "running", "completed", "failed", "skipped", "cancelled", "retrying"
]
LineKind = Literal["solid", "dashed", "thick"]
Direction = Literal["down", "right"]


@frozen
class Box:
    """Something in a picture.

    Attributes:
        id: What lines know it by; it is not shown.
        label: What it is called. A long one is shortened where it is drawn.
        details: Lines that stand below its label.
        shape: How it is drawn.
        status: Where it stands; empty where that isn't to be said.
        tooltip: What is shown where the pointer rests on it; its whole label, if empty.
    """

    id: str
    label: str
    details: tuple[str, ...] = ()
    shape: Shape = "box"
    status: BoxStatus = ""
    tooltip: str = ""


@frozen
class Line:
    """An arrow from one box to another, or to the same one.

    Attributes:
        start: The id of the box that it leaves.
        end: The id of the box that it leads to.
        label: What stands on it.
        kind: How it is drawn.
        is_taken: Whether what is shown went along it.
    """

    start: str
    end: str
    label: str = ""
    kind: LineKind = "solid"
    is_taken: bool = False


@frozen
class Picture:
    """Boxes and lines.

    Attributes:
        boxes: The boxes. Where nothing else decides, they are placed in this order.
        lines: The lines between them.
        title: What stands above it.
        legend: Whether the signs of the statuses that it has are explained below it.
        direction: Where lines lead, as far as they can.

    Raises:
        ValueError: Two boxes have one id, or a line leads to none.
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
