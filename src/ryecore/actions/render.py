"""How directives and threads look in a terminal and a notebook."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ryecore.chain.render import render_result, render_trace
from ryecore.display.text import StyledText
from ryecore.state.model import MICROCENTS_PER_USD, ThreadRecord, ThreadRecords

__all__ = ["add_more", "render_directive", "render_thread", "thread_line"]

_STYLES: Final = {
    "created": "dim", "running": "id", "completed": "good", "continued": "good", "error": "bad",
    "killed": "bad", "cancelled": "warn",
}  # fmt: skip
_MARKS: Final = {
    "created": "·", "running": "▸", "completed": "✓", "continued": "»", "error": "✗",
    "killed": "✗", "cancelled": "■",
}  # fmt: skip

_MAX_CHILDREN: Final = 12


def render_directive(document: Mapping[str, Any]) -> StyledText:
    """Show the response object of a directive: its directions, or what a dry run found."""
    text = StyledText()
    metadata = document["metadata"]
    text.line(
        ("✓ ", "good"),
        (str(document["item_id"]), "strong"),
        (f"  {document['status']}", "good"),
        (f"  {metadata['duration_ms']} ms", "dim"),
    )
    for key, value in metadata.items():
        if key != "duration_ms":
            text.line((f"  {key.replace('_', ' ')}: {_shown(value)}", "warn"))
    for line in str(document.get("your_directions", "")).split("\n"):
        if "your_directions" in document:
            text.line("  ", line)
    if "data" in document:
        _add_plan(text, document)
    if document.get("trace"):
        text.line(("  trace", "dim"))
        text.add(render_trace(document["trace"]), "  ")
    return text


def _add_plan(text: StyledText, document: Mapping[str, Any]) -> None:
    rows = {
        "inputs": [f"{name} = {_shown(value)}" for name, value in document["inputs"].items()],
        "extends": document["extends"],
        "model": [document["model"] or document.get("model_problem") or "none named"],
        "limits": [f"{name} {value}" for name, value in document["limits"].items()],
        "may": document["permissions"] or ["nothing"],
        "risks": [f"{one['risk']}: {one['reason']}" for one in document["acknowledged_risks"]],
        "hooks": [f"{one['id']} on {one['event']}" for one in document["hooks"]],
    }
    for name, values in rows.items():
        if values:
            text.line((f"  {name.ljust(8)}", "dim"), ", ".join(values))


def _shown(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def render_thread(
    record: ThreadRecord,
    result: object,
    folder: str,
    *,
    children: Sequence[ThreadRecord] = (),
    chain: Sequence[str] = (),
) -> StyledText:
    """Show a thread, and what came of it.

    Args:
        record: Its row.
        result: Its result; None while it runs.
        folder: Where its files are.
        children: The threads that it has started.
        chain: The ids of the threads that go on from one another, itself among them.
    """
    text = StyledText()
    text.line(*thread_line(record))
    text.line(("  since   ", "dim"), record.created_at)
    if record.pid is not None:
        text.line(("  process ", "dim"), str(record.pid))
    text.line(("  folder  ", "dim"), folder)
    if record.model is not None:
        text.line(("  model   ", "dim"), record.model)
    if record.limits is not None:
        for name, used, most in _used_of_limits(record):
            text.line(
                ("  used    " if name == "turns" else "          ", "dim"),
                f"{used}",
                (most, "dim"),
                f" {name}",
            )
    if len(chain) > 1:
        for place, one in enumerate(chain):
            here = ("  this one", "dim") if one == record.thread_id else ("", "")
            text.line(("  chain   " if not place else "          ", "dim"), (one, "id"), here)
    for place, child in enumerate(children[:_MAX_CHILDREN]):
        text.line(("  started " if not place else "          ", "dim"), *thread_line(child))
    if len(children) > _MAX_CHILDREN:
        text.line("          ", (f"… {len(children) - _MAX_CHILDREN} more", "dim"))
    if isinstance(result, Mapping) and "directive" in result:
        _add_outcome(text, result)
    elif isinstance(result, Mapping):
        text.add(render_result(dict(result)), "  ")
    return text


def _used_of_limits(record: ThreadRecord) -> list[tuple[str, str, str]]:
    """What a thread has used itself, of what it and all below it may: name, used, limit."""
    cost, limits = record.cost, record.limits or {}
    used = {
        "turns": f"{cost.turns:,}",
        "tokens": f"{cost.input_tokens + cost.output_tokens:,}",
        "spend": f"${cost.spend_microcents / MICROCENTS_PER_USD:.6f}",
        "spawns": f"{record.spawn_count:,}",
    }
    rows = []
    for name, value in used.items():
        most = limits.get(name)
        unit = "$" if name == "spend" else ""
        shown = "" if not isinstance(most, int | float) else f" of {unit}{most:,}"
        rows.append((name, value, shown))
    return rows


def _add_outcome(text: StyledText, result: Mapping[str, Any]) -> None:
    """What came of a directive's thread."""
    for line in str(result.get("error") or "").splitlines():
        text.line(("  error   ", "dim"), (line, "bad"))
    outputs = result.get("outputs")
    for name, value in (outputs if isinstance(outputs, Mapping) else {}).items():
        text.line((f"  {name}: ", "dim"), _shown(value))
    if not outputs:
        for place, line in enumerate(str(result.get("result") or "").splitlines()):
            text.line(("  said    " if not place else "          ", "dim"), line)


def add_more(text: StyledText, shown: ThreadRecords, limit: int, offset: int, command: str) -> None:
    """Add how many threads a list leaves out, and the command that shows them.

    Args:
        text: The text to add to.
        shown: The threads that are listed.
        limit: How many were asked for.
        offset: How many were skipped.
        command: The command that lists them from the first one.
    """
    more = shown.total - offset - len(shown)
    if shown and more > 0:
        again = f"{command} --offset {offset + limit}" + (
            "" if limit == 50 else f" --limit {limit}"
        )
        text.line((f"{more:,} more of {shown.total:,}; see them: {again}", "dim"))


def thread_line(record: ThreadRecord, id_width: int = 0) -> tuple[tuple[str, str], ...]:
    """A thread in one line; of one with a model, what it took and spent too.

    Args:
        record: Its row.
        id_width: How many columns its id takes, so that several lines stand below one another.
    """
    style, cost = _STYLES[record.status], record.cost
    turns = f"{cost.turns} turn{'' if cost.turns == 1 else 's'}"
    spent = f"${cost.spend_microcents / MICROCENTS_PER_USD:.4f}"
    return (
        (f"{_MARKS[record.status]} ", style),
        (f"{record.thread_id:<{id_width}}", "id"),
        (f"  {record.status:<9}", style),
        (f"  {_lasted(record):>8}", ""),
        (f"  {turns:>8}  {spent}" if record.model is not None else "", ""),
        (f"  {record.item_id}", "strong"),
    )


def _lasted(record: ThreadRecord) -> str:
    until = _time(record.completed_at) if record.completed_at else datetime.now(UTC)
    seconds = max((until - _time(record.created_at)).total_seconds(), 0)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {seconds:02} s"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
