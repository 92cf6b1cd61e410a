"""The answers to calls of threads that wait for a person's approval."""

from typing import TYPE_CHECKING

from ryecore.actions.thread_access import ThreadAccess
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.state.approvals import ThreadApproval
    from ryecore.state.store import ThreadStore

__all__ = ["ThreadAnswers"]


class ThreadAnswers(ThreadAccess):
    """The calls that wait for an approval, and their answers."""

    async def approvals(self) -> "tuple[ThreadApproval, ...]":
        """List the calls of tools that wait for a person's approval, oldest first.

        Raises:
            StateError: The registry can't be read.
        """

        async def find() -> "tuple[ThreadApproval, ...]":
            store = await run_in_thread(self._store)
            return () if store is None else await store.approvals.pending()

        return await self._running.run("threads", find)

    async def approve(
        self, thread_id: str, call: str | None = None, *, reason: str = ""
    ) -> "ThreadApproval":
        """Approve a call of a thread that waits: exactly this one, by this tool.

        Args:
            thread_id: The thread.
            call: The id of the approval or of the call; None where only one waits.
            reason: The reason, for the records.

        Returns:
            The call with the answer.

        Raises:
            ThreadNotFound: No thread has this id.
            InputError: No call, or more than one, waits for an answer.
        """
        return await self._answer(thread_id, call, approve=True, reason=reason)

    async def deny(
        self, thread_id: str, call: str | None = None, *, reason: str = ""
    ) -> "ThreadApproval":
        """Deny a call of a thread that waits. The thread continues, and the model is told why.

        Args:
            thread_id: The thread.
            call: The id of the approval or of the call; None where only one waits.
            reason: The reason, which the model is told as the call's result.

        Returns:
            The call with the answer.

        Raises:
            ThreadNotFound: No thread has this id.
            InputError: No call, or more than one, waits for an answer.
        """
        return await self._answer(thread_id, call, approve=False, reason=reason)

    async def _answer(
        self, thread_id: str, call: str | None, *, approve: bool, reason: str
    ) -> "ThreadApproval":
        async def answer(store: "ThreadStore", found: str) -> "ThreadApproval":
            answered = await store.approvals.answer(found, call, approve, reason)
            await store.synced()
            store.announce(found)
            return answered

        return await self._use(thread_id, answer)
