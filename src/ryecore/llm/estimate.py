"""About how many tokens a request is, where nobody counts them."""

from typing import Final

from ryecore.llm.parts import MediaPart, Part, ToolCallPart, ToolResultPart
from ryecore.llm.request import LlmRequest, ToolSpec

__all__ = ["estimated_tokens", "tool_tokens"]

_BYTES_A_TOKEN: Final = 3
"""Less than a token's usual length, so that an estimate is rather too high. Bytes and not
characters, because a token holds several letters, but hardly more than one ideograph."""

_BYTES_A_MEDIUM: Final = 6_000


def estimated_tokens(request: LlmRequest) -> int:
    """About how many tokens a request is, rather too many than too few."""
    size = _size(request.system)
    for tool in request.tools:
        size += _tool_size(tool)
    if request.response_format is not None:
        size += _size(str(request.response_format.schema))
    for message in request.messages:
        size += sum(map(_size_of, message.parts))
    return -(-size // _BYTES_A_TOKEN)


def tool_tokens(tool: ToolSpec) -> int:
    """About how many tokens telling a model of a tool takes."""
    return -(-_tool_size(tool) // _BYTES_A_TOKEN)


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
