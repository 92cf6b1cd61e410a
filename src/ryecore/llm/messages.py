"""Messages as JSON, in transcripts and in saved conversations, and the order that they must keep.

Source: docs/reference/file-formats.md#saved-conversations.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, get_args

from ryecore.convert.json_text import make_encoder
from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import InvalidConversation
from ryecore.frozen import frozen
from ryecore.llm.parts import (
    MediaPart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from ryecore.strict_json import read_json

__all__ = [
    "SavedJson",
    "check_order",
    "messages_from_json",
    "messages_to_json",
    "read_saved",
    "write_message",
    "write_parts",
    "write_saved",
]

T = TypeVar("T")

SavedJson: TypeAlias = str | bytes | Mapping[str, object]
"""A saved conversation: its JSON text, or the object that a JSON column of a database returns."""

_MESSAGES: Final = "ryecore.messages"
_VERSION: Final = 1
_PARTS: Final = get_args(Part)
_SAID: Final = frozenset({TextPart, ReasoningPart, MediaPart})
_TAKEN: Final[Mapping[str, frozenset[type]]] = {
    "user": _SAID,
    "assistant": _SAID | {ToolCallPart},
    "tool": frozenset({ToolResultPart}),
}
_READERS: Final = {
    _MESSAGES: "messages_from_json(...)",
    "ryecore.session": "AgentSession.from_json(agent, deps, ...)",
}
_AS_STORED: Final = "Pass what was saved as it is, whole and unchanged."
_CUT: Final = (
    "Where a conversation is cut, keep the calls of tools and their results together: begin it "
    "with a message of the user."
)
# ASCII, so that any store takes it, also half a surrogate pair.
_encode: Final = make_encoder()


@frozen
class _SavedMessages:
    messages: tuple[Message, ...]


def messages_to_json(messages: Iterable[Message]) -> str:
    """Return messages as JSON text, with media by their handles.

    Args:
        messages: The messages; any part of a conversation.

    Returns:
        One JSON object in ASCII, which `messages_from_json` reads.
    """
    return write_saved(_MESSAGES, _VERSION, _SavedMessages(tuple(messages)))


def messages_from_json(data: SavedJson) -> tuple[Message, ...]:
    """Read messages that `messages_to_json` wrote.

    Args:
        data: The JSON text, or the object that it holds.

    Returns:
        The messages.

    Raises:
        InvalidConversation: It is damaged, or another version of ryecore wrote it.
    """
    return read_saved(data, _MESSAGES, _VERSION, _SavedMessages).messages


def write_message(message: Message) -> dict[str, Any]:
    """Return a message as JSON types."""
    written: dict[str, Any] = RECORDS.write(message)
    return written


def write_parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return the parts of a message, or the content of a result, as JSON types."""
    return [RECORDS.write(part) for part in parts]


def write_saved(form: str, version: int, saved: object) -> str:
    """Return an attrs class as the JSON text of a form and its version."""
    return _encode({"format": form, "version": version, **RECORDS.write(saved)})


def read_saved(data: SavedJson, form: str, version: int, kind: type[T]) -> T:
    """Read the attrs class of a form, or raise InvalidConversation."""
    document = _document(data)
    found = document.get("format")
    if found != form:
        reader = _READERS.get(found) if isinstance(found, str) else None
        raise InvalidConversation(
            f"This is {found}, not {form}." if reader else f"This isn't a saved {form}.",
            next_step=f"Read it with {reader}." if reader else _AS_STORED,
        )
    saved_version = document.get("version")
    if saved_version != version or type(saved_version) is not int:
        raise InvalidConversation(
            f"This {form} has {_shown(saved_version)}; this ryecore reads version {version}.",
            next_step="Read it with the version of ryecore that wrote it, or a later one.",
            known_versions=(version,),
        )
    try:
        return RECORDS.read(document, kind, finds_every_problem=True)
    except ConversionError as problem:
        first, more = problem.problems[0], len(problem.problems) - 1
        rest = f", and {more} more" if more else ""
        raise InvalidConversation(
            f"This {form} is damaged: {first}{rest}.", next_step=_AS_STORED
        ) from None


