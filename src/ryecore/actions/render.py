"""How a directive's result looks in a terminal and a notebook."""

import json
from collections.abc import Mapping
from typing import Any

from ryecore.chain.render import StyledText, render_trace

__all__ = ["render_directive"]


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
