"""The turns of a scripted model."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from attrs import field

from ryecore.errors.agents import LlmError, LlmErrorKind
from ryecore.frozen import frozen
from ryecore.llm.parts import ReasoningPart, TextPart, ToolCallPart
from ryecore.llm.result import StopReason, Usage
from ryecore.llm.stream import (
    MediaChunk,
    ReasoningDelta,
    StreamChunk,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageUpdate,
)

__all__ = [
    "PreparedTurn",
    "Turn",
    "TurnEnding",
    "TurnStep",
    "call",
    "cut",
    "fail",
    "hang",
    "raw",
    "say",
    "think",
]

TurnStep: TypeAlias = (
    TextPart
    | ReasoningPart
    | ToolCallPart
    | TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallDelta
    | MediaChunk
    | UsageUpdate
    | StreamEnd
)
"""A part, which is streamed in pieces, or a chunk, which is streamed as it is."""

TurnEnding: TypeAlias = Literal["whole", "cut", "hang"] | LlmError
"""How a turn ends: as it should, without its `StreamEnd`, never, or with an error."""


@frozen
class Turn:
    """One answer of a scripted model. `+` joins turns into one: `think("…") + call("add")`.

    Attributes:
        steps: The parts and chunks of the answer, in order.
        ending: How it ends.
        usage: The usage; None for the provider's default.
        stop_reason: Why it stops; None for `tool_use` if a tool is called, else `stop`.
    """

    steps: tuple[TurnStep, ...]
    ending: TurnEnding = "whole"
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    _prepared: "dict[int, PreparedTurn]" = field(factory=dict, init=False, eq=False, repr=False)

    def __add__(self, after: "Turn") -> "Turn":
        if self.ending not in ("whole", "cut"):
            raise ValueError("A turn that fails or hangs must be the last one.")
        return Turn(
            self.steps + after.steps,
            after.ending,
            after.usage or self.usage,
            after.stop_reason or self.stop_reason,
        )

    def prepared(self, chunk_chars: int) -> "PreparedTurn":
        """Return the chunks to stream, made once; `chunk_chars` bounds pieces of text."""
        found = self._prepared.get(chunk_chars)
        if found is None:
            found = self._prepared[chunk_chars] = self._prepare(chunk_chars)
        return found

    def _prepare(self, chunk_chars: int) -> "PreparedTurn":
        chunks = tuple(_chunks(self.steps, chunk_chars))
        kinds = {type(chunk) for chunk in chunks}
        nameless = tuple(
            at
            for at, chunk in enumerate(chunks)
            if isinstance(chunk, ToolCallStart) and not chunk.call_id
        )
        stop_reason = self.stop_reason or ("tool_use" if ToolCallStart in kinds else "stop")
        is_ended = self.ending != "whole" or StreamEnd in kinds
        end = None if is_ended else StreamEnd(stop_reason, self.usage)
        return PreparedTurn(chunks, nameless, end)


@frozen
class PreparedTurn:
    """A turn in the pieces that are streamed.

    `nameless` are the places of calls that have no id yet. `end` is the last chunk; None if there
    is none, or it is among the chunks.
    """

    chunks: tuple[StreamChunk, ...]
    nameless: tuple[int, ...]
    end: StreamEnd | None


def say(text: str, *, usage: Usage | None = None, stop_reason: StopReason | None = None) -> Turn:
    """Make a turn that is a text."""
    return Turn((TextPart(text),), "whole", usage, stop_reason)


def call(
    name: str,
    arguments: Mapping[str, Any] | str | None = None,
    *,
    call_id: str = "",
    usage: Usage | None = None,
) -> Turn:
    """Make a turn that calls a tool. Several, joined by `+`, are parallel calls.

    Args:
        name: The tool's name.
        arguments: Its arguments, or the very text that the model writes, JSON or not.
        call_id: The call's id; `call_1`, `call_2`, … where empty.
        usage: The usage; None for the provider's default.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return Turn((ToolCallPart(call_id, name, text),), "whole", usage)


def think(text: str, *, opaque: str = "") -> Turn:
    """Make a turn that thinks, to be followed by another: `think("…") + say("…")`.

    Args:
        text: The readable text.
        opaque: What the provider needs to accept the reasoning again.
    """
    return Turn((ReasoningPart(text, "", opaque),))


def fail(
    kind: LlmErrorKind,
    message: str = "The script says so.",
    *,
    retry_after_s: float | None = None,
    status: int | None = None,
) -> Turn:
    """Make a turn that fails; behind another one, in the middle of the stream.

    Args:
        kind: The kind of failure.
        message: The error's message.
        retry_after_s: The wait that the provider asks for, in seconds.
        status: The HTTP status.
    """
    return Turn((), LlmError(message, kind=kind, retry_after_s=retry_after_s, status=status))


def hang() -> Turn:
    """Make a turn that never ends by itself; behind another one, a stream that stalls."""
    return Turn((), "hang")


def cut() -> Turn:
    """Make a turn whose connection is closed too early; behind another one, in its middle."""
    return Turn((), "cut")


def raw(*chunks: StreamChunk) -> Turn:
    """Make a turn of exactly these chunks; no `StreamEnd` is added."""
    return Turn(chunks, "cut")


def _chunks(steps: tuple[TurnStep, ...], size: int) -> Iterator[StreamChunk]:
    calls = 0
    for step in steps:
        if isinstance(step, TextPart):
            yield from (TextDelta(piece) for piece in _pieces(step.text, size))
        elif isinstance(step, ReasoningPart):
            yield from (ReasoningDelta(piece) for piece in _pieces(step.text, size))
            if step.opaque:
                yield ReasoningDelta("", step.opaque)
        elif isinstance(step, ToolCallPart):
            yield ToolCallStart(calls, step.call_id, step.name)
            for piece in _pieces(step.arguments_json, size):
                yield ToolCallDelta(calls, piece)
            calls += 1
        else:
            yield step


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
