"""A picture as mermaid text, which many pages and editors draw."""

import json
from typing import Final

from ryecore.display.picture import SIGNS, Box, BoxStatus, Line, Picture, Shape
from ryecore.display.sanitize import escape_mermaid, to_one_line
from ryecore.display.text import status_icon

__all__ = ["to_mermaid"]

_SHAPES: Final[dict[Shape, tuple[str, str]]] = {
    "box": ("[", "]"), "diamond": ("{", "}"), "round": ("([", "])"), "stack": ("[[", "]]"),
}  # fmt: skip
_ARROWS: Final = {"solid": "-->", "dashed": "-.->", "thick": "==>"}
_TAKEN: Final = "#0969da"


def to_mermaid(picture: Picture) -> str:
    """Return a picture as a mermaid flowchart.

    Its texts may come from anywhere: none is read as mermaid, markdown or HTML.
    """
    names = {box.id: f"n{at}" for at, box in enumerate(picture.boxes)}
    lines = []
    if picture.title:
        lines += [
            "---",
            f"title: {json.dumps(to_one_line(picture.title), ensure_ascii=False)}",
            "---",
        ]
    lines.append(f"flowchart {'TD' if picture.direction == 'down' else 'LR'}")
    lines += [f"    {names[box.id]}{_box(box)}" for box in picture.boxes]
    lines += [f"    {names[one.start]} {_arrow(one)} {names[one.end]}" for one in picture.lines]
    by_status: dict[BoxStatus, list[str]] = {}
    for box in picture.boxes:
        if box.status:
            by_status.setdefault(box.status, []).append(names[box.id])
    for status, boxes in by_status.items():
        tone = SIGNS[status].light
        dash = ",stroke-dasharray:5 3" if status == "skipped" else ""
        style = f"fill:{tone.fill},stroke:{tone.stroke},color:#1f2328{dash}"
        lines.append(f"    classDef {status} {style}")
        lines.append(f"    class {','.join(boxes)} {status}")
    taken = [str(at) for at, one in enumerate(picture.lines) if one.is_taken]
    if taken:
        lines.append(f"    linkStyle {','.join(taken)} stroke:{_TAKEN},stroke-width:2px")
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    sign = f"{status_icon(box.status)} " if box.status else ""
    before, behind = _SHAPES[box.shape]
    text = _quoted(
        "<br/>".join([sign + escape_mermaid(box.label), *map(escape_mermaid, box.details)])
    )
    return f"{before}{text}{behind}"


def _arrow(line: Line) -> str:
    label = escape_mermaid(line.label)
    return _ARROWS[line.kind] + (f"|{_quoted(label)}|" if label else "")


def _quoted(text: str) -> str:
    # Behind these words and a colon, mermaid takes the end of an escaped character for CSS.
    if "style" in text or "classDef" in text:
        text = text.replace(":", "#58;")
    return f'"{text}"'
