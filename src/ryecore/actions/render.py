"""How directives and threads look in a terminal and a notebook."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ryecore.chain.render import render_result, render_trace
from ryecore.state.model import ThreadRecord
from ryecore.styled import StyledText

__all__ = ["render_directive", "render_thread", "thread_line"]

_STYLES: Final = {
    "created": "dim", "running": "id", "completed": "good", "continued": "good", "error": "bad",
    "killed": "bad", "cancelled": "warn",
}  # fmt: skip
_MARKS: Final = {
    "created": "·", "running": "▸", "completed": "✓", "continued": "✓", "error": "✗",
    "killed": "✗", "cancelled": "■",
}  # fmt: skip


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


def render_thread(record: ThreadRecord, result: object, folder: str) -> StyledText:
    """Show a thread, and what came of it."""
    text = StyledText()
    text.line(*thread_line(record))
    text.line(("  since   ", "dim"), record.created_at)
    if record.pid is not None:
        text.line(("  process ", "dim"), str(record.pid))
    text.line(("  folder  ", "dim"), folder)
    if isinstance(result, Mapping):
        text.add(render_result(dict(result)), "  ")
    return text


def thread_line(record: ThreadRecord) -> tuple[tuple[str, str], ...]:
    """A thread in one line."""
    style = _STYLES[record.status]
    return (
        (f"{_MARKS[record.status]} ", style),
        (record.thread_id, "id"),
        (f"  {record.status:<9}", style),
        (f"  {_lasted(record):>8}", ""),
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
