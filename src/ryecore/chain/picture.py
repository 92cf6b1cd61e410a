"""A chain as a picture: what leads to the process, where it was found, and what vouches for it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ryecore.display.picture import Box, BoxStatus, Line, Picture
from ryecore.display.text import counted

if TYPE_CHECKING:
    from ryecore.chain.elements import ChainElement, Link

__all__ = ["chain_picture"]


def chain_picture(
    elements: "Sequence[ChainElement]",
    links: "Sequence[Link]",
    events: Iterable[Mapping[str, Any]] = (),
    *,
    status: BoxStatus = "",
) -> Picture:
    """Draw a chain: the tool, its runtimes, the primitive that runs them, and the items they name.

    The events of its trace tell what each element shadows, and which files beside the tool it may
    import. The status is that of its tool's execution; empty where nothing ran.
    """
    boxes: list[Box] = []
    lines: list[Line] = []
    for at, element in enumerate(elements):
        boxes.append(_element(str(at), element, status if at == 0 else ""))
        if at:
            lines.append(Line(str(at - 1), str(at), is_taken=bool(status)))
    places = {element.item_id: str(at) for at, element in enumerate(elements)}
    for at, link in enumerate(links):
        boxes.append(_element(f"link {at}", link.element, ""))
        if link.taken_by in places:
            lines.append(Line(f"link {at}", places[link.taken_by], kind="dashed"))
    for event in events:
        if event.get("failed"):
            continue
        if event.get("step") == "resolve" and event.get("item_id") in places:
            _add_shadowed(boxes, lines, places[event["item_id"]], event.get("shadowed", ()))
        elif event.get("step") == "seal" and elements:
            _add_files(boxes, lines, event)
    return Picture(tuple(boxes), tuple(lines), legend=False, direction="right")


def _element(name: str, element: "ChainElement", status: BoxStatus) -> Box:
    integrity = element.integrity
    if integrity == "built-in":
        details = ["built in"]
    else:
        version = f", version {element.spec.version}" if element.spec.version else ""
        is_verified = integrity != "unverified"
        seal = f"✓ verified {integrity[:12]}" if is_verified else "⚠ unverified"
        details = [seal, f"{element.space}{version}"]
    path = [str(element.path)] if element.path else []
    return Box(
        name, element.item_id, tuple(details), status=status,
        tooltip="\n".join([element.item_id, *details, *path]),
    )  # fmt: skip


def _add_shadowed(
    boxes: list[Box], lines: list[Line], over: str, shadowed: Sequence[Mapping[str, Any]]
) -> None:
    for one in shadowed:
        name, path = f"shadowed {len(boxes)}", str(one.get("path", ""))
        boxes.append(
            Box(
                name,
                Path(path).name,
                (f"shadowed, {one.get('space', '')}",),
                status="skipped",
                tooltip=path,
            )
        )
        lines.append(Line(over, name, kind="dashed"))


def _add_files(boxes: list[Box], lines: list[Line], event: Mapping[str, Any]) -> None:
    """Add the files that are sealed with the tool, where it isn't the only one."""
    count, anchor, deps = event.get("files", 0), event.get("anchor"), str(event.get("deps"))
    if count <= 1 and not anchor and deps == "none":
        return
    details = [f"sealed {str(event.get('digest', ''))[:12]}", f"imports {deps}"]
    where = [f"below {anchor}"] if anchor else []
    label = counted(count, "file")
    boxes.append(
        Box("files", label, tuple(details), "stack", tooltip="\n".join([label, *details, *where]))
    )
    lines.append(Line("0", "files", kind="dashed"))
