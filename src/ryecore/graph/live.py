"""The live view of a graph's run: redrawn, line by line, or in a notebook."""

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from ryecore.display.sanitize import to_one_line
from ryecore.display.text import (
    Span,
    StyledText,
    compact,
    count_columns,
    counted,
    cut,
    dollars,
    duration,
    main_line,
    status_icon,
    status_mark,
    status_words,
)
from ryecore.errors import StateError
from ryecore.graph.model import Graph
from ryecore.graph.projection import NodeStatus, RunProjection, RunStatus
from ryecore.graph.rendering import bar, happened
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.events import RunEvent

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["ProgressLines", "render_live", "run_html"]

_MOST_NAME: Final = 28
_MOST_BAR: Final = 40
_LEAST_WIDTH: Final = 20
_MOST_READING_S: Final = 0.2
_NOTEBOOK_WIDTH: Final = 80
_NOTEBOOK_ROWS: Final = 40


def render_live(
    graph: Graph,
    run_status: RunStatus,
    *,
    width: int,
    rows: int,
    now: float,
    cost: Amount = NOTHING,
) -> StyledText:
    """Render the state of a run, at most `rows` nodes; `now` is in seconds since 1970 (UTC)."""
    width = max(width, _LEAST_WIDTH)
    text = StyledText()
    text.line(*_head(graph, run_status, width, now, cost))
    listed = _listed(graph, run_status, rows)
    names = max((count_columns(to_one_line(name)) for name in listed), default=0)
    names = min(names, _MOST_NAME, max(width - 20, 8))
    for name in listed:
        text.line(*_row(name, run_status.nodes.get(name), run_status, names, width, now))
    if len(listed) < len(graph.nodes):
        text.line((f"  … {len(graph.nodes) - len(listed):,} more", "dim"))
    return text


def _head(graph: Graph, run_status: RunStatus, width: int, now: float, cost: Amount) -> list[Span]:
    nodes = len(graph.nodes)
    over = sum(1 for one in run_status.nodes.values() if one.times)
    until = now if run_status.ended_at is None else run_status.ended_at
    lasted = duration(until - run_status.started_at) if run_status.started_at is not None else ""
    facts = [f"{over}/{counted(nodes, 'node')}"]
    facts += [counted(run_status.steps, "step")] if run_status.steps > over else []
    facts += [lasted] if lasted else []
    facts += [counted(cost.tokens, "token", write=compact)] if cost.tokens else []
    facts += [dollars(cost.spend_microcents)] if cost.spend_microcents else []
    said = "  ".join(facts)
    mark, style = status_mark(run_status.status or "running")
    name = cut(to_one_line(graph.ref.id), max(width - count_columns(said) - 4, 8))
    spans: list[Span] = [(mark, style), (name, "strong")]
    left = width - count_columns(name) - count_columns(said) - 6
    if left >= 6:
        share = 1.0 if run_status.ended == "completed" else over / nodes
        full, rest = bar(share, min(left, _MOST_BAR))
        spans += [("  ", ""), (full, style), (rest, "dim")]
    return [*spans, (cut(f"  {said}", width - count_columns(name) - 2), "dim")]


