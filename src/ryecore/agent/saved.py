"""The saved form of a session: what `AgentSession.to_json` writes.

Source: docs/reference/file-formats.md#saved-conversations.
"""

from collections.abc import Sequence
from typing import Final

from attrs import astuple, define, field

from ryecore.agent.approvals import PendingApproval, check_pending
from ryecore.errors import InvalidConversation
from ryecore.frozen import frozen
from ryecore.llm.messages import SavedJson, check_order, read_saved, write_saved
from ryecore.llm.parts import Message
from ryecore.llm.result import Usage

__all__ = ["Asked", "SavedCosts", "SavedSession", "read_session", "write_session"]

_BROKEN_OFF: Final = Message.assistant("(My answer broke off here.)")
"""The message after tool results whose answer failed, before the next one of the user."""

_SESSION: Final = "ryecore.session"
_VERSION: Final = 1
_MOST: Final = 2**63 - 1


@frozen
class SavedCosts:
    """The tokens and the cost of a conversation's tries, and the model of the last one.

    `turns` and `duration_ms` count for the limits of the session; without limits, each try is a
    turn. So do `charged_microcents` and `charged_tokens`, in which tries are estimated whose cost
    nobody reported.
    """

    model: str = ""
    attempts: int = 0
    usage: Usage = Usage()
    cost_microcents: int = 0
    unpriced: int = 0
    estimated: int = 0
    cache_saved_microcents: int = 0
    turns: int = 0
    duration_ms: int = 0
    charged_microcents: int = 0
    charged_tokens: int = 0


@define
class Asked:
    """The message that is being answered, None in a retry, and the number of those before it."""

    message: Message | None
    before: int
    has_begun: bool = False

    def begin(self, messages: list[Message]) -> None:
        """Append the message to the conversation."""
        self.has_begun, self.before = True, len(messages)
        if self.message is not None:
            if messages and messages[-1].role != "assistant":
                messages.append(_BROKEN_OFF)  # many servers insist that roles alternate
            messages.append(self.message)

    def compacted(self, replaced: int) -> None:
        """Note that the first messages were replaced by one, which has what the user said last."""
        if replaced > self.before:
            self.message = None
        self.before = max(self.before - replaced, 0) + 1

    def kept(self, messages: Sequence[Message]) -> tuple[int, Message | None]:
        """Return the number of messages that outlast a failed reply, and the unanswered one.

        The results of tools are kept, so that none of them runs twice.
        """
        kept = len(messages)
        while kept > self.before and messages[kept - 1].role != "tool":
            kept -= 1
        return kept, self.message if kept == self.before else None


@frozen
class SavedSession:
    """A session.

    Attributes:
        agent: The agent's name.
        session_id: The id of the session in events.
        messages: The conversation.
        unanswered: The message whose answer failed, for `retry`.
        spent: The tokens and the cost of the whole conversation.
        pending: The calls that wait for an approval.
    """

    agent: str
    session_id: str
    messages: tuple[Message, ...]
    unanswered: Message | None = None
    spent: SavedCosts = SavedCosts()
    pending: tuple[PendingApproval, ...] = field(default=())


def _counts(spent: SavedCosts) -> tuple[int, ...]:
    return (
        *astuple(spent.usage),
        spent.attempts,
        spent.turns,
        spent.duration_ms,
        spent.charged_microcents,
        spent.charged_tokens,
        spent.cost_microcents,
        spent.unpriced,
        spent.estimated,
    )


def write_session(session: SavedSession) -> str:
    """Return a session as JSON text."""
    return write_saved(_SESSION, _VERSION, session)


def read_session(data: SavedJson, agent: str) -> SavedSession:
    """Read a session of an agent, or raise InvalidConversation."""
    saved = read_saved(data, _SESSION, _VERSION, SavedSession)
    if saved.agent != agent:
        raise InvalidConversation(
            f"This is a conversation with the agent {saved.agent!r}, not with {agent!r}.",
            next_step="Pass the agent of that name; one that was renamed may be passed as "
            f"attrs.evolve(agent, name={saved.agent!r}).",
        )
    if not all(0 <= one <= _MOST for one in _counts(saved.spent)):
        raise InvalidConversation(
            "This ryecore.session is damaged: a count in spent is below zero or too large.",
            next_step="Pass what was saved as it is, whole and unchanged.",
        )
    check_order(saved.messages, [one.call_id for one in saved.pending])
    check_pending(saved.messages, saved.pending)
    if saved.unanswered is not None:
        check_order((saved.unanswered,))
    return saved
