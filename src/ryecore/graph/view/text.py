"""A graph as text: for a terminal of any width, by itself or with what happened in a run. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from ryecore.display.figures import duration
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import Span, StyledText, columns_of, cut, main_line, shown
from ryecore.graph.model import (
    ActionVertex,
    AgentVertex,
    ForeachVertex,
    Graph,
    ReturnVertex,
    VertexOfGraph,
)
from ryecore.graph.view.seen import NodeSeen, RunSeen, went_along
from ryecore.graph.view.wording import edge_text

__all__ = [
    "MARKS",
    "Facts",
    "add_facts",
    "add_nodes",
    "bar",
    "document_of",
    "does_text",
    "happened",
    "render_graph",
]

MARKS: Final[Mapping[str, Span]] = {
    "": ("  ", ""),
    "pending": ("· ", "dim"),
    "skipped": ("· ", "dim"),
    "running": ("▸ ", "id"),
    "retrying": ("↻ ", "warn"),
    "completed": ("✓ ", "good"),
    "completed_with_errors": ("✓ ", "warn"),
    "failed": ("✗ ", "bad"),
    "error": ("✗ ", "bad"),
    "cancelled": ("■ ", "warn"),
    "killed": ("✗ ", "bad"),
    "created": ("· ", "dim"),
    "continued": ("» ", "good"),
}
"""What stands before a node or a run, by its status."""

Facts = list[tuple[str, list[Span | str]]]
"""Rows of a name and what there is to say."""

_LEAST_WIDTH: Final = 40
_MOST_NAME: Final = 28
_MAX_NODES: Final = 500
_LEAST_MS: Final = 50
"""What takes less takes no time worth a word: a gate, for one."""


def render_graph(graph: Graph, seen: RunSeen | None = None, *, width: int = 80) -> StyledText:
    """Show a graph: its nodes in order, what they do, and where they lead.

    Args:
        graph: The graph.
        seen: What happened in a run of it; None for the graph by itself.
        width: How many columns there are.
    """
    text = StyledText()
    nodes = len(graph.nodes)
    count = f"{nodes} node{'' if nodes == 1 else 's'}"
    version = f"  {graph.version}" if graph.version else ""
    text.line((str(graph.ref), "strong"), (version, "dim"), (f"  {count}", "dim"))
    add_facts(text, _about(graph), width)
    text.line("")
    add_nodes(text, graph, seen, width=width)
    return text


def _about(graph: Graph) -> Facts:
    facts: Facts = []
    if graph.description:
        facts.append(("", [graph.description]))
    facts.append(("file", [str(graph.path)]))
    inputs = _inputs(graph.input_schema)
    if inputs:
        facts.append(("inputs", [inputs]))
    if graph.env_requires:
        facts.append(("needs", [", ".join(graph.env_requires)]))
    facts.append(("may", [", ".join(graph.permissions) or "nothing"]))
    passes = "an error ends it" if graph.on_error == "fail" else "errors are passed over"
    bounds = f"{graph.max_steps:,} steps, {graph.max_concurrency} at once; {passes}"
    facts.append(("bounds", [bounds]))
    return facts


def _inputs(schema: Mapping[str, object] | None) -> str:
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return ""
    required = (schema or {}).get("required")
    needed = required if isinstance(required, list) else []
    said: list[str] = []
    for name, part in properties.items():
        kind = part.get("type") if isinstance(part, Mapping) else None
        kinds = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind or "anything")
        said.append(f"{name} ({kinds}{'' if name in needed else ', optional'})")
    return ", ".join(said)


def document_of(graph: Graph) -> dict[str, object]:
    """A graph as a JSON-ready object: its nodes, what they do, and where they lead."""
    return {
        "status": "success",
        "item_id": str(graph.ref),
        "path": str(graph.path),
        "description": graph.description,
        "start": graph.start,
        "max_steps": graph.max_steps,
        "max_concurrency": graph.max_concurrency,
        "on_error": graph.on_error,
        "permissions": list(graph.permissions),
        "input_schema": graph.input_schema,
        "state": dict(graph.state),
        "nodes": {node.id: _node_document(node) for node in graph.nodes.values()},
    }


def _node_document(node: VertexOfGraph) -> dict[str, object]:
    document: dict[str, object] = {"type": node.type, "line": node.line}
    if isinstance(node, ActionVertex | ForeachVertex):
        document["item_id"] = str(node.action.ref)
    if isinstance(node, AgentVertex):
        document["agent"] = node.agent.name
    document["next"] = [
        {"to": edge.to, "when": None if edge.when is None else edge.when.to_dict()}
        for edge in node.next
    ]
    document["on_error"] = node.on_error
    return document


def add_facts(text: StyledText, facts: Facts, width: int) -> None:
    """Add rows of a name and what there is to say, cut to the columns that there are."""
    room = max(width, _LEAST_WIDTH) - 10
    for name, spans in facts:
        line: list[Span] = [(f"  {name:<8}", "dim")]
        left = room
        for span in spans:
            said, style = span if isinstance(span, tuple) else (span, "")
            before, after = said[: len(said) - len(said.lstrip())], said[len(said.rstrip()) :]
            kept = cut(
                f"{before}{to_one_line(said)}{after}" if said.strip() else said, max(left, 1)
            )
            left -= columns_of(kept)
            line.append((kept, style))
            if left <= 0:
                break
        text.line(*line)


def add_nodes(text: StyledText, graph: Graph, seen: RunSeen | None, *, width: int) -> None:
    """Add a graph's nodes, the first one first, with their edges."""
    width = max(width, _LEAST_WIDTH)
    ordered = sorted(graph.nodes.values(), key=lambda node: node.id != graph.start)
    names = min(max(columns_of(to_one_line(node.id)) for node in ordered), _MOST_NAME)
    for node in ordered[:_MAX_NODES]:
        _add_node(text, graph, node, seen, names, width)
    if len(ordered) > _MAX_NODES:
        text.line((f"  … {len(ordered) - _MAX_NODES:,} more nodes", "dim"))


