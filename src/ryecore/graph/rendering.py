"""The rendering of graphs and their runs as text, for a terminal of any width. Pure."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ryecore.display.sanitize import to_one_line
from ryecore.display.text import (
    Span,
    StyledText,
    brief,
    compact,
    count_columns,
    counted,
    cut,
    dollars,
    duration,
    main_line,
    status_mark,
    status_words,
)
from ryecore.graph.projection import NodeStatus, RunStatus, was_taken
from ryecore.policy.budget import NOTHING

if TYPE_CHECKING:
    from ryecore.graph.model import Graph, VertexOfGraph
    from ryecore.graph.run_view import RunView

__all__ = ["Facts", "bar", "document_of", "does_text", "happened", "render_graph", "render_run"]

Facts = list[tuple[str, list[Span | str]]]
"""Rows of a name and its text."""

_LEAST_WIDTH: Final = 40
_MOST_NAME: Final = 28
_MAX_NODES: Final = 500
_MOST_STATE: Final = 40
_MOST_ERRORS: Final = 3
"""The number of ignored errors that are shown."""

_MOST_STEPS: Final = 12
_LEAST_MS: Final = 50
"""The shortest duration that is shown, in milliseconds."""


def render_graph(
    graph: "Graph", run_status: RunStatus | None = None, *, width: int = 80
) -> StyledText:
    """Render a graph's nodes in order, their work and edges, with a run's status or by itself.

    `width` counts columns.
    """
    text = StyledText()
    nodes = len(graph.nodes)
    count = counted(nodes, "node")
    version = f"  {graph.version}" if graph.version else ""
    text.line((str(graph.ref), "strong"), (version, "dim"), (f"  {count}", "dim"))
    add_facts(text, _about(graph), width)
    text.line("")
    add_nodes(text, graph, run_status, width=width)
    return text


def _about(graph: "Graph") -> Facts:
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
    bounds = f"{counted(graph.max_steps, 'step')}, {graph.max_concurrency} at once; {passes}"
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


def document_of(graph: "Graph") -> dict[str, object]:
    """Return a graph as a JSON-ready object: its nodes, their work, and their edges."""
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


def _node_document(node: "VertexOfGraph") -> dict[str, object]:
    document: dict[str, object] = {"type": node.type, "line": node.line}
    match node.type:
        case "action":
            document["item_id"] = str(node.action.ref)
        case "foreach":
            document |= node.body_document
        case "agent":
            document["agent"] = node.agent.name
        case _:
            pass
    document["next"] = [
        {"to": edge.to, "when": None if edge.when is None else edge.when.to_dict()}
        for edge in node.next
    ]
    document["on_error"] = node.on_error
    return document


def add_facts(text: StyledText, facts: Facts, width: int) -> None:
    """Add rows of a name and its text, cut to the width."""
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
            left -= count_columns(kept)
            line.append((kept, style))
            if left <= 0:
                break
        text.line(*line)


def add_nodes(
    text: StyledText, graph: "Graph", run_status: RunStatus | None, *, width: int
) -> None:
    """Add a graph's nodes, the first one first, with their edges."""
    width = max(width, _LEAST_WIDTH)
    ordered = sorted(graph.nodes.values(), key=lambda node: node.id != graph.start)
    names = min(max(count_columns(to_one_line(node.id)) for node in ordered), _MOST_NAME)
    for node in ordered[:_MAX_NODES]:
        _add_node(text, graph, node, run_status, names, width)
    if len(ordered) > _MAX_NODES:
        text.line((f"  … {len(ordered) - _MAX_NODES:,} more nodes", "dim"))


def _add_node(
    text: StyledText,
    graph: "Graph",
    node: "VertexOfGraph",
    run_status: RunStatus | None,
    names: int,
    width: int,
) -> None:
    known = None if run_status is None else run_status.nodes.get(node.id)
    status = "" if run_status is None else "skipped" if run_status.ended else "pending"
    status = status if known is None else known.shown
    name = cut(to_one_line(node.id), names)
    dim = status in ("skipped", "pending")
    room = width - names - 13
    spans: list[Span] = [
        status_mark(status),
        (name + " " * (names - count_columns(name)), "dim" if dim else "strong"),
        (f"  {node.type:<9}", "dim"),
    ]
    said = "  ".join(happened(known)) if known is not None else ""
    does = cut(
        to_one_line(does_text(node)), max(room - (count_columns(said) + 2 if said else 0), 1)
    )
    spans.append((does, "dim" if dim else ""))
    edges = list(_edges(graph, node, run_status))
    left = room - count_columns(does) - (count_columns(said) + 2 if said else 0)
    if len(edges) == 1 and not edges[0][1] and left >= count_columns(edges[0][0]) + 4:
        to, _, style = edges.pop()
        spans.append((f"{'  ' if does else ''}→ {to_one_line(to)}", style))
    if said:
        spans.append((f"  {said}", "dim"))
    text.line(*spans)
    indent = " " * (names + 13)
    for to, why, style in edges:
        target = cut(to_one_line(to), max(room - 2, 1))
        rest = room - count_columns(target) - 4
        text.line(
            indent,
            (f"→ {target}", style),
            (f"  {cut(to_one_line(why), rest)}" if why and rest > 1 else "", "dim"),
        )
    if known is not None and known.error:
        text.line(indent, (cut(to_one_line(main_line(known.error)), max(room, 1)), "bad"))


