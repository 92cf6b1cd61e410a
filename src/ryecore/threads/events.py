"""The types of a thread's events, and their recorder."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from ryecore.agent.events import AgentEvent, AgentReasoning, AgentToken, AgentToolCall
from ryecore.state.events import Recorder
from ryecore.threads.records.conversation import Conversation

if TYPE_CHECKING:
    from ryecore.policy.context import EventSink
    from ryecore.state.record_log import RecordLog, RecordStore

__all__ = ["RECORD_TYPES", "ThreadRecorder"]

RECORD_TYPES: Final = (
    "thread_started", "thread_resumed", "thread_forked", "context_injected", "cognition_in",
    "model_call", "model_call_end", "cognition_out", "token_delta", "tool_call_start",
    "tool_call_result", "approval_requested", "approval_resolved", "directive_return", "hook",
    "limit_reached", "budget_overspent", "conversation_compacted", "compaction_failed",
    "context_limit_reached", "thread_handoff", "checkpoint", "thread_completed", "thread_error",
    "thread_cancelled", "thread_continued", "thread_killed",
)  # fmt: skip
"""The types of records in a transcript."""


class ThreadRecorder(Recorder):
    """The recorder of a thread's events. Its sink gets the names of tools."""

    steps = frozenset({
        "thread_started", "model_call", "tool_call_start", "limit_reached", "thread_handoff",
        "directive_return",
    })  # fmt: skip
    subject = "tool"

    def __init__(
        self, run_id: str, log: "RecordLog", records: "RecordStore", sink: "EventSink | None"
    ) -> None:
        super().__init__(run_id, log, records, sink)
        self.conversation = Conversation()
        self.read_only: frozenset[str] = frozenset()
        """The names of the read-only tools, whose calls say so in their records."""

    @override
    def append(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event, and add it to the conversation as people read it."""
        super().append(kind, payload)
        self.conversation.add(kind, payload)

    async def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event. It survives the death of the process once this returns."""
        self.append(kind, payload)
        await self._log.flush()

    def emit(self, event: AgentEvent) -> None:
        """Record an event of the turn core; `commit` or `write_soon` stores an intent."""
        if type(event) is AgentToken:
            self._log.append_delta(event.token)
            self.show("token_delta", {"text": event.token})
        elif type(event) is AgentReasoning:
            self.show("reasoning_delta", {"text": event.text})
        elif type(event) is AgentToolCall:
            called = event.tool_id
            payload = {
                "turn": self.turn,
                "call_id": event.call_id,
                "tool": called,
                "input": event.tool_input,
            }
            if called in self.read_only:
                payload["read_only"] = True
            self.append("tool_call_start", payload)
