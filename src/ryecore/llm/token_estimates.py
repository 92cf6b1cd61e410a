"""Estimates of the tokens of requests, before a provider has counted them. Pure."""

from collections.abc import Iterable
from typing import Final

from ryecore.llm.parts import MediaPart, Message, Part, ToolCallPart, ToolResultPart
from ryecore.llm.request import LlmRequest, ToolSpec

__all__ = ["TokenEstimate", "estimated_tokens", "message_tokens", "text_tokens", "tool_tokens"]

_BYTES_A_TOKEN: Final = 3
"""Less than a token's usual length, so that an estimate is rather too high. Bytes and not
characters, because a token holds several letters, but hardly more than one ideograph."""

_BYTES_A_MEDIUM: Final = 6_000


def estimated_tokens(request: LlmRequest) -> int:
    """Estimate a request's tokens, rather too many than too few."""
    return -(-(_size_around(request) + _size_of_all(request.messages)) // _BYTES_A_TOKEN)


class TokenEstimate:
    """Estimates the requests of one conversation, each by its additions to the one before."""

    def __init__(self) -> None:
        self._around: tuple[object, ...] = ()
        self._around_size = 0
        self._messages: tuple[Message, ...] = ()
        self._messages_size = 0

    def of(self, request: LlmRequest) -> int:
        """Estimate a request's tokens, as `estimated_tokens` does."""
        around = (request.system, request.tools, request.response_format)
        if around != self._around:
            self._around, self._around_size = around, _size_around(request)
        messages, known = request.messages, len(self._messages)
        # Identical objects compare at once, and equal messages have equal lengths.
        if messages[:known] == self._messages:
            self._messages_size += _size_of_all(messages[known:])
        else:
            self._messages_size = _size_of_all(messages)
        self._messages = messages
        return -(-(self._around_size + self._messages_size) // _BYTES_A_TOKEN)


def message_tokens(message: Message) -> int:
    """Estimate a message's tokens."""
    return -(-_size_of_all((message,)) // _BYTES_A_TOKEN)


def text_tokens(text: str) -> int:
    """Estimate a text's tokens."""
    return -(-_size(text) // _BYTES_A_TOKEN)


def tool_tokens(tool: ToolSpec) -> int:
    """Estimate the tokens of a tool's definition."""
    return -(-_tool_size(tool) // _BYTES_A_TOKEN)


def _size_around(request: LlmRequest) -> int:
    """Return the size of all that is sent along with a conversation."""
    size = _size(request.system) + sum(map(_tool_size, request.tools))
    if request.response_format is not None:
        size += _size(str(request.response_format.schema))
    return size


def _size_of_all(messages: Iterable[Message]) -> int:
    size = 0
    for message in messages:
        for part in message.parts:
            size += _size_of(part)
    return size


def _tool_size(tool: ToolSpec) -> int:
    return _size(tool.name) + _size(tool.description) + _size(str(tool.parameters))


def _size_of(part: Part) -> int:
    match part:
        case ToolCallPart():
            return _size(part.name) + _size(part.arguments_json)
        case ToolResultPart():
            return sum(map(_size_of, part.content))
        case MediaPart():
            return _BYTES_A_MEDIUM
        case _:
            return _size(part.text)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
