"""A conversation as records, and from records again. Pure.

What was said is rebuilt exactly as the turns left it: resume, fork and handoff go on from there.

Source: docs/design/threads.md#resume-messages; decision 47.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from ryecore.errors import StateError
from ryecore.llm.estimate import estimated_tokens
from ryecore.llm.parts import (
    MediaPart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult
from ryecore.state.transcript_check import Record
from ryecore.state.transcript_format import CHECKPOINT

__all__ = [
    "Cut",
    "Rebuilt",
    "answer_payload",
    "cut_after",
    "keep_tail",
    "message_from_json",
    "message_payload",
    "message_to_json",
    "part_from_json",
    "part_to_json",
    "rebuild",
    "result_payload",
]

_UNKNOWN: Final = "broken off while it ran: whether it has had its effect is not known"
_NOT_RUN: Final = "not run: the thread was broken off before this call began"
_LEFT_OUT: Final = "(What was said before this was left out, because it was too long.)"
_ENDS: Final = "thread_"
_STATUSES: Final = frozenset({"completed", "error", "cancelled", "continued", "killed"})


# Parts


def part_to_json(part: Part) -> dict[str, Any]:
    """A part of a message, JSON-ready. Media stand there by their handle."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ToolCallPart(call_id, name, arguments_json):
            return {
                "type": "tool_call",
                "call_id": call_id,
                "name": name,
                "arguments_json": arguments_json,
            }
        case ToolResultPart():
            return {
                "type": "tool_result",
                "call_id": part.call_id,
                "name": part.name,
                "content": [part_to_json(one) for one in part.content],
                "is_error": part.is_error,
                "untrusted": part.untrusted,
            }
        case ReasoningPart(text, origin, opaque):
            return {"type": "reasoning", "text": text, "origin": origin, "opaque": opaque}
        case MediaPart(handle, media_type, size_bytes, name):
            return {
                "type": "media",
                "handle": handle,
                "media_type": media_type,
                "size_bytes": size_bytes,
                "name": name,
            }


def part_from_json(said: Mapping[str, Any]) -> Part:
    """A part as `part_to_json` wrote it.

    Raises:
        StateError: It is none.
    """
    match said:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {
            "type": "tool_call",
            "call_id": str(call_id),
            "name": str(name),
            "arguments_json": str(arguments_json),
        }:
            return ToolCallPart(call_id, name, arguments_json)
        case {"type": "tool_result", "call_id": str(call_id), "name": str(name)}:
            return _result(said, call_id, name)
        case {"type": "reasoning", "text": str(text), "origin": str(origin), "opaque": str(opaque)}:
            return ReasoningPart(text, origin, opaque)
        case {
            "type": "media",
            "handle": str(handle),
            "media_type": str(media_type),
            "size_bytes": int(size_bytes),
            "name": str(name),
        }:
            return MediaPart(handle, media_type, size_bytes, name)
        case _:
            raise _unreadable("a part of a message")


def message_to_json(message: Message) -> dict[str, Any]:
    """A message, JSON-ready."""
    return {"role": message.role, "parts": [part_to_json(part) for part in message.parts]}


def message_from_json(said: Mapping[str, Any]) -> Message:
    """A message as `message_to_json` wrote it.

    Raises:
        StateError: It is none.
    """
    role = said.get("role")
    if role not in ("user", "assistant", "tool"):
        raise _unreadable("a message")
    return Message(role, _parts(said))


# Payloads


def message_payload(turn: int, message: Message) -> dict[str, Any]:
    """The payload of `cognition_in`: what the model is told in a turn."""
    return {"turn": turn, "parts": [part_to_json(part) for part in message.parts]}


def answer_payload(turn: int, answer: LlmResult) -> dict[str, Any]:
    """The payload of `cognition_out`: a whole answer, tool calls and reasoning included."""
    return {
        "turn": turn,
        "provider": answer.provider,
        "model": answer.model,
        "parts": [part_to_json(part) for part in answer.parts],
        "stop_reason": answer.stop_reason,
    }


