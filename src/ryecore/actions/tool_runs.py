"""Runs of tools in this process, each with a row as a run in a process of its own has."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from ryecore.errors import StateError
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.cancelling import run_to_end
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.actions.execute import ExecuteAction
    from ryecore.actions.targets.queue_tools import QueueTools
    from ryecore.runs.request import Registered, RunRequest
    from ryecore.runs.tasks import Running
    from ryecore.state.store import ThreadStore

__all__ = ["ToolRun", "ToolRuns"]


class ToolRun:
    """A tool's run that was begun, and waits for `run`.

    Attributes:
        thread_id: Its id, by which any process finds its row, its result, and can cancel it.
    """

    def __init__(
        self,
        tools: "QueueTools",
        store: "ThreadStore",
        request: "RunRequest",
        claimed: "Registered",
        ctx: CallContext,
        running: "Running",
    ) -> None:
        self._tools = tools
        self._store = store
        self._request = request
        self._claimed = claimed
        self._ctx = ctx
        self._running = running
        self.thread_id = claimed.run_id

    async def run(self) -> None:
        """Run the tool to its end, which its row then has, also where this task is cancelled.

        Raises:
            StateError: The end can't be written.
        """
        await self._running.run(self._request.ref, self._run)

    async def _run(self) -> None:
        try:
            await self._tools.run(self._store, self._request, self._ctx)
        except anyio.get_cancelled_exc_class():
            with suppress(StateError):  # it has ended, or is found dead later
                await run_to_end(self._settle_cancelled)
            raise

    async def _settle_cancelled(self) -> None:
        result = {
            "status": "error",
            "error": "The call was cancelled, and its processes have ended.",
            "item_id": str(self._request.ref),
        }
        await self._store.settle(self.thread_id, "cancelled", result, self._claimed.fence)


class ToolRuns:
    """Begins runs of tools in this process.

    Args:
        store: Opens the threads.
        execute: Returns the action that executes tools.
    """

    def __init__(
        self, store: "Callable[[], ThreadStore]", execute: "Callable[[], ExecuteAction]"
    ) -> None:
        self._store = store
        self._execute = execute

    async def begin(
        self, ref: ItemRef, parameters: Mapping[str, object], ctx: CallContext, running: "Running"
    ) -> ToolRun:
        """Check a call of a tool, and make its row, which says that this process runs it."""
        from ryecore.actions.targets.queue_tools import QueueTools  # noqa: PLC0415 - for such runs alone
        from ryecore.runs.request import Registered, RunRequest  # noqa: PLC0415

        await self._execute().plan(ref, parameters, ctx)  # a wrong call begins nothing
        store = await run_in_thread(self._store)
        run_id = str(uuid.uuid4())
        await store.registry.register(run_id, str(ref), ctx.budget_account, labels=ctx.labels)
        fence = await store.registry.claim(run_id)
        await store.prepare(run_id)
        await store.synced()
        claimed = Registered(run_id, fence)
        request = RunRequest(ref, parameters, registered=claimed)
        return ToolRun(QueueTools(self._execute), store, request, claimed, ctx, running)
