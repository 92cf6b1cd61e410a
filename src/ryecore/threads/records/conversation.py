"""A thread's conversation as markdown, rendered while its records come.

Text of a model or a tool can't close a fence.

Source: docs/design/threads.md#storage; decision 36.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ryecore.convert.json_text import indented_json
from ryecore.display.sanitize import escape_markdown

__all__ = ["Conversation", "fenced"]

_FENCE: Final = re.compile(r"`{3,}")
_MAX_BLOCK_CHARS: Final = 16_000
_MAX_CHARS: Final = 1_000_000


def fenced(text: str, language: str = "text") -> str:
    """Return text in a fence that it can't close; the language is trusted."""
    shown = escape_markdown(text)
    longest = max(map(len, _FENCE.findall(shown)), default=2) if "```" in shown else 2
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{shown}{'' if shown.endswith(chr(10)) else chr(10)}{fence}\n"


class Conversation:
    """The conversation of one thread as markdown, in bounded memory.

    Very long texts are marked as cut; the transcript has them whole.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left_chars = _MAX_CHARS

    @property
    def markdown(self) -> str:
        """The conversation so far."""
        return "".join(self._parts)

    def add(self, event_type: str, payload: Mapping[str, Any]) -> None:
        """Add a record of the transcript, if it belongs to the conversation."""
        if self._left_chars < 0 or event_type not in _SHOWN:
            return
        for piece in _pieces(event_type, payload):
            self._left_chars -= len(piece)
            if self._left_chars < 0:
                self._parts.append("\nThe rest is left out here; the transcript has it.\n")
                return
            self._parts.append(piece)


_SHOWN: Final = frozenset({
    "cognition_in", "cognition_out", "tool_call_result", "directive_return", "thread_error",
    "limit_reached", "thread_handoff", "thread_resumed",
})  # fmt: skip


def _pieces(event_type: str, payload: Mapping[str, Any]) -> Iterable[str]:
    """Yield the parts of a record that belong to the conversation, as markdown."""
    match event_type:
        case "cognition_in":
            yield _heading("Told", payload)
            yield from _parts(payload.get("parts"))
        case "cognition_out":
            yield _heading("Answered", payload)
            yield from _parts(payload.get("parts"))
        case "tool_call_result":
            failed = ", an error" if payload.get("is_error") is True else ""
            yield f"\nResult of a tool{failed}:\n\n"
            yield _block({"tool": payload.get("tool"), "call_id": payload.get("call_id")})
            yield from _parts(payload.get("content"))
        case "directive_return":
            yield "\n## Returned\n\n"
            yield _block(payload.get("outputs"))
        case _:
            yield f"\n## {event_type.replace('_', ' ').capitalize()}\n\n"
            yield _block(payload)


def _heading(what: str, payload: Mapping[str, Any]) -> str:
    turn = payload.get("turn")
    return f"\n## {what}, turn {turn if type(turn) is int else '?'}\n"


def _parts(parts: object) -> Iterable[str]:
    for part in parts if isinstance(parts, list | tuple) else ():
        match part:
            case {"type": "text", "text": str(text)}:
                yield "\n" + fenced(_cut(text))
            case {"type": "reasoning", "text": str(text)} if text:
                yield "\nReasoning:\n\n" + fenced(_cut(text))
            case {"type": "tool_call", "name": name, "arguments_json": arguments}:
                yield "\nCalled a tool:\n\n"
                yield _block({"tool": name, "call_id": part.get("call_id"), "input": arguments})
            case {"type": "media", "handle": handle, "media_type": media_type}:
                yield "\nMedia:\n\n" + _block({"handle": handle, "media_type": media_type})
            case _:
                pass


def _block(value: object) -> str:
    return fenced(_cut(indented_json(value)), "json")


def _cut(text: str) -> str:
    if len(text) <= _MAX_BLOCK_CHARS:
        return text
    return f"{text[:_MAX_BLOCK_CHARS]}\n... {len(text) - _MAX_BLOCK_CHARS} more characters"
