"""The events of a run, the records of its journal, and their projection into its status. Pure.

Source: docs/design/graphs.md#the-walk; decision 47.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ryecore.frozen import frozen
from ryecore.state.events import RunEvent

if TYPE_CHECKING:
    from ryecore.display.picture import BoxStatus
    from ryecore.graph.model import VertexOfGraph

__all__ = [
    "RUN_RECORD_TYPES",
    "NodeStatus",
    "RunProjection",
    "RunStatus",
    "was_taken",
]

RUN_RECORD_TYPES: Final = (
    "run_started", "run_resumed", "node_started", "node_retry", "item_started", "item_retry",
    "item_completed", "node_completed", "foreach_completed", "state_checkpoint", "cost", "hook",
    "model_call", "model_call_end", "budget_overspent", "tool_call_start", "tool_call_result",
    "node_pending", "cache_skipped", "checkpoint",
    "run_completed", "run_error", "run_cancelled", "run_killed",
)  # fmt: skip
"""The types of records in a journal. After a crash these decide where a run resumes:

- `node_started` {node, step}: before each attempt of a node.
- `node_retry` {node, error}: an attempt has failed, and another one follows: none is in flight.
- `item_started` {node, index}: before each attempt of a foreach's member.
- `item_retry` {node, index, error}: such an attempt has failed, and another one follows.
- `item_completed` {node, index, ...outcome}: the outcome of the member.
- `node_completed` {node, step, ...outcome, control}: the outcome of the node after its last
  attempt, and the hooks' control result where it failed.
- `state_checkpoint` {step, node, state_hash}: the position of the run after `step` nodes.

`Journal.outcome_of` makes the fields of an outcome: `result` or `result_hash`, and for a failure
`error`, `code` and, where they hold, `retryable` and `effect_unknown`.
"""

_ENDS: Final[Mapping[str, str]] = {
    "run_completed": "completed",
    "run_error": "error",
    "run_cancelled": "cancelled",
    "run_killed": "killed",
}


@frozen
class NodeStatus:
    """The status of one node.

    Attributes:
        status: The status; of a node that ran several times, the last one.
        times: How often it has ended.
        elapsed_ms: The total duration of these runs.
        started_at: When the running node began, in seconds since 1970 (UTC).
        tries: The number of attempts of the last run.
        is_remembered: Whether its last result came from the cache, and nothing ran.
        members: The number of a foreach's members.
        done: How many of them have ended.
        failed: How many of these failed.
        error: The reason for its failure; empty where it didn't fail.
        effect_unknown: Whether its tool was interrupted the last time and may have had its effect.
    """

    status: "BoxStatus"
    times: int = 0
    elapsed_ms: float = 0.0
    started_at: float | None = None
    tries: int = 1
    is_remembered: bool = False
    members: int | None = None
    done: int = 0
    failed: int = 0
    error: str = ""
    effect_unknown: bool = False

    @property
    def shown(self) -> "BoxStatus":
        """The status as it is drawn: completed_with_errors where members of a foreach failed."""
        is_partly = self.status == "completed" and self.failed
        return "completed_with_errors" if is_partly else self.status

    def to_dict(self) -> dict[str, object]:
        """Return the status as a JSON-ready object."""
        document: dict[str, object] = {
            "status": self.status,
            "times": self.times,
            "elapsed_ms": round(self.elapsed_ms, 3),
            "tries": self.tries,
            "is_remembered": self.is_remembered,
        }
        if self.members is not None:
            document |= {"members": self.members, "done": self.done, "failed": self.failed}
        if self.error:
            document["error"] = self.error
        if self.effect_unknown:
            document["effect_unknown"] = True
        return document


@frozen
class RunStatus:
    """The status of a run.

    Attributes:
        nodes: The status of each node that was reached, in the order of their first runs.
        taken: The taken edges: from a node, to a node, and whether because of a failure.
        ended: The last status, by the run's journal; empty while it runs.
        status: The same in more detail: also `completed_with_errors`.
        error: The reason for its failure; empty where it didn't fail.
        code: The code of that error, such as `tool_failed`; empty where it didn't fail.
        steps: The number of executed nodes.
        node: The running or next node; None where the run has ended.
        started_at: When it began, in seconds since 1970 (UTC).
        ended_at: When it ended; None while it runs.
    """

    nodes: Mapping[str, NodeStatus] = field(factory=dict)
    taken: frozenset[tuple[str, str, bool]] = frozenset()
    ended: str = ""
    status: str = ""
    error: str = ""
    code: str = ""
    steps: int = 0
    node: str | None = None
    started_at: float | None = None
    ended_at: float | None = None


def was_taken(node: "VertexOfGraph", to: str, taken: frozenset[tuple[str, str, bool]]) -> bool:
    """Return whether a run took an edge of a node, also after an ignored error."""
    was_passed_over = node.on_error != to and (node.id, to, True) in taken
    return was_passed_over or (node.id, to, False) in taken


@define
class _NodeProjection:
    """The projection of one node's events."""

    status: "BoxStatus" = "running"
    times: int = 0
    elapsed_ms: float = 0.0
    started_at: float | None = None
    tries: int = 1
    is_remembered: bool = False
    is_over: bool = False
    members: int | None = None
    done: int = 0
    failed: int = 0
    error: str = ""
    effect_unknown: bool = False

    def started(self, at: float, payload: Mapping[str, Any]) -> None:
        if self.is_over:  # members that a resumed run knows already precede its start
            self.done = self.failed = 0
        if self.is_over or self.started_at is None:
            self.started_at = at
        self.status, self.is_over, self.error = "running", False, ""
        self.effect_unknown = False
        self.tries = _whole(payload.get("try"), 1)
        self.members = payload.get("count", self.members)

    def item_completed(self, payload: Mapping[str, Any]) -> None:
        if self.is_over:
            self.is_over, self.done, self.failed = False, 0, 0
        self.done += 1
        self.failed += payload.get("error") is not None

    def completed(self, payload: Mapping[str, Any]) -> None:
        """Apply the end of the node, after success or failure."""
        is_well = payload.get("status") == "completed"
        is_cancelled = payload.get("code") == "cancelled"
        self.status = "completed" if is_well else "cancelled" if is_cancelled else "failed"
        self.times += 1
        self.elapsed_ms += float(payload.get("elapsed_ms", 0.0))
        self.tries = _whole(payload.get("try"), 1)
        self.is_remembered = payload.get("cache_hit") is True
        self.is_over, self.started_at = True, None
        self.members = payload.get("count", self.members)
        self.done = _whole(payload.get("done"), self.done)
        self.failed = _whole(payload.get("failed"), self.failed)
        self.error = str(payload.get("error") or "")
        self.effect_unknown = payload.get("effect_unknown") is True

    def snapshot(self, ended: str) -> NodeStatus:
        """Return the node's status, for the run's last status `ended`; empty while it runs."""
        status = self.status
        if ended and not self.is_over:
            status = "failed" if ended == "error" else "cancelled"
        return NodeStatus(
            status,
            self.times,
            self.elapsed_ms,
            None if ended else self.started_at,
            self.tries,
            self.is_remembered,
            self.members,
            self.done,
            self.failed,
            self.error,
            self.effect_unknown,
        )