def _listed(graph: Graph, run_status: RunStatus, rows: int) -> Sequence[str]:
    """Return the nodes to show: those around the current one."""
    ordered = sorted(graph.nodes, key=lambda name: name != graph.start)
    rows = max(rows, 1)
    if len(ordered) <= rows:
        return ordered
    here = run_status.node or ""
    at = ordered.index(here) if here in graph.nodes else len(ordered) - 1
    first = min(max(at - rows // 2, 0), len(ordered) - rows)
    return ordered[first : first + rows]


def _row(
    name: str, known: NodeStatus | None, run_status: RunStatus, names: int, width: int, now: float
) -> list[Span]:
    status = "skipped" if run_status.ended else "pending"
    status = status if known is None else known.shown
    kept = cut(to_one_line(name), names)
    is_live = status in ("running", "retrying")
    padded = kept + " " * (names - count_columns(kept))
    spans: list[Span] = [("  ", ""), status_mark(status), (padded, "strong" if is_live else "dim")]
    if known is None:
        return spans
    left = width - names - 4
    facts = happened(known)
    if known.started_at is not None:
        facts.append(duration(now - known.started_at))
    said = "  ".join(facts)
    wide = min(left - count_columns(said) - 4, _MOST_BAR // 2)
    if known.members and wide >= 4:
        full, rest = bar(known.done / known.members, wide)
        style = "bad" if known.failed else "id" if is_live else "good"
        spans += [("  ", ""), (full, style), (rest, "dim")]
        left -= wide + 2
    spans.append((cut(f"  {said}", max(left, 1)), "dim"))
    left -= count_columns(said) + 2
    if known.error and left > 10:
        spans.append((f"  {cut(to_one_line(main_line(known.error)), left - 2)}", "bad"))
    return spans


# Progress, line by line


_ENDS: Final = frozenset({"run_completed", "run_error", "run_cancelled", "run_killed"})
_MAX_DETAIL: Final = 160
_LONG_LIST: Final = 20


class ProgressLines:
    """The events of a run as lines of text, with steps counted against the number of `nodes`."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._begun_s = 0.0
        self._members = self._failure = ""
        self._is_partly = False
        self._total = self._over = self._said = self._step = self._carried = 0

    def line(self, event: RunEvent) -> str | None:
        """Return the line for an event, without a line break; None for no line."""
        payload = event.payload
        if event.type == "run_started":
            self._begun_s = event.timestamp
        elif event.type == "state_checkpoint":
            self._step = int(payload.get("step", 0))
        elif event.type == "node_started":
            self._total, self._over, self._carried = int(payload.get("count", 0)), self._carried, 0
            self._said = 10 * self._over // max(self._total, 1)
        elif event.type == "item_completed":
            return self._of_member(event.run_id, payload)
        elif event.type == "foreach_completed":
            failed = f", {payload['failed']} failed" if payload.get("failed") else ""
            count = payload.get("count", 0)
            self._members, self._is_partly = counted(int(count), "item") + failed, bool(failed)
        elif event.type == "node_completed":
            return self._of_node(event.run_id, payload)
        elif event.type in ("node_retry", "item_retry"):
            wait_s = _seconds(float(payload.get("wait_s", 0.0)) * 1000)
            index = f"[{payload['index']}]" if "index" in payload else ""
            why = f"again in {wait_s}: {payload.get('error', '')}"
            return _line(event.run_id, f"{payload.get('node')}{index} …", why)
        elif event.type in _ENDS:
            return self._of_end(event, payload)
        return None

    def _of_member(self, run_id: str, payload: Mapping[str, Any]) -> str | None:
        """Return a line at each tenth of a long list; None otherwise."""
        if payload.get("carried"):  # known from the run that is resumed
            self._carried += 1
            return None
        self._over += 1
        tenth = self._over * 10 // self._total if self._total >= _LONG_LIST else 0
        if tenth <= self._said or tenth >= 10:
            return None
        self._said = tenth
        step = self._step + 1
        count = f"{self._over}/{self._total}"
        return _line(run_id, f"step {step}{self._of(step)} {payload.get('node')} … {count}", "")

    def _of(self, step: int) -> str:
        return f"/{self._nodes}" if step <= self._nodes else ""

    def _of_node(self, run_id: str, payload: Mapping[str, Any]) -> str:
        step = int(payload.get("step", 0))
        is_well = payload.get("status") == "completed"
        is_cancelled = payload.get("code") == "cancelled"
        well = "completed_with_errors" if self._is_partly else "completed"
        mark = status_icon(well if is_well else "cancelled" if is_cancelled else "failed")
        self._is_partly = False
        took = _seconds(float(payload.get("elapsed_ms", 0.0)))
        members, self._members = self._members, ""
        tries = int(payload.get("try", 1))
        details = [
            members,
            "remembered" if payload.get("cache_hit") else "",
            f"try {tries}" if tries > 1 else "",
            "effect unknown" if payload.get("effect_unknown") is True else "",
            "" if is_well else str(payload.get("error", "")),
        ]
        said = ", ".join(one for one in details if one)
        self._failure = "" if is_well else f"{payload.get('node')}: {payload.get('error')}"
        following = payload.get("next")
        to = f" → {following}" if isinstance(following, str) else ""
        node = payload.get("node")
        return _line(run_id, f"step {step}{self._of(step)} {node} {mark} {took}{to}", said)

    def _of_end(self, event: RunEvent, payload: Mapping[str, Any]) -> str:
        # The end of a run whose process died is written later, without status and error.
        steps = int(payload.get("steps", self._step))
        took = _seconds((event.timestamp - self._begun_s) * 1000) if self._begun_s else ""
        ended = event.type.removeprefix("run_")
        status = str(payload.get("status", ended))
        count = counted(steps, "step")
        error = str(payload.get("error", ""))
        said = "" if error == self._failure else error  # the node's own line holds it
        mark = status_icon(status if status == "completed_with_errors" else ended)
        return _line(event.run_id, f"{mark} {status_words(status)}, {count} {took}", said)


def _seconds(elapsed_ms: float) -> str:
    return f"{elapsed_ms / 1000:.1f}s"


def _line(run_id: str, text: str, detail: str) -> str:
    first = main_line(detail)
    if len(first) > _MAX_DETAIL:
        first = f"{first[: _MAX_DETAIL - 1]}…"
    written = StyledText()  # sanitized, so that an error can't control a terminal
    written.line(f"[graph:{run_id}] {text}" + (f" ({first})" if first else ""))
    return written.plain().rstrip("\n")


# In a notebook


def run_html(graph: Graph, run_id: str, store: "ThreadStore") -> str:
    """Render the state of a run as HTML. It neither waits nor raises."""
    from ryecore.display import to_html  # noqa: PLC0415 - only for notebooks
    from ryecore.graph.picture import graph_picture  # noqa: PLC0415

    projection, notes = RunProjection(), StyledText()
    try:
        if not store.run_now(_project(store, run_id, projection)):
            notes.line(("  its journal is too long to be read in full here", "warn"))
    except StateError as problem:
        notes.line((f"  {problem.message}", "warn"))
    run_status = projection.snapshot()
    text = render_live(
        graph, run_status, width=_NOTEBOOK_WIDTH, rows=_NOTEBOOK_ROWS, now=time.time()
    )
    text.line("  ", (f"run {run_id}", "dim"))
    text.add(notes)
    return to_html(graph_picture(graph, run_status)) + text.html()


async def _project(store: "ThreadStore", run_id: str, projection: RunProjection) -> bool:
    """Apply a run's records for a short time, and return whether that was enough for all."""
    until = time.monotonic() + _MOST_READING_S
    async with aclosing(store.records.read(run_id)) as records:
        async for record in records:
            projection.take(RunEvent.of(record))
            if time.monotonic() > until:
                return False
    return True