def _add_node(
    text: StyledText,
    graph: Graph,
    node: VertexOfGraph,
    seen: RunSeen | None,
    names: int,
    width: int,
) -> None:
    known = None if seen is None else seen.nodes.get(node.id)
    status = "" if seen is None else "skipped" if seen.ended else "pending"
    status = status if known is None else known.status
    name = cut(to_one_line(node.id), names)
    dim = status in ("skipped", "pending")
    room = width - names - 13
    spans: list[Span] = [
        MARKS[status],
        (name + " " * (names - columns_of(name)), "dim" if dim else "strong"),
        (f"  {node.type:<9}", "dim"),
    ]
    said = "  ".join(happened(known)) if known is not None else ""
    does = cut(to_one_line(does_text(node)), max(room - (columns_of(said) + 2 if said else 0), 1))
    spans.append((does, "dim" if dim else ""))
    edges = list(_edges(graph, node, seen))
    left = room - columns_of(does) - (columns_of(said) + 2 if said else 0)
    if len(edges) == 1 and not edges[0][1] and left >= columns_of(edges[0][0]) + 4:
        to, _, style = edges.pop()
        spans.append((f"{'  ' if does else ''}→ {to_one_line(to)}", style))
    if said:
        spans.append((f"  {said}", "dim"))
    text.line(*spans)
    indent = " " * (names + 13)
    for to, why, style in edges:
        target = cut(to_one_line(to), max(room - 2, 1))
        rest = room - columns_of(target) - 4
        text.line(
            indent,
            (f"→ {target}", style),
            (f"  {cut(to_one_line(why), rest)}" if why and rest > 1 else "", "dim"),
        )
    if known is not None and known.error:
        text.line(indent, (cut(to_one_line(main_line(known.error)), max(room, 1)), "bad"))


def _edges(
    graph: Graph, node: VertexOfGraph, seen: RunSeen | None
) -> Iterator[tuple[str, str, str]]:
    """Where a node leads: to what, why, and in which style."""
    taken = frozenset() if seen is None else seen.taken
    for at, edge in enumerate(node.next):
        went = went_along(node, edge.to, taken)
        style = "good" if went else "dim" if seen is not None else ""
        yield edge.to, edge_text(edge.when, is_last_of_several=at > 0), style
    if node.on_error is not None:
        went = (node.id, node.on_error, True) in taken
        yield node.on_error, "on error", "warn" if went else "dim"


def does_text(node: VertexOfGraph) -> str:
    """What a node does, in few words."""
    match node:
        case ActionVertex():
            facts = [f"{node.action.ref}{' in a thread' if node.action.thread == 'fork' else ''}"]
            facts += [f"up to {node.tries.max} tries"] if node.tries.max > 1 else []
            facts += ["remembered"] if node.cache_result else []
        case ForeachVertex():
            facts = [f"{node.action.ref} for each of {shown(node.over.source)}"]
            if node.parallel:
                facts.append(f"{node.max_concurrency or 'several'} at once")
            facts += [f"into {node.collect}"] if node.collect else []
        case AgentVertex():
            facts = [f"agent {node.agent.name}"]
        case ReturnVertex():
            facts = [] if node.output.source is None else [f"gives {shown(node.output.source)}"]
        case _:
            facts = []
    facts += [f"at most {node.timeout_s:g} s"] if node.timeout_s is not None else []
    return ", ".join(facts)


def happened(seen: NodeSeen) -> list[str]:
    """What happened at a node, in few words each."""
    facts: list[str] = []
    if seen.members is not None:
        failed = f", {seen.failed:,} failed" if seen.failed else ""
        facts.append(f"{seen.done:,}/{seen.members:,}{failed}")
    if seen.times:
        took = duration(seen.elapsed_ms / 1000) if seen.elapsed_ms >= _LEAST_MS else ""
        facts += filter(None, ["remembered" if seen.is_remembered else took])
    if seen.times > 1:
        facts.append(f"{seen.times:,} times")
    if seen.tries > 1:
        facts.append(f"try {seen.tries}")
    if seen.effect_unknown:
        facts.append("effect unknown")
    return facts


def bar(share: float, columns: int) -> tuple[str, str]:
    """What is full of a bar, and the rest: full only where all is done."""
    halves = min(max(int(share * 2 * columns), 0), 2 * columns)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    return full, "─" * (columns - len(full))
