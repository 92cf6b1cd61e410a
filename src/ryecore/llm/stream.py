"""The chunks that a provider streams, and their fold into an answer."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ryecore.frozen import frozen
from ryecore.llm.parts import MediaPart, Part, ReasoningPart, TextPart, ToolCallPart
from ryecore.llm.result import LlmResult, StopReason, Usage

__all__ = [
    "MediaChunk",
    "ReasoningDelta",
    "StreamChunk",
    "StreamEnd",
    "StreamFold",
    "TextDelta",
    "ToolCallDelta",
    "ToolCallStart",
    "UsageUpdate",
    "parts_bytes",
]


@frozen
class TextDelta:
    """A piece of text."""

    text: str


@frozen
class ReasoningDelta:
    """A piece of the model's reasoning.

    Attributes:
        text: A piece of text; may be empty.
        opaque: What the provider needs to accept the whole part again. It ends the part.
    """

    text: str
    opaque: str = ""


@frozen
class ToolCallStart:
    """The start of a tool call. A second start with the same index is ignored.

    Attributes:
        index: The index of the call in its turn.
        call_id: The id that its result refers to.
        name: The tool's name.
    """

    index: int
    call_id: str
    name: str


@frozen
class ToolCallDelta:
    """A piece of a tool call's arguments.

    Attributes:
        index: The index of the call in its turn.
        arguments_json: A piece of their JSON text.
    """

    index: int
    arguments_json: str


@frozen
class MediaChunk:
    """A complete medium that the model made."""

    part: MediaPart


@frozen
class UsageUpdate:
    """The usage so far. It replaces earlier ones."""

    usage: Usage


@frozen
class StreamEnd:
    """The end of a complete answer. A stream that ends without one was cut off.

    Attributes:
        stop_reason: Why the model stopped.
        usage: The usage in all; None for that of the last `UsageUpdate`.
        model: The model that answered, as the provider names it; empty for the one asked for.
    """

    stop_reason: StopReason
    usage: Usage | None = None
    model: str = ""


StreamChunk: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallDelta
    | MediaChunk
    | UsageUpdate
    | StreamEnd
)


class StreamFold:
    """The part of a streamed answer that has arrived. Chunks after its end are ignored.

    Args:
        provider: The id of the provider, the origin of reasoning parts.
        model: The requested model.

    Attributes:
        has_content: Whether any content arrived that a person or the next turn would see.
        end: The last chunk; None until it arrives.
        usage: The usage so far.
    """

    __slots__ = (
        "_call_ids", "_calls", "_model", "_parts", "_provider", "_reasoning", "_text", "end",
        "has_content", "usage",
    )  # fmt: skip

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._parts: list[Part | _Call] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._call_ids: set[str] = set()
        self.has_content = False
        self.end: StreamEnd | None = None
        self.usage: Usage | None = None

    def add(self, chunk: StreamChunk) -> None:
        """Add the next chunk."""
        if self.end is not None:
            return
        if type(chunk) is TextDelta and not self._reasoning:  # as most chunks are
            if chunk.text:
                self._text.append(chunk.text)
                self.has_content = True
            return
        _ADD[type(chunk)](self, chunk)

    @property
    def text_bytes(self) -> int:
        """The size in bytes of text, reasoning and arguments so far, to estimate the cost."""
        whole = (part.part if isinstance(part, _Call) else part for part in self._parts)
        return parts_bytes(whole) + sum(map(_size, (*self._text, *self._reasoning)))

    def result(self) -> LlmResult:
        """Return the answer, as far as it has arrived."""
        if self._text:
            self._close_text()
        if self._reasoning:
            self._close_reasoning("")
        end = self.end
        return LlmResult(
            tuple([part.part if isinstance(part, _Call) else part for part in self._parts]),
            end.stop_reason if end else "error",
            self.usage,
            (end.model if end else "") or self._model,
            self._provider,
        )

    def _add_text(self, chunk: TextDelta) -> None:
        if self._reasoning:
            self._close_reasoning("")
        if chunk.text:
            self._text.append(chunk.text)
            self.has_content = True

    def _add_reasoning(self, chunk: ReasoningDelta) -> None:
        if self._text:
            self._close_text()
        self.has_content = True
        if chunk.text:
            self._reasoning.append(chunk.text)
        if chunk.opaque:
            self._close_reasoning(chunk.opaque)

    def _add_call(self, chunk: ToolCallStart) -> None:
        # A call that a provider sends twice is one call, and must not take effect twice.
        call_id = chunk.call_id
        if chunk.index in self._calls or call_id in self._call_ids:
            return
        if call_id:
            self._call_ids.add(call_id)
        if self._text:
            self._close_text()
        if self._reasoning:
            self._close_reasoning("")
        self.has_content = True
        call = self._calls[chunk.index] = _Call(chunk)
        self._parts.append(call)

    def _add_arguments(self, chunk: ToolCallDelta) -> None:
        call = self._calls.get(chunk.index)
        if call is not None:
            call.arguments.append(chunk.arguments_json)

    def _add_media(self, chunk: MediaChunk) -> None:
        self._close_text()
        self._close_reasoning("")
        self.has_content = True
        self._parts.append(chunk.part)

    def _add_usage(self, chunk: UsageUpdate) -> None:
        self.usage = chunk.usage

    def _add_end(self, chunk: StreamEnd) -> None:
        self.end = chunk
        if chunk.usage is not None:
            self.usage = chunk.usage

    def _close_text(self) -> None:
        if self._text:
            self._parts.append(TextPart(_joined(self._text)))
            self._text = []

    def _close_reasoning(self, opaque: str) -> None:
        if self._reasoning or opaque:
            self._parts.append(ReasoningPart(_joined(self._reasoning), self._provider, opaque))
            self._reasoning = []


class _Call:
    """A tool call whose arguments are still arriving."""

    __slots__ = ("arguments", "start")

    def __init__(self, start: ToolCallStart) -> None:
        self.start = start
        self.arguments: list[str] = []

    @property
    def part(self) -> ToolCallPart:
        return ToolCallPart(self.start.call_id, self.start.name, _joined(self.arguments))


def _joined(pieces: list[str]) -> str:
    """Join pieces of text: surrogate pairs are combined, lone surrogates are replaced."""
    text = "".join(pieces)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def parts_bytes(parts: Iterable[Part]) -> int:
    """Return the size of an answer's text, reasoning and arguments in bytes."""
    size_bytes = 0
    for part in parts:
        if isinstance(part, TextPart | ReasoningPart):
            size_bytes += _size(part.text)
        elif isinstance(part, ToolCallPart):
            size_bytes += _size(part.arguments_json)
    return size_bytes


_ADD: dict[type, Callable[[StreamFold, Any], None]] = {
    TextDelta: StreamFold._add_text,
    ReasoningDelta: StreamFold._add_reasoning,
    ToolCallStart: StreamFold._add_call,
    ToolCallDelta: StreamFold._add_arguments,
    MediaChunk: StreamFold._add_media,
    UsageUpdate: StreamFold._add_usage,
    StreamEnd: StreamFold._add_end,
}