def result_payload(turn: int, result: ToolResultPart) -> dict[str, Any]:
    """The payload of `tool_call_result`: exactly what the model sees."""
    return {
        "turn": turn,
        "call_id": result.call_id,
        "tool": result.name,
        "content": [part_to_json(part) for part in result.content],
        "is_error": result.is_error,
        "untrusted": result.untrusted,
    }


# Rebuilding


@frozen
class Rebuilt:
    """A conversation, rebuilt from records.

    Attributes:
        messages: What was said, by whole turns: every tool call has its answer.
        turn: The last turn that has an answer; 0 for none.
        asked_turn: The last turn that a model was asked for, with or without an answer.
        unknown: The ids of calls that were running when it broke off: whether they have had
            their effect is not known, and they must not be run again by themselves.
        not_run: The ids of calls that had not begun when it broke off.
        status: How the thread ended; None where it didn't.
    """

    messages: list[Message]
    turn: int
    asked_turn: int
    unknown: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    status: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the thread has ended."""
        return self.status is not None


def rebuild(records: Iterable[Record]) -> Rebuilt:
    """The conversation that records tell of.

    Args:
        records: A transcript's, verified.

    Returns:
        What was said. A call without a result is answered as `unknown` where it had begun, and as
        not run where it hadn't; streamed text without a whole answer isn't used.

    Raises:
        StateError: A record isn't of the form that this version writes.

    Source: decision 47.
    """
    made = _Conversation()
    for record in records:
        made.add(record)
    made.close_calls()
    return Rebuilt(
        made.messages,
        made.turn,
        made.asked_turn,
        tuple(made.unknown),
        tuple(made.not_run),
        made.status,
    )


@define
class _Conversation:
    """What was said so far, and the calls of its last answer that wait for their results."""

    messages: list[Message] = field(factory=list)
    turn: int = 0
    asked_turn: int = 0
    unknown: list[str] = field(factory=list)
    not_run: list[str] = field(factory=list)
    status: str | None = None
    calls: tuple[ToolCallPart, ...] = ()
    begun: dict[str, int] = field(factory=dict)
    results: dict[str, list[ToolResultPart]] = field(factory=dict)

    def add(self, record: Record) -> None:
        payload = record.payload
        match record.type:
            case "token_delta":
                pass
            case "cognition_in":
                self.close_calls()
                self.messages.append(Message("user", _parts(payload)))
            case "cognition_out":
                self.close_calls()
                self._answer(payload)
            case "tool_call_start":
                call_id = payload.get("call_id", "")
                self.begun[call_id] = self.begun.get(call_id, 0) + 1
            case "tool_call_result":
                call_id, name = payload.get("call_id"), payload.get("tool")
                if not (isinstance(call_id, str) and isinstance(name, str)):
                    raise _unreadable("a tool's result")
                self.results.setdefault(call_id, []).append(_result(payload, call_id, name))
            case "model_call":
                self.asked_turn = max(self.asked_turn, _turn_of(payload))
            case "thread_started" | "thread_resumed" | "thread_forked":
                self.status = None
                self.messages.extend(map(message_from_json, payload.get("messages", ())))
            case _ if record.type.startswith(_ENDS) and record.type[len(_ENDS) :] in _STATUSES:
                self.status = record.type[len(_ENDS) :]
            case _:
                pass

    def _answer(self, payload: Mapping[str, Any]) -> None:
        self.turn = max(self.turn, _turn_of(payload))
        self.asked_turn = max(self.asked_turn, self.turn)
        parts = _parts(payload)
        if not parts or payload.get("stop_reason") == "content_filter":
            return  # the turns keep neither
        message = Message("assistant", parts)
        self.messages.append(message)
        self.calls = message.tool_calls

    def close_calls(self) -> None:
        """Answer the calls of the last answer, in their order."""
        if self.calls:
            self.messages.append(Message("tool", tuple(map(self._outcome, self.calls))))
        self.calls = ()
        self.begun.clear()
        self.results.clear()

    def _outcome(self, call: ToolCallPart) -> ToolResultPart:
        # One id may stand for several calls: results then come in the order of the calls.
        begun = self.begun.get(call.call_id, 0)
        self.begun[call.call_id] = begun - 1
        came = self.results.get(call.call_id)
        if came:
            return came.pop(0)
        if begun > 0:
            self.unknown.append(call.call_id)
        else:
            self.not_run.append(call.call_id)
        text = _UNKNOWN if begun > 0 else _NOT_RUN
        return ToolResultPart(call.call_id, call.name, (TextPart(text),), is_error=True)


# Cutting


@frozen
class Cut:
    """What a fork begins with.

    Attributes:
        records: The records up to a turn's results.
        digest: The digest (hex) of the checkpoint that closed them.
    """

    records: tuple[Record, ...]
    digest: str


def cut_after(records: Iterable[Record], turn: int) -> Cut:
    """The records up to the results of a turn.

    Args:
        records: A transcript's, verified.
        turn: The turn.

    Raises:
        StateError: The turn isn't there, or no checkpoint closes it.

    Source: decision 47.
    """
    kept: list[Record] = []
    last = 0
    for record in records:
        if record.type != CHECKPOINT:
            kept.append(record)
            continue
        last = _turn_of(record.payload)
        if last == turn:
            return Cut(tuple(kept), str(record.payload.get("digest", "")))
    raise StateError(
        f"Turn {turn} is not there to fork after: "
        + (f"the last one that ended is {last}." if last else "no turn has ended."),
        next_step="Name a turn that has ended.",
    )


def keep_tail(messages: Sequence[Message], max_tokens: int) -> list[Message]:
    """The end of a conversation, within a budget.

    Args:
        messages: The conversation, by whole turns.
        max_tokens: How many tokens it may be, as estimated.

    Returns:
        As much of its end as fits. It begins with a user message, and no tool call stands there
        without its results. Where it begins in the middle of a turn's work, the first message
        says that something was left out. Empty where nothing fits.

    Source: docs/design/threads.md#turn-loop.
    """
    note = Message.user(_LEFT_OUT)
    note_tokens = _tokens(note)
    best, tokens, is_noted = len(messages), 0, False
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        tokens += _tokens(message)
        if tokens > max_tokens:
            break
        if message.role == "user":
            best, is_noted = place, False
        elif message.role == "assistant" and tokens + note_tokens <= max_tokens:
            best, is_noted = place, True
    return [*([note] if is_noted else []), *messages[best:]]


def _tokens(message: Message) -> int:
    return estimated_tokens(LlmRequest("", (message,)))


# Reading


def _parts(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    parts = payload.get("parts")
    if not isinstance(parts, list):
        raise _unreadable("a message")
    return tuple(map(part_from_json, parts))


def _result(said: Mapping[str, Any], call_id: str, name: str) -> ToolResultPart:
    content = said.get("content")
    if not isinstance(content, list):
        raise _unreadable("a tool's result")
    parts: list[TextPart | MediaPart] = []
    for part in map(part_from_json, content):
        if not isinstance(part, TextPart | MediaPart):
            raise _unreadable("a tool's result")
        parts.append(part)
    return ToolResultPart(
        call_id,
        name,
        tuple(parts),
        is_error=said.get("is_error") is True,
        untrusted=said.get("untrusted") is not False,
    )


def _turn_of(payload: Mapping[str, Any]) -> int:
    turn = payload.get("turn")
    return turn if type(turn) is int else 0


def _unreadable(what: str) -> StateError:
    return StateError(
        f"The transcript holds {what} of a form that this version doesn't read.",
        next_step="Read it with the version of ryecore that wrote it.",
    )