class RunProjection:
    """The projection of one run's events, applied one after the other."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeProjection] = {}
        self._taken: set[tuple[str, str, bool]] = set()
        self._ended = self._status = self._error = self._code = ""
        self._steps = 0
        self._node: str | None = None
        self._started_at: float | None = None
        self._ended_at: float | None = None

    def take(self, event: RunEvent) -> bool:
        """Apply the next event, and return whether the status has changed."""
        kind, payload = event.type, event.payload
        node = payload.get("node")
        if kind == "run_started":
            self._started_at = event.timestamp
        elif kind in _ENDS:
            self._ended, self._ended_at = _ENDS[kind], event.timestamp
            self._status = str(payload.get("status") or self._ended)
            self._error = str(payload.get("error") or "")
            self._code = str(payload.get("error_code") or "")
        elif kind == "state_checkpoint":
            self._steps = _whole(payload.get("step"), self._steps)
            self._node = node if isinstance(node, str) else None
        elif isinstance(node, str):
            return self._take_of_node(node, event)
        else:
            return False
        return True

    def _take_of_node(self, node: str, event: RunEvent) -> bool:
        kind, payload = event.type, event.payload
        if kind not in ("node_started", "node_retry", "item_completed", "node_completed"):
            return False
        one = self._nodes.get(node)
        if one is None:
            one = self._nodes[node] = _NodeProjection()
        if kind == "node_started":
            one.started(event.timestamp, payload)
        elif kind == "node_retry":
            one.status = "retrying"
        elif kind == "item_completed":
            one.item_completed(payload)
        else:
            self.completed(node, payload)
        return True

    def completed(self, node: str, payload: Mapping[str, Any]) -> None:
        """Apply the payload of `node_completed`, the end of a node."""
        one = self._nodes.get(node)
        if one is None:
            one = self._nodes[node] = _NodeProjection()
        one.completed(payload)
        following = payload.get("next")
        if isinstance(following, str):
            self._taken.add((node, following, payload.get("status") == "failed"))

    def snapshot(self, ended: str = "") -> RunStatus:
        """Return the status of the run so far.

        `ended` is its last status where the journal doesn't hold it, since its process was killed.
        """
        ended = self._ended or ended
        return RunStatus(
            {node: one.snapshot(ended) for node, one in self._nodes.items()},
            frozenset(self._taken),
            ended,
            self._status or ended,
            self._error,
            self._code,
            self._steps,
            self._node,
            self._started_at,
            self._ended_at,
        )


def _whole(value: object, default: int) -> int:
    return value if type(value) is int else default
