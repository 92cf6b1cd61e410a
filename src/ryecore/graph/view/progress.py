"""A run's progress as lines for people. Pure.

Source: docs/design/graphs.md#progress.
"""

from collections.abc import Mapping
from typing import Any, Final

from ryecore.display.text import StyledText, main_line
from ryecore.graph.journal.events import GraphEvent

__all__ = ["ProgressLines"]

_ENDS: Final = {
    "run_completed": "✓",
    "run_error": "✗",
    "run_cancelled": "⏹",
    "run_killed": "⏹",
}
_MAX_DETAIL: Final = 160
_LONG_LIST: Final = 20


class ProgressLines:
    """Turns what happens in one run into lines.

    Args:
        nodes: How many nodes the graph has; a run that loops takes more steps than that.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._begun_s = 0.0
        self._members = self._failure = ""
        self._total = self._over = self._said = self._step = self._carried = 0

    def line(self, event: GraphEvent) -> str | None:
        """The line for an event, without its end; None where it is no news.

        Args:
            event: What happened, each event of the run in its turn.
        """
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
            self._members = f"{count} {'item' if count == 1 else 'items'}{failed}"
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
        """A line for each tenth of a long list."""
        if payload.get("carried"):  # known before the node goes on, in a run that was resumed
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
        mark = "✓" if is_well else "⏹" if payload.get("code") == "cancelled" else "✗"
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

    def _of_end(self, event: GraphEvent, payload: Mapping[str, Any]) -> str:
        # The end of a run whose process died is written later, and names neither.
        steps = int(payload.get("steps", self._step))
        took = _seconds((event.timestamp - self._begun_s) * 1000) if self._begun_s else ""
        status = str(payload.get("status", event.type.removeprefix("run_"))).replace("_", " ")
        count = f"{steps} {'step' if steps == 1 else 'steps'}"
        error = str(payload.get("error", ""))
        said = "" if error == self._failure else error  # the node's own line said it
        return _line(event.run_id, f"{_ENDS[event.type]} {status}, {count} {took}", said)


def _seconds(elapsed_ms: float) -> str:
    return f"{elapsed_ms / 1000:.1f}s"


def _line(run_id: str, text: str, detail: str) -> str:
    first = main_line(detail)
    if len(first) > _MAX_DETAIL:
        first = f"{first[: _MAX_DETAIL - 1]}…"
    written = StyledText()  # whatever an error holds, it doesn't steer a terminal
    written.line(f"[graph:{run_id}] {text}" + (f" ({first})" if first else ""))
    return written.plain().rstrip("\n")
