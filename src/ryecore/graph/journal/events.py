"""What a run of a graph tells: the records of its journal.

Source: docs/design/graphs.md#the-walk; decision 47.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from ryecore.state.transcript_check import Record

__all__ = ["RUN_RECORD_TYPES", "SHOWN_TYPES", "GraphEvent", "event_of"]

RUN_RECORD_TYPES: Final = (
    "run_started", "run_resumed", "node_started", "node_retry", "item_started", "item_retry",
    "item_completed", "node_completed", "foreach_completed", "state_checkpoint", "cost", "hook",
    "model_call", "model_call_end", "budget_overspent", "tool_call_start", "tool_call_result",
    "node_pending", "cache_skipped", "checkpoint",
    "run_completed", "run_error", "run_cancelled", "run_killed",
)  # fmt: skip
"""The types of records in a journal. These decide what is gone on from after a crash:

- `node_started` {node, step}: told before each try of a node, the later ones too.
- `node_retry` {node, error}: a try has failed, and another one comes: nothing is in flight.
- `item_started` {node, index}: told before each try of a foreach's member.
- `item_retry` {node, index, error}: such a try has failed, and another one comes.
- `item_completed` {node, index, ...outcome}: what came of the member.
- `node_completed` {node, step, ...outcome, control}: what came of the node, its tries used up; and
  what hooks want where it failed.
- `state_checkpoint` {step, node, state_hash}: where the run stands behind `step` nodes.

An outcome is what `Journal.outcome_of` makes of a `NodeResult`: `result` or `result_hash`, and
where it failed `error`, `code` and perhaps `retryable`.
"""

SHOWN_TYPES: Final = ("token_delta",)
"""What those who listen are shown besides, as it happens, and nothing keeps: `token_delta`
{node, text}, more of an agent's answer."""


@frozen
class GraphEvent:
    """One thing that happened in a run of a graph.

    Attributes:
        run_id: The run.
        timestamp: When, in seconds since 1970 (UTC).
        type: What; one of `RUN_RECORD_TYPES` or `SHOWN_TYPES`.
        payload: The rest, JSON-ready.
    """

    run_id: str
    timestamp: float
    type: str
    payload: Mapping[str, Any]

    def to_dict(self) -> dict[str, object]:
        """The event as its line in the journal."""
        return {
            "timestamp": self.timestamp,
            "thread_id": self.run_id,
            "event_type": self.type,
            "payload": dict(self.payload),
        }


def event_of(record: Record) -> GraphEvent:
    """A record of a journal as the event that it was."""
    return GraphEvent(record.thread_id, record.timestamp, record.type, record.payload)
