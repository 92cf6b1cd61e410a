"""Conversations as transcript records, and rebuilt from them. Pure.

A conversation is rebuilt exactly as the turns left it; resume, fork and handoff start from it.

Source: docs/design/threads.md#resume-messages; decision 47.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from attrs import define, field

from ryecore.agent.compaction import (
    Compaction,
    NotCompacted,
    begin_of_end,
    summary_in,
)
from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import StateError
from ryecore.frozen import frozen
from ryecore.llm.messages import write_parts
from ryecore.llm.parts import Message, Part, ResultContent, TextPart, ToolCallPart, ToolResultPart
from ryecore.llm.result import LlmResult
from ryecore.llm.token_estimates import message_tokens
from ryecore.state.transcript_format import CHECKPOINT, Record

__all__ = [
    "CognitionIn",
    "CognitionOut",
    "Cut",
    "Rebuilt",
    "ToolCallResult",
    "answer_payload",
    "compaction_payload",
    "cut_after",
    "keep_tail",
    "message_payload",
    "read_payload",
    "rebuild",
    "result_payload",
]

T = TypeVar("T")

_UNKNOWN: Final = "broken off while it ran: whether it has had its effect is not known"
_READ: Final = "broken off while it ran. It changes nothing, so it may be called again"
_NOT_RUN: Final = "not run: the thread was broken off before this call began"
_LEFT_OUT: Final = "(What was said before this was left out, because it was too long.)"
_ENDS: Final = "thread_"
_STATUSES: Final = frozenset({"completed", "error", "cancelled", "continued", "killed"})


# Payloads


@frozen
class CognitionIn:
    """The payload of `cognition_in`: a message to the model in a turn."""

    turn: int = 0
    parts: tuple[Part, ...] = field(kw_only=True)


@frozen
class CognitionOut:
    """The payload of `cognition_out`: a whole answer, tool calls and reasoning included."""

    turn: int = 0
    provider: str = ""
    model: str = ""
    parts: tuple[Part, ...] = field(kw_only=True)
    stop_reason: str | None = None


@frozen
class ToolCallResult:
    """The payload of `tool_call_result`: exactly the result that the model sees."""

    turn: int = 0
    call_id: str = field(kw_only=True)
    tool: str = field(kw_only=True)
    content: tuple[ResultContent, ...] = field(kw_only=True)
    is_error: bool = False
    untrusted: bool = True


@frozen
class ConversationCompacted:
    """The payload of `conversation_compacted`: the message that the first ones have become."""

    replaced: int
    parts: tuple[Part, ...]


def message_payload(turn: int, message: Message) -> dict[str, Any]:
    """Return the payload of `cognition_in`."""
    return {"turn": turn, "parts": write_parts(message.parts)}


def answer_payload(turn: int, answer: LlmResult) -> dict[str, Any]:
    """Return the payload of `cognition_out`, as a `CognitionOut` is written."""
    return {  # by hand: one is made in each turn, and cattrs takes five times as long
        "turn": turn,
        "provider": answer.provider,
        "model": answer.model,
        "parts": write_parts(answer.parts),
        "stop_reason": answer.stop_reason,
    }


def result_payload(turn: int, result: ToolResultPart) -> dict[str, Any]:
    """Return the payload of `tool_call_result`, as a `ToolCallResult` is written."""
    return {  # by hand, too
        "turn": turn,
        "call_id": result.call_id,
        "tool": result.name,
        "content": write_parts(result.content),
        "is_error": result.is_error,
        "untrusted": result.untrusted,
    }


def compaction_payload(turn: int, outcome: Compaction | NotCompacted) -> dict[str, Any]:
    """Return the payload of `conversation_compacted` or `compaction_failed`, after a turn."""
    used = {"turn": turn, "tokens": outcome.tokens_before, "window": outcome.window_tokens}
    if isinstance(outcome, NotCompacted):
        return {**used, "reason": outcome.reason}
    return {
        **used,
        "tokens_after": outcome.tokens_after,
        "replaced": outcome.replaced,
        "parts": write_parts(outcome.messages[0].parts),
    }


def read_payload(document: object, kind: type[T]) -> T:
    """Read a payload or a message."""
    try:
        return RECORDS.read(document, kind)
    except ConversionError as problem:
        raise StateError(
            f"A record of the transcript is not a {kind.__name__} that this version reads: "
            f"{problem}.",
            next_step="Read it with the version of ryecore that wrote it.",
        ) from None


# Rebuilding


@frozen
class Rebuilt:
    """A conversation, rebuilt from records by whole turns: every tool call has its result.

    `turn` is the last one with an answer, and `asked_turn` the last in which a model was asked; 0
    for none. Where it broke off, the effects of the calls in `unknown` are unknown, and they must
    not be repeated automatically; those in `not_run` had no effect: they had not begun, or their
    tools are read-only.
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
    """Rebuild the conversation from records.

    A call without a result is answered as `unknown` if it had begun and isn't read-only, else as
    not run; streamed text without a whole answer isn't used.

    Source: decision 47; ADR 054.
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
    """The messages so far, and the calls of the last answer that wait for results."""

    messages: list[Message] = field(factory=list)
    turn: int = 0
    asked_turn: int = 0
    unknown: list[str] = field(factory=list)
    not_run: list[str] = field(factory=list)
    status: str | None = None
    calls: tuple[ToolCallPart, ...] = ()
    begun: dict[str, int] = field(factory=dict)
    read_only: set[str] = field(factory=set)
    results: dict[str, list[ToolResultPart]] = field(factory=dict)

    def add(self, record: Record) -> None:
        payload = record.payload
        match record.type:
            case "token_delta":
                pass
            case "cognition_in":
                self.close_calls()
                told = read_payload(payload, CognitionIn)
                self.messages.append(Message("user", told.parts))
            case "cognition_out":
                self.close_calls()
                self._answer(read_payload(payload, CognitionOut))
            case "tool_call_start":
                call_id = payload.get("call_id", "")
                self.begun[call_id] = self.begun.get(call_id, 0) + 1
                if payload.get("read_only") is True:
                    self.read_only.add(call_id)
            case "tool_call_result":
                self._add_result(read_payload(payload, ToolCallResult))
            case "conversation_compacted":
                self._compact(read_payload(payload, ConversationCompacted))
            case "model_call":
                self.asked_turn = max(self.asked_turn, _turn_of(payload))
            case "thread_started" | "thread_resumed" | "thread_forked":
                self.status = None
                self.messages += [read_payload(one, Message) for one in payload.get("messages", ())]
            case _ if record.type.startswith(_ENDS) and record.type[len(_ENDS) :] in _STATUSES:
                self.status = record.type[len(_ENDS) :]
            case _:
                pass

    def _compact(self, compacted: ConversationCompacted) -> None:
        self.close_calls()
        if not 0 < compacted.replaced <= len(self.messages):
            raise StateError(
                f"The transcript says that {compacted.replaced} messages were summarized, and has "
                f"{len(self.messages)} before that.",
                next_step="Read it with the version of ryecore that wrote it.",
            )
        self.messages[: compacted.replaced] = [Message("user", compacted.parts)]

    def _add_result(self, result: ToolCallResult) -> None:
        part = ToolResultPart(
            result.call_id,
            result.tool,
            result.content,
            is_error=result.is_error,
            untrusted=result.untrusted,
        )
        self.results.setdefault(result.call_id, []).append(part)

    def _answer(self, answer: CognitionOut) -> None:
        self.turn = max(self.turn, answer.turn)
        self.asked_turn = max(self.asked_turn, self.turn)
        if not answer.parts or answer.stop_reason == "content_filter":
            return  # the turns store neither
        message = Message("assistant", answer.parts)
        self.messages.append(message)
        self.calls = message.tool_calls

    def close_calls(self) -> None:
        """Answer the calls of the last answer, in their order."""
        if self.calls:
            self.messages.append(Message("tool", tuple(map(self._outcome, self.calls))))
        self.calls = ()
        self.begun.clear()
        self.read_only.clear()
        self.results.clear()

    def _outcome(self, call: ToolCallPart) -> ToolResultPart:
        # Several calls may share an id: their results come in the order of the calls.
        begun = self.begun.get(call.call_id, 0)
        self.begun[call.call_id] = begun - 1
        came = self.results.get(call.call_id)
        if came:
            return came.pop(0)
        if begun <= 0:
            self.not_run.append(call.call_id)
            text = _NOT_RUN
        elif call.call_id in self.read_only:
            self.not_run.append(call.call_id)
            text = _READ
        else:
            self.unknown.append(call.call_id)
            text = _UNKNOWN
        return ToolResultPart(call.call_id, call.name, (TextPart(text),), is_error=True)


# Cutting


@frozen
class Cut:
    """The records up to a turn's results, and the digest (hex) of their checkpoint."""

    records: tuple[Record, ...]
    digest: str


