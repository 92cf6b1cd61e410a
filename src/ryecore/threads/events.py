"""The events of a thread, and the recorder that writes them to its log and listeners."""

import time
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from ryecore.agent.events import AgentEvent, AgentToken, AgentToolCall
from ryecore.policy.context import EventSink
from ryecore.state.events import EventBus, EventStream
from ryecore.state.record_log import RecordLog
from ryecore.state.transcript_format import Head

__all__ = ["RECORD_TYPES", "Recorder", "ThreadEvent"]

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
    """An event in a thread.

    Attributes:
        thread_id: The thread.
        timestamp: The time, in seconds since 1970 (UTC).
        type: One of `RECORD_TYPES`.
        payload: The rest, JSON-ready.
    """

    thread_id: str
    timestamp: float
    type: str
    payload: Mapping[str, Any]

    def to_dict(self) -> dict[str, object]:
        """Return the event as its line in the transcript."""
        return {
            "timestamp": self.timestamp,
            "thread_id": self.thread_id,
            "event_type": self.type,
            "payload": dict(self.payload),
        }


_STEPS: Final = frozenset({
    "thread_started", "model_call", "tool_call_start", "limit_reached", "thread_handoff",
    "directive_return",
})  # fmt: skip
"""The events that the event sink of a thread's caller receives."""


class Recorder:
    """The recorder of a thread's events: first to its log, then to its listeners.

    The caller's event sink gets each step and the names of tools, but no values. `head` is the last
    checkpoint of the chain.
    """

    def __init__(self, thread_id: str, log: RecordLog, sink: EventSink | None = None) -> None:
        self.turn = 0
        self.head: Head | None = None
        self._log = log
        self._thread_id = thread_id
        self._sink = sink
        self._bus: EventBus[ThreadEvent] | None = None
        self._recorded = 0

    async def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event. It survives the death of the process once this returns."""
        self.append(kind, payload)
        await self._log.flush()

    def append(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event, to be written with the next one that `tell` records."""
        self._log.append(kind, payload)
        self._emit(kind, payload)
        if self._sink is not None and kind in _STEPS:
            about = payload.get("tool", self._thread_id)
            self._sink({"step": kind, "item_id": about, "turn": self.turn})

    def _emit(self, kind: str, payload: Mapping[str, Any]) -> None:
        self._recorded += 1
        if self._bus is not None:
            self._bus.emit(ThreadEvent(self._thread_id, time.time(), kind, payload))

    async def commit(self) -> None:
        """Write all records so far, as safely as the durability demands, before an effect."""
        await self._log.commit()

    async def checkpoint(self, turn: int) -> None:
        """Close a turn in the log. The next commit, before an effect, makes it as durable."""
        self.head = head = await self._log.checkpoint(turn)
        self._emit("checkpoint", {"turn": turn, "offset": head.offset, "digest": head.digest})

    def emit(self, event: AgentEvent) -> None:
        """Record an event of the turn core; the intent to call a tool is committed before it."""
        if type(event) is AgentToken:
            self._log.append_delta(event.token)
            self._emit("token_delta", {"text": event.token})
        elif type(event) is AgentToolCall:
            self.append(
                "tool_call_start",
                {
                    "turn": self.turn,
                    "call_id": event.call_id,
                    "tool": event.tool_id,
                    "input": event.tool_input,
                },
            )

    async def listen(self) -> tuple[int, EventStream[ThreadEvent]]:
        """Subscribe: return the log's length so far, and a stream of the events to come."""
        recorded = -1
        while recorded != self._recorded:  # otherwise an event could be in neither part
            recorded = self._recorded
            await self._log.flush()
        if self._bus is None:
            self._bus = EventBus(self._thread_id)
        return self._log.offset, self._bus.subscribe()

    @property
    def length(self) -> int:
        """The length of the log that is written."""
        return self._log.offset

    @property
    def is_closed(self) -> bool:
        """Whether no more events can come."""
        return self._bus is not None and self._bus.is_closed

    async def close(self) -> None:
        """Close the log, and end the streams of the listeners."""
        try:
            await self._log.close()
        finally:
            if self._bus is not None:
                self._bus.close()
