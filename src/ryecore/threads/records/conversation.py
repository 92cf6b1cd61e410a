"""A thread's conversation as markdown, rendered while its records come.

Text of a model or a tool can't close a fence.

Source: docs/design/threads.md#storage; decision 36.
"""

import re
from collections.abc import Callable, Mapping
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
        write = _WRITERS.get(event_type)
        if write is None or self._left_chars < 0:
            return
        for piece in write(event_type, payload):
            self._left_chars -= len(piece)
            if self._left_chars < 0:
                self._parts.append("\nThe rest is left out here; the transcript has it.\n")
                return
            self._parts.append(piece)


def _message(event_type: str, payload: Mapping[str, Any]) -> list[str]:
    turn = payload.get("turn")
    what = "Told" if event_type == "cognition_in" else "Answered"
    heading = f"\n## {what}, turn {turn if type(turn) is int else '?'}\n"
    return [heading, *_parts(payload.get("parts"))]


def _result(event_type: str, payload: Mapping[str, Any]) -> list[str]:
    failed = ", an error" if payload.get("is_error") is True else ""
    block = _block({"tool": payload.get("tool"), "call_id": payload.get("call_id")})
    return [f"\nResult of a tool{failed}:\n\n{block}", *_parts(payload.get("content"))]


def _outputs(event_type: str, payload: Mapping[str, Any]) -> list[str]:
    return [f"\n## Returned\n\n{_block(payload.get('outputs'))}"]


def _other(event_type: str, payload: Mapping[str, Any]) -> list[str]:
    return [f"\n## {event_type.replace('_', ' ').capitalize()}\n\n{_block(payload)}"]


def _compacted(event_type: str, payload: Mapping[str, Any]) -> list[str]:
    return [
        f"\n## Summarized, {payload.get('replaced')} messages\n",
        *_parts(payload.get("parts")),
    ]


_WRITERS: Final[Mapping[str, Callable[[str, Mapping[str, Any]], list[str]]]] = {
    "cognition_in": _message,
    "cognition_out": _message,
    "tool_call_result": _result,
    "directive_return": _outputs,
    "thread_error": _other,
    "limit_reached": _other,
    "conversation_compacted": _compacted,
    "approval_requested": _other,
    "approval_resolved": _other,
    "thread_handoff": _other,
    "thread_resumed": _other,
}
"""Return the pieces of each record that belongs to the conversation, as markdown."""


def _parts(parts: object) -> list[str]:
    if not isinstance(parts, list | tuple):
        return []
    return [_part(part) for part in parts if isinstance(part, dict)]


def _part(part: Mapping[str, Any]) -> str:
    kind, text = part.get("type"), part.get("text")
    if kind == "text" and isinstance(text, str):
        return f"\n{fenced(_cut(text))}"
    if kind == "reasoning" and text and isinstance(text, str):
        return f"\nReasoning:\n\n{fenced(_cut(text))}"
    if kind == "tool_call" and "name" in part and "arguments_json" in part:
        called = {
            "tool": part["name"],
            "call_id": part.get("call_id"),
            "input": part["arguments_json"],
        }
        return f"\nCalled a tool:\n\n{_block(called)}"
    if kind == "media" and "handle" in part and "media_type" in part:
        shown = {"handle": part["handle"], "media_type": part["media_type"]}
        return f"\nMedia:\n\n{_block(shown)}"
    return ""


def _block(value: object) -> str:
    return fenced(_cut(indented_json(value)), "json")


def _cut(text: str) -> str:
    if len(text) <= _MAX_BLOCK_CHARS:
        return text
    return f"{text[:_MAX_BLOCK_CHARS]}\n... {len(text) - _MAX_BLOCK_CHARS} more characters"