def _document(data: SavedJson) -> Mapping[str, object]:
    if isinstance(data, Mapping):
        return data
    try:
        read = read_json(data.decode() if isinstance(data, bytes) else data)
    except ValueError as problem:
        raise InvalidConversation(
            f"A saved conversation is JSON, and this isn't: {problem}.", next_step=_AS_STORED
        ) from None
    except (AttributeError, TypeError):
        raise InvalidConversation(
            f"A saved conversation is JSON text, not a {type(data).__name__}.",
            next_step=_AS_STORED,
        ) from None
    if not isinstance(read, dict):
        raise InvalidConversation(
            f"A saved conversation is a JSON object, not a {type(read).__name__}.",
            next_step=_AS_STORED,
        )
    return read


def _shown(version: object) -> str:
    if isinstance(version, str | int | float | None):
        return f"the version {json.dumps(version)[:40]}"
    return f"a {type(version).__name__} as its version"


# The order


def check_order(messages: Sequence[Message], waiting: Collection[str] = ()) -> None:
    """Check that messages are a conversation that a model can continue.

    Each answer's tool calls have their results in the messages right behind it, and no result is
    without its call. Only the calls of the last answer whose ids are in `waiting` may lack one.

    Raises:
        InvalidConversation: They aren't.
    """
    calls: list[ToolCallPart] = []
    for place, message in enumerate(messages):
        if not isinstance(message, Message):
            raise InvalidConversation(
                f"A {type(message).__name__} isn't a Message.",
                next_step='Write AgentSession(messages=[Message.user("…"), …]).',
                message_index=place,
            )
        taken = _TAKEN.get(message.role, ())
        for part in message.parts:
            if type(part) not in taken:
                raise _misplaced(place, message.role, part)
        if message.role == "tool":
            for result in message.parts:
                if isinstance(result, ToolResultPart):  # as `taken` says
                    _take_call(calls, place, result)
            continue
        if calls:
            raise _unanswered(place - 1, calls)
        if message.role == "assistant":
            calls = [part for part in message.parts if type(part) is ToolCallPart]
    calls = [call for call in calls if call.call_id not in waiting]
    if calls:
        raise _unanswered(len(messages) - 1, calls)


def _take_call(calls: list[ToolCallPart], place: int, result: ToolResultPart) -> None:
    """Remove the call of a result from those that wait for theirs."""
    call_id = result.call_id
    for index, call in enumerate(calls):
        if call.call_id == call_id:
            del calls[index]
            return
    begins = "The conversation begins with" if place == 0 else f"messages[{place}] has"
    raise InvalidConversation(
        f"{begins} the result of {result.name} ({call_id}), whose call isn't in the answer before "
        "it.",
        next_step=_CUT,
        message_index=place,
    )


def _unanswered(place: int, calls: Iterable[ToolCallPart]) -> InvalidConversation:
    missing = ", ".join(f"{call.name} ({call.call_id})" for call in calls)
    return InvalidConversation(
        f"The result of {missing} is missing behind messages[{place}].",
        next_step=_CUT,
        message_index=place,
    )


def _misplaced(place: int, role: str, part: Part) -> InvalidConversation:
    if not isinstance(part, _PARTS):
        return InvalidConversation(
            f"messages[{place}] has a {type(part).__name__}, which isn't a part of a message.",
            next_step='Write Message.user("…"), Message.assistant("…") or Message.results(…).',
            message_index=place,
        )
    return InvalidConversation(
        f"messages[{place}] has the role {role} and a part of the type {part.type}.",
        next_step="Calls of tools belong to the role assistant, and their results to the role "
        "tool, which has nothing else.",
        message_index=place,
    )
