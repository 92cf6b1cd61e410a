"""The events of a graph's run, which are the records of its journal.

Source: docs/design/graphs.md#the-walk; decision 47.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from ryecore.state.transcript_format import Record

__all__ = ["RUN_RECORD_TYPES", "SHOWN_TYPES", "GraphEvent", "event_of"]

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

SHOWN_TYPES: Final = ("token_delta",)
"""The types of events that only live listeners receive, and no journal stores: `token_delta`
{node, text}, the next piece of an agent's answer."""


@frozen
class GraphEvent:
    """An event in a run of a graph.

    Attributes:
        run_id: The run.
        timestamp: The time, in seconds since 1970 (UTC).
        type: One of `RUN_RECORD_TYPES` or `SHOWN_TYPES`.
        payload: The rest, JSON-ready.
    """

    run_id: str
    timestamp: float
    type: str
    payload: Mapping[str, Any]

    def to_dict(self) -> dict[str, object]:
        """Return the event as its line in the journal."""
        return {
            "timestamp": self.timestamp,
            "thread_id": self.run_id,
            "event_type": self.type,
            "payload": dict(self.payload),
        }


def event_of(record: Record) -> GraphEvent:
    """Return the event of a journal's record."""
    return GraphEvent(record.thread_id, record.timestamp, record.type, record.payload)
