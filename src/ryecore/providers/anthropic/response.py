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
from ryecore.providers.anthropic.request import REDACTED
from ryecore.providers.errors import BrokenAnswer

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
    """Converts the events of one stream to chunks; `ended` says whether the answer is complete."""

    __slots__ = ("_calls", "_counts", "_early", "_empty", "_model", "_stop", "ended")

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        self._empty: dict[int, Any] = {}
        self._early: set[int] = set()
        self._counts: dict[str, int] = {}
        self._model = ""
        self._stop: StopReason | None = None
        self.ended = False

    def read(self, event: Any) -> StreamChunk | None:
        """Return the chunk of an event; None if it has none."""
        read = _READ.get(event.type)
        return None if read is None else read(self, event)

    def _started(self, event: Any) -> StreamChunk | None:
        self._model = _text(event.message.model)
        return self._counted(getattr(event.message, "usage", None))

    def _block_started(self, event: Any) -> StreamChunk | None:
        block = event.content_block
        if block.type == "tool_use":
            if event.index in self._early:
                raise ValueError("A call's arguments came before the call.")
            self._empty[event.index] = block.input
            index = self._calls[event.index] = len(self._calls)
            return ToolCallStart(index, _text(block.id), _text(block.name))
        # A block starts empty, but some servers send its whole content with the start.
        if block.type == "text" and block.text:
            return TextDelta(_text(block.text))
        if block.type == "redacted_thinking":
            return ReasoningDelta("", REDACTED + _text(block.data))
        return None

    def _block_moved(self, event: Any) -> StreamChunk | None:
        delta = event.delta
        kind = delta.type
        if kind == "text_delta":
            return TextDelta(_text(delta.text))
        if kind == "input_json_delta":
            # The vendor's own tools have arguments, too; their blocks aren't calls of our tools.
            index = self._calls.get(event.index)
            if index is None:
                self._early.add(event.index)
                return None
            if not delta.partial_json:
                return None
            self._empty.pop(event.index, None)
            return ToolCallDelta(index, _text(delta.partial_json))
        if kind == "thinking_delta":
            return ReasoningDelta(_text(delta.thinking))
        if kind == "signature_delta":
            return ReasoningDelta("", _text(delta.signature))
        return None

    def _block_ended(self, event: Any) -> StreamChunk | None:
        # A call without arguments has no delta.
        if event.index not in self._empty:
            return None
        arguments = self._empty.pop(event.index) or {}
        return ToolCallDelta(self._calls[event.index], _written(arguments))

    def _moved(self, event: Any) -> StreamChunk | None:
        if event.delta.stop_reason is not None:
            self._stop = _stop(event.delta.stop_reason)
        return self._counted(getattr(event, "usage", None))

    def _ended(self, event: Any) -> StreamChunk | None:
        if self._stop is None:  # the answer broke off, and a proxy closed the stream properly
            return None
        self.ended = True
        return StreamEnd(self._stop, _usage(self._counts), self._model)

    def _counted(self, usage: Any) -> StreamChunk | None:
        """Return the chunk of the counts, which are cumulative; unchanged ones may be missing."""
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
    """Return a whole answer."""
    if getattr(message, "type", None) != "message" or not isinstance(message.content, list):
        raise BrokenAnswer("the answer isn't a message.")
    counts = _counts(getattr(message, "usage", None))
    return LlmResult(
        tuple(_parts(message.content, provider_id)),
        _stop(message.stop_reason),
        _usage(counts),
        _text(message.model),
        provider_id,
    )


def _parts(blocks: list[Any], provider_id: str) -> Iterator[Part]:
    for block in blocks:
        if block.type == "text":
            yield TextPart(_text(block.text))
        elif block.type == "tool_use":
            yield ToolCallPart(_text(block.id), _text(block.name), _written(block.input))
        elif block.type == "thinking":
            yield ReasoningPart(_text(block.thinking), provider_id, _text(block.signature))
        elif block.type == "redacted_thinking":
            yield ReasoningPart("", provider_id, REDACTED + _text(block.data))


def _text(value: Any) -> str:
    """Return a text, or an empty one for another type: the SDK doesn't check types."""
    return value if isinstance(value, str) else ""


def _written(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _stop(reason: str | None) -> StopReason:
    return _STOPS.get(cast(str, reason), "stop")


def _counts(usage: Any) -> dict[str, int]:
    """Return the valid counts; missing and invalid ones are left out."""
    found = {name: getattr(usage, name, None) for name in _COUNTS}
    details = getattr(usage, "output_tokens_details", None)
    found["thinking_tokens"] = getattr(details, "thinking_tokens", None)
    written = getattr(usage, "cache_creation", None)
    found["ephemeral_1h_input_tokens"] = getattr(written, "ephemeral_1h_input_tokens", None)
    return {name: count for name, count in found.items() if type(count) is int and count >= 0}


def _usage(counts: dict[str, int]) -> Usage | None:
    """Return the usage: input tokens don't include cached ones, output tokens include reasoning."""
    if not counts:
        return None
    thinking = counts.get("thinking_tokens", 0)
    written = counts.get("cache_creation_input_tokens", 0)
    written_1h = min(counts.get("ephemeral_1h_input_tokens", 0), written)
    return Usage(
        counts.get("input_tokens", 0),
        max(0, counts.get("output_tokens", 0) - thinking),
        counts.get("cache_read_input_tokens", 0),
        written - written_1h,
        thinking,
        written_1h,
    )