def cut_after(records: Iterable[Record], turn: int) -> Cut:
    """Cut records after the results of a turn, which a checkpoint must close.

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
        f"Turn {turn} can't be forked after: "
        + (f"the last one that ended is {last}." if last else "no turn has ended."),
        next_step="Name a turn that has ended.",
    )


def keep_tail(messages: Sequence[Message], max_tokens: int) -> list[Message]:
    """Return as much of a conversation's end as fits into a budget of tokens.

    It begins with a user message, and every tool call has its results. If it begins in the middle
    of a turn's work, the first message says that messages were left out. A summary before it stays,
    unless it takes more than half of the budget.

    Source: docs/design/threads.md#turn-loop.
    """
    note = TextPart(_LEFT_OUT)
    note_tokens = message_tokens(Message("user", (note,)))
    begin = begin_of_end(messages, max_tokens, note_tokens)
    before = _summary_of(messages[:begin], max_tokens // 2)
    if before:
        most = max_tokens - message_tokens(Message("user", before))
        begin = begin_of_end(messages, most, note_tokens)
    end = list(messages[begin:])
    if end and end[0].role == "assistant":
        return [Message("user", (*before, note)), *end]
    if not before:
        return end
    said = end[0].parts if end else ()
    return [Message("user", (*before, *said)), *end[1:]]


def _summary_of(messages: Sequence[Message], max_tokens: int) -> tuple[TextPart, ...]:
    """Return the last summary in messages; nothing where it exceeds a budget of tokens."""
    for message in reversed(messages):
        part = summary_in(message)
        if part is not None:
            fits = message_tokens(Message("user", (part,))) <= max_tokens
            return (part,) if fits else ()
    return ()


def _turn_of(payload: Mapping[str, Any]) -> int:
    turn = payload.get("turn")
    return turn if type(turn) is int else 0
