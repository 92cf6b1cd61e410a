"""Conversations and replies as a notebook shows them."""

from collections.abc import Iterable
from typing import Final

from ryecore.agent.costs import Spent
from ryecore.display.text import StyledText, counted, exact_dollars
from ryecore.llm.parts import (
    MediaPart,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

__all__ = ["conversation_html", "figures"]

_LINE_CHARS: Final = 300
_STYLES: Final = {False: "good", True: "bad"}


def conversation_html(messages: Iterable[Message], spent: Spent) -> str:
    """Return a conversation and its costs as HTML, a line for each part."""
    styled = StyledText()
    for message in messages:
        for part in message.parts:
            who, style, text = _shown(message.role, part)
            styled.line((f"{who:>9}  ", style), text)
    styled.line((figures(spent), "dim"))
    return styled.html()


def figures(spent: Spent) -> str:
    """Return tokens and cost as a line of text."""
    used = spent.tokens_used
    cost = exact_dollars(spent.cost_microcents) + " and what has no price" * bool(spent.unpriced)
    about = "about " * used.estimated
    tokens = f"{about}{counted(used.input, 'token')} in, {used.output:,} out"
    cached = f", {spent.cache_read_tokens:,} from the cache" * bool(spent.cache_read_tokens)
    saved_microcents = spent.cache_saved_microcents
    saved = f" ({exact_dollars(saved_microcents)} saved)" * (saved_microcents > 0)
    return f"{tokens}{cached}, {about}{cost}{saved}, {used.model}"


def _shown(role: Role, part: Part) -> tuple[str, str, str]:
    """Return the speaker of a part, its style, and a line of its text."""
    match part:
        case ToolCallPart():
            return "calls", "id", f"{part.name} {_line(part.arguments_json)}"
        case ToolResultPart():
            return "fails" if part.is_error else "gives", _STYLES[part.is_error], _line(part.text)
        case ReasoningPart():
            return "thinks", "dim", _line(part.text)
        case MediaPart():
            return role, "strong", f"{part.media_type}, {part.size_bytes:,} bytes"
        case TextPart() if part.summary_of:
            return "summary", "dim", _line(part.text)
        case TextPart():
            return role, "strong", _line(part.text)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}…"
