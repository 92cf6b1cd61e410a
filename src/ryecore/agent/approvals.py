"""Calls of tools that wait for a person, and the answers to them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from ryecore.errors import InputError, InvalidConversation
from ryecore.frozen import frozen
from ryecore.llm.parts import Message, ToolCallPart, ToolResultPart
from ryecore.policy.approvals import call_digest
from ryecore.tools.context import ToolApprovalRequest

__all__ = [
    "PendingApproval",
    "answered",
    "check_idle",
    "check_pending",
    "check_resolved",
    "check_resumable",
    "check_retryable",
    "ends_whole",
    "open_calls",
    "results_so_far",
]

_ANSWER: Final = (
    "Answer each of session.pending with session.resolve(id, approve=...), then call "
    "session.resume()."
)


@frozen
class PendingApproval:
    """A call of a tool that waits for a person's approval.

    Attributes:
        id: Its unique id, for `AgentSession.resolve`.
        tool_name: The tool.
        arguments: The exact arguments of the call, without those that the host sets.
        reason: Why approval is needed.
        tool_digest: The digest of the tool: its definition and its code, or the files of its chain.
        call_id: The model's id of the call.
        place: The place of the call among those of the answer, from 0.
        approved: The answer; None until there is one.
        answer_reason: The reason of the answer; that of a denial is told to the model.
    """

    id: str
    tool_name: str
    arguments: Mapping[str, Any]
    reason: str
    tool_digest: str
    call_id: str
    place: int
    approved: bool | None = None
    answer_reason: str = ""

    def covers(self, request: ToolApprovalRequest) -> bool:
        """Return whether a request is for exactly this call of exactly this tool."""
        asked = call_digest(request.tool_name, request.tool_digest, request.arguments)
        return call_digest(self.tool_name, self.tool_digest, self.arguments) == asked


def results_so_far(messages: Sequence[Message]) -> tuple[int, dict[int, ToolResultPart]]:
    """Return the place of the last answer with calls, and the results by the places of its calls.

    The place is -1 where no answer at the end has calls.
    """
    place, results = len(messages) - 1, list[ToolResultPart]()
    while place >= 0 and messages[place].role == "tool":
        parts = messages[place].parts
        results[:0] = [part for part in parts if isinstance(part, ToolResultPart)]
        place -= 1
    if place < 0 or not messages[place].tool_calls:
        return -1, {}
    found: dict[int, ToolResultPart] = {}
    for number, call in enumerate(messages[place].tool_calls):
        result = next((one for one in results if one.call_id == call.call_id), None)
        if result is not None:
            results.remove(result)
            found[number] = result
    return place, found


def open_calls(messages: Sequence[Message]) -> dict[int, ToolCallPart]:
    """Return the calls of the last answer that have no result, by their places."""
    place, found = results_so_far(messages)
    if place < 0:
        return {}
    calls = enumerate(messages[place].tool_calls)
    return {number: call for number, call in calls if number not in found}


def ends_whole(messages: Sequence[Message], pending: Sequence[PendingApproval]) -> bool:
    """Return whether a reply that is being made has its last message: an answer or its calls."""
    if not messages or messages[-1].role != "assistant":
        return False
    return bool(pending) or not messages[-1].tool_calls


def check_pending(messages: Sequence[Message], pending: Sequence[PendingApproval]) -> None:
    """Check that exactly the calls without a result wait for an approval."""
    waiting = Counter((one.place, one.call_id, one.tool_name) for one in pending)
    calls = open_calls(messages)
    there = Counter((place, call.call_id, call.name) for place, call in calls.items())
    if waiting != there or len({one.id for one in pending}) < len(pending):
        raise InvalidConversation(
            "The calls that wait for an approval aren't those without a result.",
            next_step="Pass what was saved as it is, whole and unchanged.",
        )


def answered(
    pending: Sequence[PendingApproval], approval_id: str, approve: bool, reason: str
) -> tuple[tuple[PendingApproval, ...], PendingApproval]:
    """Return the calls with the answer to one of them, and that one, or raise an InputError."""
    if not isinstance(approve, bool):
        raise InputError(
            f"approve is True or False, not a {type(approve).__name__}.",
            next_step="Write session.resolve(id, approve=True), or False and a reason.",
        )
    for place, one in enumerate(pending):
        if one.id == approval_id and one.approved is None:
            now = evolve(one, approved=approve, answer_reason=reason)
            return (*pending[:place], now, *pending[place + 1 :]), now
    raise InputError(
        f"No call waits for an approval with the id {approval_id!r}.",
        next_step="Take an id of session.pending; each is answered once.",
    )


def check_idle(handed_to: str | None, *, is_answering: bool) -> None:
    """Refuse a request to a session that was handed to another agent, or is answering."""
    if handed_to is not None:
        raise InputError(
            f"This conversation was handed to the agent {handed_to}.",
            next_step="Use the session that hand_to has returned.",
        )
    if is_answering:
        raise InputError(
            "The session is answering already.",
            next_step="Wait for that reply, or open another AgentSession.",
        )


def check_resolved(pending: Sequence[PendingApproval]) -> None:
    """Refuse another message while calls wait."""
    if pending:
        waiting = ", ".join(one.tool_name for one in pending)
        raise InputError(
            f"Calls of this conversation wait for an approval: {waiting}.", next_step=_ANSWER
        )


def check_resumable(pending: Sequence[PendingApproval]) -> None:
    """Refuse to resume where no call waits, or one has no answer."""
    if not pending:
        raise InputError(
            "No call waits for an approval.", next_step="Send a message: session.send(...)."
        )
    check_resolved([one for one in pending if one.approved is None])


def check_retryable(messages: Sequence[Message], unanswered: Message | None) -> None:
    """Refuse to ask again where no message waits for an answer."""
    if unanswered is None and (not messages or messages[-1].role == "assistant"):
        raise InputError(
            "Nothing waits for an answer.", next_step="Send one with session.send(...)."
        )
