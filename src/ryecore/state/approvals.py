"""The calls of threads that wait for a person's approval, for every process of the project.

Source: decision 81.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from ryecore.frozen import frozen
from ryecore.policy.approvals import call_digest

__all__ = ["ApprovalStore", "ThreadApproval", "approvals_by_thread"]


@frozen
class ThreadApproval:
    """A call of a tool in a thread that a person is to approve.

    Attributes:
        id: Its unique id.
        thread_id: The thread.
        call_id: The model's id of the call.
        tool_name: The tool.
        arguments: The exact arguments, without those that the host sets.
        reason: Why approval is needed.
        tool_digest: The digest of the tool: its definition and its code, or the files of its chain.
        approved: The answer; None until there is one.
        answer_reason: The reason of the answer; that of a denial is told to the model.
        requested_at: The time of the request, in UTC.
    """

    id: str
    thread_id: str
    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    reason: str
    tool_digest: str
    approved: bool | None = None
    answer_reason: str = ""
    requested_at: str = ""

    @property
    def call_digest(self) -> str:
        """The digest of what is approved: the tool, by its digest, and the arguments."""
        return call_digest(self.tool_name, self.tool_digest, self.arguments)

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON types."""
        return {
            "approval_id": self.id,
            "thread_id": self.thread_id,
            "call_id": self.call_id,
            "tool": self.tool_name,
            "arguments": dict(self.arguments),
            "reason": self.reason,
            "tool_digest": self.tool_digest,
            "approved": self.approved,
            "answer_reason": self.answer_reason,
            "requested_at": self.requested_at,
        }


class ApprovalStore(Protocol):
    """The approvals of a project's threads. Each operation is one transaction."""

    async def request(self, asked: ThreadApproval) -> ThreadApproval:
        """Store a request, or find that for the same call of a thread that this one continues."""
        ...

    async def get(self, approval_id: str) -> ThreadApproval | None:
        """Return a request with its answer, if it has one; None if it was removed."""
        ...

    async def use(self, approval_id: str) -> bool:
        """Use an answer up, and return whether it wasn't before."""
        ...

    async def answer(
        self, thread_id: str, call: str | None, approve: bool, reason: str
    ) -> ThreadApproval:
        """Answer a request of a thread, by its id or the call's; None for the only one.

        Raises:
            InputError: No call, or more than one, waits for an answer.
        """
        ...

    async def pending(self) -> tuple[ThreadApproval, ...]:
        """Return the requests without an answer of threads that have not ended, oldest first."""
        ...


async def approvals_by_thread(store: ApprovalStore) -> dict[str, tuple[ThreadApproval, ...]]:
    """Return the requests without an answer by their threads."""
    found: dict[str, tuple[ThreadApproval, ...]] = {}
    for one in await store.pending():
        found[one.thread_id] = (*found.get(one.thread_id, ()), one)
    return found
