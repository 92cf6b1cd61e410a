"""The events of a thread, and the recorder that writes them to its transcript and listeners."""

import time
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from ryecore.agent.events import AgentEvent, AgentToken, AgentToolCall
from ryecore.policy.context import EventSink
from ryecore.state.events import EventBus, EventStream
from ryecore.state.transcript import Head, Transcript

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
    """The recorder of a thread's events: first to its transcript, then to its listeners.

    Args:
        thread_id: The thread.
        transcript: The transcript.
        sink: The caller's event sink, which gets each step and the names of tools, but no values.

    Attributes:
        transcript: The transcript.
                    turn: The current turn.
                    head: The last checkpoint of the chain; None before the first.
    """

    def __init__(
        self, thread_id: str, transcript: Transcript, sink: EventSink | None = None
    ) -> None:
        self.transcript = transcript
        self.turn = 0
        self.head: Head | None = None
        self._thread_id = thread_id
        self._sink = sink
        self._bus: EventBus[ThreadEvent] | None = None

    def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event. It is in the transcript before this returns."""
        self.append(kind, payload)
        self.transcript.commit()

    def append(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event, to be written with the next one that `tell` records."""
        self.transcript.append(kind, payload)
        if self._bus is not None:
            self._bus.emit(ThreadEvent(self._thread_id, time.time(), kind, payload))
        if self._sink is not None and kind in _STEPS:
            about = payload.get("tool", self._thread_id)
            self._sink({"step": kind, "item_id": about, "turn": self.turn})

    async def synced(self) -> None:
        """Wait until all records so far are as safe as the durability demands.

        An effect waits for its intent here, and a registry's row for the checkpoint it names.
        """
        await self.transcript.synced()

    def checkpoint(self, turn: int) -> None:
        """Close a turn in the transcript."""
        self.head = head = self.transcript.checkpoint(turn)
        if self._bus is not None:
            said = {"turn": turn, "offset": head.offset, "digest": head.digest}
            self._bus.emit(ThreadEvent(self._thread_id, time.time(), "checkpoint", said))

    def emit(self, event: AgentEvent) -> None:
        """Record an event of the turn core."""
        if type(event) is AgentToken:
            self.transcript.delta(event.token)
            if self._bus is not None:
                text = {"text": event.token}
                self._bus.emit(ThreadEvent(self._thread_id, time.time(), "token_delta", text))
        elif type(event) is AgentToolCall:
            # Recorded right before the tool runs: the intent precedes its effect.
            self.tell(
                "tool_call_start",
                {
                    "turn": self.turn,
                    "call_id": event.call_id,
                    "tool": event.tool_id,
                    "input": event.tool_input,
                },
            )

    def listen(self) -> tuple[int, EventStream[ThreadEvent]]:
        """Subscribe: return the transcript's length so far, and a stream of the events to come."""
        self.transcript.commit()
        if self._bus is None:
            self._bus = EventBus(self._thread_id)
        return self.transcript.offset, self._bus.subscribe()

    @property
    def is_closed(self) -> bool:
        """Whether no more events can come."""
        return self._bus is not None and self._bus.is_closed

    def close(self) -> None:
        """Close the transcript, and end the streams of the listeners."""
        self.transcript.close()
        if self._bus is not None:
            self._bus.close()
