"""What a provider streams."""

from typing import TypeAlias

from attrs import frozen

from ryecore.llm.parts import MediaPart
from ryecore.llm.result import StopReason, Usage

__all__ = [
    "MediaChunk",
    "ReasoningDelta",
    "StreamChunk",
    "StreamEnd",
    "TextDelta",
    "ToolCallDelta",
    "ToolCallStart",
    "UsageUpdate",
]


@frozen
class TextDelta:
    """More text."""

    text: str


@frozen
class ReasoningDelta:
    """More of what the model thinks.

    Attributes:
        text: More text; may be empty.
        opaque: What the provider needs to take the whole part back. It ends the part.
    """

    text: str
    opaque: str = ""


@frozen
class ToolCallStart:
    """A tool call begins. The same index again is the same call, and says nothing new.

    Attributes:
        index: Which of the turn's calls it is.
        call_id: What its result will refer to.
        name: The tool's name.
    """

    index: int
    call_id: str
    name: str


@frozen
class ToolCallDelta:
    """More of a tool call's arguments.

    Attributes:
        index: Which of the turn's calls it belongs to.
        arguments_json: More of their JSON text.
    """

    index: int
    arguments_json: str


@frozen
class MediaChunk:
    """A whole medium that the model made."""

    part: MediaPart


@frozen
class UsageUpdate:
    """What was counted so far. It replaces what was said before."""

    usage: Usage


@frozen
class StreamEnd:
    """The answer is whole. A stream that ends without one was cut.

    Attributes:
        stop_reason: Why the model stopped.
        usage: What was counted in all; None for what the last `UsageUpdate` said.
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
