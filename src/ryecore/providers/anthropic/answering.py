"""Anthropic's answers as chunks and results."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from anthropic.types import Message as AnthropicMessage

from ryecore.llm import (
    LlmResult,
    Part,
    ReasoningDelta,
    ReasoningPart,
    StopReason,
    StreamChunk,
    StreamEnd,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolCallStart,
    Usage,
    UsageUpdate,
)
from ryecore.providers.anthropic.asking import REDACTED

__all__ = ["EventReader", "result_of"]

_STOPS: Final[dict[str, StopReason]] = {
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_COUNTS: Final = (
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
)  # fmt: skip


class EventReader:
    """The events of one stream, turned into chunks.

    Attributes:
        ended: Whether the answer is whole.
    """

    __slots__ = ("_calls", "_counts", "_empty", "_model", "_stop", "ended")

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        self._empty: set[int] = set()
        self._counts: dict[str, int] = {}
        self._model = ""
        self._stop: StopReason = "stop"
        self.ended = False

    def read(self, event: Any) -> StreamChunk | None:
        """The chunk that an event makes; None where it makes none."""
        read = _READ.get(event.type)
        return None if read is None else read(self, event)

    def _started(self, event: Any) -> StreamChunk | None:
        self._model = event.message.model
        return self._counted(getattr(event.message, "usage", None))

    def _block_started(self, event: Any) -> StreamChunk | None:
        block = event.content_block
        if block.type == "tool_use":
            self._empty.add(event.index)
            index = self._calls[event.index] = len(self._calls)
            return ToolCallStart(index, block.id, block.name)
        if block.type == "redacted_thinking":
            return ReasoningDelta("", REDACTED + block.data)
        return None

    def _block_moved(self, event: Any) -> StreamChunk | None:
        delta = event.delta
        kind = delta.type
        if kind == "text_delta":
            return TextDelta(delta.text)
        if kind == "input_json_delta":
            # The vendor's own tools write arguments too: those blocks are no calls of ours.
            index = self._calls.get(event.index)
            if index is None or not delta.partial_json:
                return None
            self._empty.discard(event.index)
            return ToolCallDelta(index, delta.partial_json)
        if kind == "thinking_delta":
            return ReasoningDelta(delta.thinking)
        if kind == "signature_delta":
            return ReasoningDelta("", delta.signature)
        return None

    def _block_ended(self, event: Any) -> StreamChunk | None:
        # A call without arguments comes without a single delta.
        if event.index not in self._empty:
            return None
        self._empty.discard(event.index)
        return ToolCallDelta(self._calls[event.index], "{}")

    def _moved(self, event: Any) -> StreamChunk | None:
        self._stop = _stop(event.delta.stop_reason)
        return self._counted(getattr(event, "usage", None))

    def _ended(self, event: Any) -> StreamChunk:
        self.ended = True
        return StreamEnd(self._stop, _usage(self._counts), self._model)

    def _counted(self, usage: Any) -> StreamChunk | None:
        """Counts are cumulative, and those that don't change may be left out."""
        if usage is None:
            return None
        self._counts.update(_counts(usage))
        counted = _usage(self._counts)
        return None if counted is None else UsageUpdate(counted)


_READ: Final[dict[str, Callable[[EventReader, Any], StreamChunk | None]]] = {
    "message_start": EventReader._started,
    "content_block_start": EventReader._block_started,
    "content_block_delta": EventReader._block_moved,
    "content_block_stop": EventReader._block_ended,
    "message_delta": EventReader._moved,
    "message_stop": EventReader._ended,
}


def result_of(message: AnthropicMessage, provider_id: str) -> LlmResult:
    """A whole answer.

    Raises:
        ValueError: It is none.
    """
    if getattr(message, "type", None) != "message" or not isinstance(message.content, list):
        raise ValueError("The answer is no message.")
    counts = _counts(getattr(message, "usage", None))
    return LlmResult(
        tuple(_parts(message.content, provider_id)),
        _stop(message.stop_reason),
        _usage(counts),
        message.model,
        provider_id,
    )


def _parts(blocks: list[Any], provider_id: str) -> Iterator[Part]:
    for block in blocks:
        if block.type == "text":
            yield TextPart(block.text)
        elif block.type == "tool_use":
            yield ToolCallPart(block.id, block.name, json.dumps(block.input, ensure_ascii=False))
        elif block.type == "thinking":
            yield ReasoningPart(block.thinking, provider_id, block.signature)
        elif block.type == "redacted_thinking":
            yield ReasoningPart("", provider_id, REDACTED + block.data)


def _stop(reason: str | None) -> StopReason:
    return _STOPS.get(cast(str, reason), "stop")


def _counts(usage: Any) -> dict[str, int]:
    """What was counted; a count that is missing is left out."""
    found = {name: getattr(usage, name, None) for name in _COUNTS}
    details = getattr(usage, "output_tokens_details", None)
    found["thinking_tokens"] = getattr(details, "thinking_tokens", None)
    return {name: count for name, count in found.items() if count is not None}


def _usage(counts: dict[str, int]) -> Usage | None:
    """The vendor's input tokens leave the cache out; its output tokens hold the reasoning."""
    if not counts:
        return None
    thinking = counts.get("thinking_tokens", 0)
    return Usage(
        counts.get("input_tokens", 0),
        max(0, counts.get("output_tokens", 0) - thinking),
        counts.get("cache_read_input_tokens", 0),
        counts.get("cache_creation_input_tokens", 0),
        thinking,
    )
