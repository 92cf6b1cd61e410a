"""The approval of a thread's calls by a person, who may answer from any process.

Source: decision 81.
"""

from ryecore.runs.host import RunHost
from ryecore.state.approvals import ThreadApproval
from ryecore.threads.events import ThreadRecorder
from ryecore.tools.context import Denied, ToolApprovalRequest

__all__ = ["ThreadApprovals"]

_LOOK_EVERY_S = 30.0


class ThreadApprovals:
    """Asks for the approvals of one thread, and waits for the answers."""

    def __init__(self, host: RunHost, thread_id: str, recorder: ThreadRecorder) -> None:
        self._host = host
        self._thread_id = thread_id
        self._recorder = recorder

    async def __call__(self, request: ToolApprovalRequest) -> bool | Denied:
        """Wait until a person has answered whether exactly this call may be made.

        The wait ends with the thread's deadline, or when it is cancelled. An answer that the thread
        before this one didn't use, because it died, counts.
        """
        store = self._host.store
        asked = await store.approvals.request(
            ThreadApproval(
                "",
                self._thread_id,
                request.tool_call_id,
                request.tool_name,
                request.arguments,
                request.reason,
                request.tool_digest,
            )
        )
        await self._recorder.tell("approval_requested", asked.to_dict())
        await store.synced()
        store.announce(self._thread_id)
        async with store.watch(self._thread_id) as watched:
            while True:
                found = await store.approvals.get(asked.id)
                if found is None:
                    return False
                if found.approved is not None:
                    break
                await watched.changed(_LOOK_EVERY_S)
        if not await store.approvals.use(asked.id):
            return False
        await self._recorder.tell("approval_resolved", found.to_dict())
        return found.approved or Denied(found.answer_reason)
