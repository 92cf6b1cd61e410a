"""The tools of queues, as a worker runs them for a node, each under the run's row.

Source: docs/design/queues.md#runs-of-a-node.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
from attrs import evolve

from ryecore.actions.execute import ExecuteAction
from ryecore.actions.request import ExecuteRequest
from ryecore.errors import CallCancelled, ProcessError, RyeError, StateUnreachable
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import kill_processes
from ryecore.policy import CallContext, CancelToken
from ryecore.policy.context import CALL_ID, call_id_of
from ryecore.remote.protocol.error_documents import write_error
from ryecore.runs.claimed import End, run_claimed, stored_result
from ryecore.runs.request import Claimed, RunRequest
from ryecore.state.model import Status
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread

__all__ = ["QueueTools", "effect_unknown", "kill_call"]

_RETRY_S: Final = 1.0


class QueueTools:
    """Runs the tools of queues in this process.

    Args:
        execute: Returns the action that executes them.
    """

    def __init__(self, execute: Callable[[], ExecuteAction]) -> None:
        self._execute = execute
        self._running: set[str] = set()

    def is_running(self, run_id: str) -> bool:
        """Return whether a task of this process runs a tool."""
        return run_id in self._running

    async def is_graph(self, ref: ItemRef, ctx: CallContext) -> bool:
        """Return whether a tool is a graph. One that can't be executed is none."""
        try:
            return (await self._execute().chain(ref, ctx)).is_own_process
        except StateUnreachable:
            raise
        except RyeError:
            return False

    async def run(
        self, store: ThreadStore, claimed: Claimed, request: RunRequest, ctx: CallContext
    ) -> Status:
        """Run a claimed tool to its end, and end its row with the status that is returned.

        Raises:
            RyeError: The row can't be ended, or says that it is an error.
        """
        item_id, stop = str(request.ref), CancelToken()
        execute = partial(
            self._execute_tool, store, claimed, request, evolve(ctx, cancellation=stop)
        )
        self._running.add(claimed.run_id)
        try:
            await store.prepare(claimed.run_id)  # its folder, in which changes are told
            status, result = await run_claimed(store, claimed, item_id, stop, execute, write_error)
            while True:
                try:
                    await store.settle(claimed.run_id, status, result, claimed.fence)
                    return status
                except StateUnreachable:  # else nobody would know what came of it
                    await anyio.sleep(_RETRY_S)
        finally:
            self._running.discard(claimed.run_id)

    async def _execute_tool(
        self, store: ThreadStore, claimed: Claimed, request: RunRequest, ctx: CallContext
    ) -> End:
        asked = ExecuteRequest(request.ref, request.inputs, timeout_s=request.timeout_s)
        try:
            done = await self._execute()(asked, ctx)
        except CallCancelled:
            with suppress(StateUnreachable):
                if (await store.registry.get_thread(claimed.run_id)).kill_requested:
                    await kill_call(ctx.call_id, request.ref, request.inputs)
            raise
        unknown = {"effect_unknown": True} if done.effect_unknown else {}
        return "completed" if done.success else "error", {**stored_result(done), **unknown}


async def kill_call(call_id: str | None, ref: ItemRef, parameters: Mapping[str, object]) -> None:
    """Kill what a tool has started and its end left, also in process groups of their own.

    Args:
        call_id: The id of the call, as its context has it; without one nothing is found.
        ref: The tool.
        parameters: Its parameters.
    """
    if call_id is None:
        return
    marks = [(CALL_ID, call_id_of(call_id, str(ref), parameters))]
    with suppress(ProcessError):  # what can't be ended is as a local kill leaves it
        await run_in_thread(partial(kill_processes, (), 0.0, marks=marks))


def effect_unknown(item_id: str) -> Mapping[str, object]:
    """Return the result of a tool whose worker died while it ran."""
    error = ProcessError(
        "The worker ended while the tool ran: whether it had its effect is unknown.",
        next_step="See what it has done before you call it again.",
    )
    return write_error(error.during(item_id)) | {"effect_unknown": True}
