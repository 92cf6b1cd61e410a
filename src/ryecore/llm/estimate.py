"""About how many tokens a request is, where nobody counts them."""

from typing import Final

from ryecore.llm.parts import MediaPart, Part, ToolCallPart, ToolResultPart
from ryecore.llm.request import LlmRequest

__all__ = ["estimated_tokens"]

_CHARS_A_TOKEN: Final = 3
"""Less than a token's usual length, so that an estimate is rather too high."""

_CHARS_A_MEDIUM: Final = 6_000


def estimated_tokens(request: LlmRequest) -> int:
    """About how many tokens a request is, rather too many than too few."""
    chars = len(request.system) + sum(
        len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in request.tools
    )
    for message in request.messages:
        chars += sum(map(_length, message.parts))
    return -(-chars // _CHARS_A_TOKEN)


def _length(part: Part) -> int:
    match part:
        case ToolCallPart():
            return len(part.name) + len(part.arguments_json)
        case ToolResultPart():
            return sum(map(_length, part.content))
        case MediaPart():
            return _CHARS_A_MEDIUM
        case _:
            return len(part.text)
