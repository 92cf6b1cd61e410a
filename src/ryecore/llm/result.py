"""The answer of a model and its token counts."""

from typing import Literal, Self, TypeAlias

from ryecore.frozen import frozen
from ryecore.llm.parts import Message, Part, TextPart, ToolCallPart

__all__ = ["LlmResult", "StopReason", "Usage"]

StopReason: TypeAlias = Literal["stop", "tool_use", "length", "content_filter", "error"]
"""Why a model stopped: it finished, calls tools, reached its bound, was stopped by a filter, or
broke off."""


@frozen(slots=False)
class Usage:
    """The tokens of one request. The counts are disjoint: no token is in two of them.

    Attributes:
        input_tokens: Read, and neither from a cache nor written to one.
        output_tokens: Written, without reasoning.
        cache_read_tokens: Read from the provider's cache.
        cache_write_tokens: Read, and written to the provider's cache for less than an hour.
        reasoning_tokens: Written as reasoning.
        cache_write_1h_tokens: Read, and written to the provider's cache for an hour or longer.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @property
    def total_input_tokens(self) -> int:
        """All tokens that were read, from a cache or not."""
        return (
            self.input_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
            + self.cache_write_1h_tokens
        )

    @property
    def total_cache_write_tokens(self) -> int:
        """All tokens that were written to the provider's cache."""
        return self.cache_write_tokens + self.cache_write_1h_tokens

    @property
    def total_output_tokens(self) -> int:
        """All tokens that were written, reasoning included."""
        return self.output_tokens + self.reasoning_tokens

    @property
    def total_tokens(self) -> int:
        """All tokens."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
            + self.reasoning_tokens
            + self.cache_write_1h_tokens
        )

    def __add__(self, other: "Usage") -> Self:
        return type(self)(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )


@frozen(slots=False)
class LlmResult:
    """The answer of a model.

    Attributes:
        parts: Its content, in order.
        stop_reason: Why the model stopped.
        usage: The token counts; None if the provider reported none.
        model: The model that answered, as the provider names it.
        provider: The provider's id.
    """

    parts: tuple[Part, ...]
    stop_reason: StopReason
    usage: Usage | None
    model: str
    provider: str

    @property
    def message(self) -> Message:
        """The answer as a message of the conversation."""
        return Message("assistant", self.parts)

    @property
    def text(self) -> str:
        """The texts, joined."""
        return "".join(part.text for part in self.parts if type(part) is TextPart)

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return tuple([part for part in self.parts if type(part) is ToolCallPart])