def _edges(
    graph: "Graph", node: "VertexOfGraph", run_status: RunStatus | None
) -> Iterator[tuple[str, str, str]]:
    """Yield the edges of a node: the target, the reason, and the style."""
    taken = frozenset() if run_status is None else run_status.taken
    for at, edge in enumerate(node.next):
        went = was_taken(node, edge.to, taken)
        style = "good" if went else "dim" if run_status is not None else ""
        yield edge.to, edge.label(is_last_of_several=at > 0), style
    if node.on_error is not None:
        went = (node.id, node.on_error, True) in taken
        yield node.on_error, "on error", "warn" if went else "dim"


def does_text(node: "VertexOfGraph") -> str:
    """Describe the work of a node in a few words."""
    match node.type:
        case "action":
            facts = [f"{node.action.ref}{' in a thread' if node.action.thread == 'fork' else ''}"]
            facts += [f"up to {node.tries.max} tries"] if node.tries.max > 1 else []
            facts += ["remembered"] if node.cache_result else []
        case "foreach":
            facts = [f"{node.body} for each of {brief(node.over.source)}"]
            if node.parallel:
                facts.append(f"{node.max_concurrency or 'several'} at once")
            facts += [f"into {node.collect}"] if node.collect else []
        case "agent":
            facts = [f"agent {node.agent.name}"]
        case "return":
            facts = [] if node.output.source is None else [f"gives {brief(node.output.source)}"]
        case _:
            facts = []
    facts += [f"at most {node.timeout_s:g} s"] if node.timeout_s is not None else []
    return ", ".join(facts)


def happened(node_status: NodeStatus) -> list[str]:
    """Describe the status of a node, in a few words each."""
    facts: list[str] = []
    if node_status.members is not None:
        failed = f", {node_status.failed:,} failed" if node_status.failed else ""
        facts.append(f"{node_status.done:,}/{node_status.members:,}{failed}")
    if node_status.times:
        took = (
            duration(node_status.elapsed_ms / 1000) if node_status.elapsed_ms >= _LEAST_MS else ""
        )
        facts += filter(None, ["remembered" if node_status.is_remembered else took])
    if node_status.times > 1:
        facts.append(f"{node_status.times:,} times")
    if node_status.tries > 1:
        facts.append(f"try {node_status.tries}")
    if node_status.effect_unknown:
        facts.append("effect unknown")
    return facts


def bar(share: float, columns: int) -> tuple[str, str]:
    """Return the full part of a bar and the rest; full only where everything is done."""
    halves = min(max(int(share * 2 * columns), 0), 2 * columns)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    return full, "─" * (columns - len(full))


# A run


def render_run(run: "RunView", *, width: int) -> StyledText:
    """Render a run, `width` columns wide: each node's status, the state, and how to resume it."""
    text = StyledText()
    _add_run_head(text, run, width)
    text.line("")
    if run.graph is not None:
        add_nodes(text, run.graph, run.run_status, width=width)
    else:
        for name, one in run.nodes.items():
            mark = status_mark(one.shown)
            text.line(mark, (to_one_line(name), "strong"), ("  " + "  ".join(happened(one)), "dim"))
    if run.state:
        text.line("")
        facts: Facts = [
            ("state" if not at else "", [(f"{key} = ", "dim"), brief(value)])
            for at, (key, value) in enumerate(run.state.items())
            if at < _MOST_STATE
        ]
        if len(run.state) > _MOST_STATE:
            facts.append(("", [(f"… {len(run.state) - _MOST_STATE} more", "dim")]))
        add_facts(text, facts, width)
    if run.next_step:
        text.line(("  next    ", "dim"), run.next_step)  # whole: it is there to be copied
    return text


def _add_run_head(text: StyledText, run: "RunView", width: int) -> None:
    record = run.record
    mark = status_mark(run.status)
    text.line(
        mark,
        (run.run_id, "id"),
        (f"  {status_words(run.status)}", mark[1]),
        (f"  {duration(run.lasted_s)}", ""),
        (f"  {counted(run.steps, 'step')}", "dim"),
    )
    facts: Facts = [("graph", [(run.item_id, "strong")])]
    if run.is_changed:
        facts[0][1].append(("  changed since it began", "warn"))
    facts.append(("since", [record.created_at]))
    if run.folder is not None:
        facts.append(("folder", [run.folder]))
    if run.inputs:
        given = ", ".join(f"{key} = {brief(one)}" for key, one in run.inputs.items())
        facts.append(("inputs", [given]))
    if run.cost != NOTHING:
        tokens = counted(run.cost.tokens, "token", write=compact)
        facts.append(("cost", [f"{tokens}, {dollars(run.cost.spend_microcents)}"]))
    if record.continuation_of is not None:
        facts.append(("resumes", [(record.continuation_of, "id")]))
    if run.followed_by is not None:
        facts.append(("resumed", [("by ", "dim"), (run.followed_by, "id")]))
    if run.error:
        facts.append(("error", [(main_line(run.error), "bad")]))
    for one in run.errors[:_MOST_ERRORS]:
        facts.append(("ignored", [f"{one.node}: ", (main_line(one.message), "warn")]))
    if len(run.errors) > _MOST_ERRORS:
        facts.append(("", [(f"and {len(run.errors) - _MOST_ERRORS} more: --json", "dim")]))
    if run.problem:
        facts.append(("unread", [(run.problem, "warn")]))
    if run.node is not None and run.ended:
        facts.append(("stands", [f"before {run.node}, behind step {run.steps}"]))
    if run.ended and run.checkpoints:
        latest = run.checkpoints[-_MOST_STEPS:]
        more = "… " if len(latest) < len(run.checkpoints) else ""
        said = ", ".join(f"{one.step} {one.node}" for one in latest if one.node is not None)
        facts.append(("--at", [f"{more}{said}"]))
    add_facts(text, facts, width)
