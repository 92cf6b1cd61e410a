"""Remember the results of a graph's tools.

What may be called is asked first, and the whole chain verified: a result that is remembered opens
nothing that the call itself would not have.

Source: docs/design/graphs.md#remembered-results; decision 41.
"""

import anyio.to_thread

from ryecore.graph.caching.entries import Entries
from ryecore.graph.caching.keys import result_key, secret_of, why_unkeyed
from ryecore.graph.walk.calls import Call, Unkeyed
from ryecore.policy import CallContext
from ryecore.runs.ports import Dispatcher

__all__ = ["ResultsCache"]


class ResultsCache:
    """Remembers results by all that they depend on.

    Args:
        dispatcher: Plans calls.
        entries: Where results are kept.
    """

    def __init__(self, dispatcher: Dispatcher, entries: Entries) -> None:
        self._dispatcher = dispatcher
        self._entries = entries
        self._secret: bytes | None = None

    async def key(self, call: Call) -> str | Unkeyed:
        """The key of a call.

        Raises:
            RyeError: The caller may not make it, or its item can't be found, verified or planned.
        """
        if call.action.ref.kind != "tool":
            return Unkeyed("what follows a directive may answer otherwise each time")
        ctx = CallContext(call.ctx.capabilities, deadline=call.ctx.deadline)
        planned = await self._dispatcher.plan(call.action.ref, call.params, ctx=ctx)
        why = why_unkeyed(planned)
        if why:
            return Unkeyed(why)
        if self._secret is None:
            self._secret = secret_of(self._entries.signer)
        return result_key(self._secret, planned)

    async def get(self, key: str) -> tuple[object] | None:
        """The result that is remembered; None where there is none, or it can't be proved."""
        return await anyio.to_thread.run_sync(self._entries.get, key)

    async def clear(self) -> int:
        """Forget all results.

        Returns:
            How many there were.

        Raises:
            StateError: They can't be removed.
        """
        return await anyio.to_thread.run_sync(self._entries.clear)

    async def put(self, call: Call, key: str, result: object) -> Unkeyed | None:
        """Remember a result, where what it depends on is still what it was before the call.

        Returns:
            Why it isn't remembered; None where it is.
        """
        if await self.key(call) != key:
            return Unkeyed("what it depends on has changed while it ran")
        item_id = str(call.action.ref)
        why = await anyio.to_thread.run_sync(self._entries.put, key, item_id, result)
        return Unkeyed(why) if why else None
