"""What a scripted model says in one turn."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from ryecore.errors.agents import LlmError, LlmErrorKind
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
        steps: What comes, in order.
        ending: How it ends.
        usage: What is counted; the provider's own default where None.
        stop_reason: Why it stops; where None, `tool_use` if a tool is called, else `stop`.
    """

    steps: tuple[TurnStep, ...]
    ending: TurnEnding = "whole"
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    _prepared: "dict[int, PreparedTurn]" = field(factory=dict, init=False, eq=False, repr=False)

    def __add__(self, after: "Turn") -> "Turn":
        if self.ending not in ("whole", "cut"):
            raise ValueError("Nothing can follow what fails or hangs.")
        return Turn(
            self.steps + after.steps,
            after.ending,
            after.usage or self.usage,
            after.stop_reason or self.stop_reason,
        )

    def prepared(self, chunk_chars: int) -> "PreparedTurn":
        """Make the chunks that are streamed, once.

        Args:
            chunk_chars: How long a piece of text is at most, in characters.
        """
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

    Attributes:
        nameless: Where in it the calls begin that have no id yet.
        end: The last chunk; None where none comes, or it is among the chunks.
    """

    chunks: tuple[StreamChunk, ...]
    nameless: tuple[int, ...]
    end: StreamEnd | None


def say(text: str, *, usage: Usage | None = None, stop_reason: StopReason | None = None) -> Turn:
    """Make a turn that says something."""
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
        usage: What is counted.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return Turn((ToolCallPart(call_id, name, text),), "whole", usage)


def think(text: str, *, opaque: str = "") -> Turn:
    """Make a turn that thinks, to be followed by another: `think("…") + say("…")`.

    Args:
        text: What may be read of it.
        opaque: What the provider needs to take it back.
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
        kind: How it fails.
        message: What the error says.
        retry_after_s: How long the provider asks to wait, in seconds.
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
    """Make a turn of these very chunks, with no other `StreamEnd` than the one that is given."""
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
