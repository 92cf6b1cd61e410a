"""What a thread tells: the records of its transcript, and live the tokens between them.

Source: docs/design/threads.md#storage; docs/concepts/transcripts.md#records; decision 47.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

__all__ = ["RECORD_TYPES", "ThreadEvent"]

RECORD_TYPES: Final = (
    "thread_started", "thread_resumed", "thread_forked", "context_injected", "cognition_in",
    "model_call", "model_call_end", "cognition_out", "token_delta", "tool_call_start",
    "tool_call_result", "directive_return", "hook", "limit_reached", "budget_overspent",
    "context_limit_reached", "thread_handoff", "checkpoint", "thread_completed", "thread_error",
    "thread_cancelled", "thread_continued", "thread_killed",
)  # fmt: skip
"""The types of records in a transcript."""


@frozen
class ThreadEvent:
    """One thing that happened in a thread.

    Attributes:
        thread_id: The thread.
        timestamp: When, in seconds since 1970 (UTC).
        type: What; one of `RECORD_TYPES`.
        payload: The rest, JSON-ready.
    """

    thread_id: str
    timestamp: float
    type: str
    payload: Mapping[str, Any]

    def to_dict(self) -> dict[str, object]:
        """The event as its line in the transcript."""
        return {
            "timestamp": self.timestamp,
            "thread_id": self.thread_id,
            "event_type": self.type,
            "payload": dict(self.payload),
        }
