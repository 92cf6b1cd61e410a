"""A run while it goes on: its nodes with their bars, drawn over and over. Pure."""

from collections.abc import Sequence
from typing import Final

from ryecore.display.figures import compact, dollars, duration
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import Span, StyledText, columns_of, cut, main_line
from ryecore.graph.model import Graph
from ryecore.graph.view.seen import NodeSeen, RunSeen
from ryecore.graph.view.text import MARKS, bar, happened
from ryecore.policy.budget import NOTHING, Amount

__all__ = ["render_live"]

_MOST_NAME: Final = 28
_MOST_BAR: Final = 40
_LEAST_WIDTH: Final = 20


def render_live(
    graph: Graph, seen: RunSeen, *, width: int, rows: int, now: float, cost: Amount = NOTHING
) -> StyledText:
    """Show how a run stands.

    Args:
        graph: Its graph.
        seen: What happened so far.
        width: How many columns there are.
        rows: How many nodes there is room for, at least 1.
        now: The time in seconds since 1970 (UTC).
        cost: What it and all below it have used.
    """
    width = max(width, _LEAST_WIDTH)
    text = StyledText()
    text.line(*_head(graph, seen, width, now, cost))
    listed = _listed(graph, seen, rows)
    names = max((columns_of(to_one_line(name)) for name in listed), default=0)
    names = min(names, _MOST_NAME, max(width - 20, 8))
    for name in listed:
        text.line(*_row(name, seen.nodes.get(name), seen, names, width, now))
    if len(listed) < len(graph.nodes):
        text.line((f"  … {len(graph.nodes) - len(listed):,} more", "dim"))
    return text


def _head(graph: Graph, seen: RunSeen, width: int, now: float, cost: Amount) -> list[Span]:
    nodes = len(graph.nodes)
    over = sum(1 for one in seen.nodes.values() if one.times)
    until = now if seen.ended_at is None else seen.ended_at
    lasted = duration(until - seen.started_at) if seen.started_at is not None else ""
    facts = [f"{over}/{nodes} nodes"]
    facts += [f"{seen.steps:,} steps"] if seen.steps > over else []
    facts += [lasted] if lasted else []
    facts += [f"{compact(cost.tokens)} tokens"] if cost.tokens else []
    facts += [dollars(cost.spend_microcents)] if cost.spend_microcents else []
    said = "  ".join(facts)
    mark, style = MARKS[seen.status or "running"]
    name = cut(to_one_line(graph.ref.id), max(width - columns_of(said) - 4, 8))
    spans: list[Span] = [(mark, style), (name, "strong")]
    left = width - columns_of(name) - columns_of(said) - 6
    if left >= 6:
        share = 1.0 if seen.ended == "completed" else over / nodes
        full, rest = bar(share, min(left, _MOST_BAR))
        spans += [("  ", ""), (full, style), (rest, "dim")]
    return [*spans, (cut(f"  {said}", width - columns_of(name) - 2), "dim")]


def _listed(graph: Graph, seen: RunSeen, rows: int) -> Sequence[str]:
    """The nodes that there is room for: around the one where the run stands."""
    ordered = sorted(graph.nodes, key=lambda name: name != graph.start)
    rows = max(rows, 1)
    if len(ordered) <= rows:
        return ordered
    here = seen.node or ""
    at = ordered.index(here) if here in graph.nodes else len(ordered) - 1
    first = min(max(at - rows // 2, 0), len(ordered) - rows)
    return ordered[first : first + rows]


def _row(
    name: str, known: NodeSeen | None, seen: RunSeen, names: int, width: int, now: float
) -> list[Span]:
    status = "skipped" if seen.ended else "pending"
    status = status if known is None else known.status
    kept = cut(to_one_line(name), names)
    is_live = status in ("running", "retrying")
    padded = kept + " " * (names - columns_of(kept))
    spans: list[Span] = [("  ", ""), MARKS[status], (padded, "strong" if is_live else "dim")]
    if known is None:
        return spans
    left = width - names - 4
    facts = happened(known)
    if known.started_at is not None:
        facts.append(duration(now - known.started_at))
    said = "  ".join(facts)
    wide = min(left - columns_of(said) - 4, _MOST_BAR // 2)
    if known.members and wide >= 4:
        full, rest = bar(known.done / known.members, wide)
        style = "bad" if known.failed else "id" if is_live else "good"
        spans += [("  ", ""), (full, style), (rest, "dim")]
        left -= wide + 2
    spans.append((cut(f"  {said}", max(left, 1)), "dim"))
    left -= columns_of(said) + 2
    if known.error and left > 10:
        spans.append((f"  {cut(to_one_line(main_line(known.error)), left - 2)}", "bad"))
    return spans
