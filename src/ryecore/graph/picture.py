"""The picture of a graph, by itself or with the status of a run. Pure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ryecore.display.picture import Box, BoxStatus, Line, Picture
from ryecore.display.text import main_line
from ryecore.graph.projection import was_taken

if TYPE_CHECKING:
    from ryecore.graph.model import Graph, VertexOfGraph
    from ryecore.graph.projection import NodeStatus, RunStatus

__all__ = ["graph_picture"]

_START: Final = "start"


def graph_picture(graph: "Graph", run: "RunStatus | None" = None) -> Picture:
    """Draw a graph, with the status of a run or by itself."""
    ordered = sorted(graph.nodes.values(), key=lambda node: node.id != graph.start)
    boxes = [Box("", _START, shape="round", tooltip=str(graph.ref))]
    lines = [Line("", graph.start, is_taken=run is not None and graph.start in run.nodes)]
    for node in ordered:
        boxes.append(_box(node, run))
        lines.extend(_lines(node, run))
    return Picture(tuple(boxes), tuple(lines), str(graph.ref))


def _box(node: "VertexOfGraph", run: "RunStatus | None") -> Box:
    node_status = run.nodes.get(node.id) if run is not None else None
    status: BoxStatus = ""
    if node_status is not None:
        status = node_status.shown
    elif run is not None:
        status = "skipped" if run.ended else "pending"
    details = [*_does(node), *(_happened(node_status) if node_status is not None else ())]
    about = [node.id, *([node.description] if node.description else [])]
    return Box(
        node.id, node.id, tuple(details), node.kind.shape, status,
        tooltip="\n".join([*about, *details]),
    )  # fmt: skip


def _lines(node: "VertexOfGraph", run: "RunStatus | None") -> Iterable[Line]:
    taken = run.taken if run is not None else frozenset()
    for at, edge in enumerate(node.next):
        label = edge.label(is_last_of_several=at > 0)
        # The journal doesn't tell which of several edges to one node was taken.
        yield Line(node.id, edge.to, label, is_taken=was_taken(node, edge.to, taken))
    if node.on_error is not None:
        is_taken = (node.id, node.on_error, True) in taken
        yield Line(node.id, node.on_error, "on error", "dashed", is_taken)


def _does(node: "VertexOfGraph") -> list[str]:
    """Describe the work of a node."""
    match node.type:
        case "action":
            forked = ", in a thread" if node.action.thread == "fork" else ""
            return [f"{node.action.ref}{forked}"]
        case "foreach":
            most = f", {node.max_concurrency} at a time" if node.max_concurrency else ""
            at_once = f"{most or ', several at a time'}" if node.parallel else ""
            return [node.body, f"for each of {node.over.source}{at_once}"]
        case "agent":
            return [f"agent {node.agent.name}"]
        case _:
            return []


def _happened(node_status: "NodeStatus") -> list[str]:
    """Describe the status of a node, in at most three lines."""
    lines: list[str] = []
    if node_status.members is not None:
        failed = f", {node_status.failed} failed" if node_status.failed else ""
        lines.append(f"{node_status.done} of {node_status.members} done{failed}")
    if node_status.times:
        facts = [
            f"{node_status.times} times" if node_status.times > 1 else "",
            "remembered" if node_status.is_remembered else _seconds(node_status.elapsed_ms),
            f"try {node_status.tries}" if node_status.tries > 1 else "",
        ]
        lines += filter(None, [", ".join(one for one in facts if one)])
    if node_status.error:
        lines.append(main_line(node_status.error))
    return lines


def _seconds(elapsed_ms: float) -> str:
    """Format a duration; empty for a negligible one, such as that of a gate."""
    return f"{elapsed_ms / 1000:.1f} s" if elapsed_ms >= 50 else ""
