"""Runs of tools in this process, each with a row as a run in a process of its own has."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ryecore.errors import StateError
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.cancelling import run_to_end
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.actions.execute import ExecuteAction
    from ryecore.runs.tasks import Running
    from ryecore.state.model import Status, ThreadRecord
    from ryecore.state.store import ThreadStore

__all__ = ["ToolRuns"]


class ToolRuns:
    """Runs tools in this process, for the MCP server.

    Args:
        store: Opens the threads.
        execute: Returns the action that executes tools.
        running: The calls of the Rye, which cancels the runs when it is closed.
    """

    def __init__(
        self,
        store: "Callable[[], ThreadStore]",
        execute: "Callable[[], ExecuteAction]",
        running: "Running",
    ) -> None:
        self._store = store
        self._execute = execute
        self._running = running

    async def run(
        self,
        item_id: str,
        parameters: Mapping[str, object],
        ctx: CallContext,
        begun: Callable[[str], None],
    ) -> None:
        """Run a tool, and end its row with the result, also where this task is cancelled.

        Args:
            item_id: The tool.
            parameters: Its parameters.
            ctx: The caller's context.
            begun: Called with the run's id once its row says that this process runs it. By the id
                any process finds the row and the result, and can cancel the run.

        Raises:
            RyeError: The tool may not be called so, or the row can't be written or ended.
        """
        run = partial(self._run, ItemRef.parse(item_id, "tool"), parameters, ctx, begun)
        await self._running.run(item_id, run)

    async def count_open(self, labels: Mapping[str, str]) -> int:
        """Return the number of runs without a parent that have labels and have not ended.

        A run whose process died counts until its row is ended, as `list_open` does.

        Raises:
            StateError: The registry can't be read.
        """

        async def count() -> int:
            return await (await run_in_thread(self._store)).registry.count_open(labels)

        return await self._running.run("threads", count)

    async def list_open(self, labels: Mapping[str, str]) -> "tuple[ThreadRecord, ...]":
        """List the same runs, after ending those whose process died.

        Raises:
            StateError: The registry can't be read.
        """

        async def find() -> "tuple[ThreadRecord, ...]":
            store = await run_in_thread(self._store)
            active = await store.look_at_all(lambda registry: registry.list_active())
            return tuple(
                one
                for one in active
                if one.parent_id is None and labels.items() <= one.labels.items()
            )

        return await self._running.run("threads", find)

    async def _run(
        self,
        ref: ItemRef,
        parameters: Mapping[str, object],
        ctx: CallContext,
        begun: Callable[[str], None],
    ) -> None:
        from ryecore.actions.targets.queue_tools import QueueTools  # noqa: PLC0415 - only for such runs
        from ryecore.runs.request import Claimed, RunRequest  # noqa: PLC0415

        await self._execute().plan(ref, parameters, ctx)  # a wrong call begins nothing
        store = await run_in_thread(self._store)
        run_id = str(uuid.uuid4())
        try:
            await store.registry.register(run_id, str(ref), ctx.budget_account, labels=ctx.labels)
            claimed = Claimed(run_id, fence=await store.registry.claim(run_id))
            await store.prepare(run_id)
            await store.synced()
            begun(run_id)
            await QueueTools(self._execute).run(store, claimed, RunRequest(ref, parameters), ctx)
        except BaseException as error:
            await run_to_end(partial(_end_row, store, run_id, str(ref), error))
            raise


async def _end_row(store: "ThreadStore", run_id: str, item_id: str, error: BaseException) -> None:
    """End the row of a run that an error or a cancellation has ended, if there is one."""
    status: Status = "error" if isinstance(error, Exception) else "cancelled"
    text = "The call was cancelled, and its processes have ended."
    if status == "error":
        text = str(error)
    with suppress(StateError):  # there is no row, it has ended, or it is found dead later
        row = await store.registry.get_thread(run_id)
        result = {"status": "error", "error": text, "item_id": item_id}
        await store.settle(run_id, status, result, row.fence)
