"""Graphs that the workers of a Ray cluster run: registered, sent, waited for, and stopped.

A graph's run is a run of a shared state, as a thread's is: its row and its request are written
before a worker hears of it, and another worker resumes it where that one dies.

Source: docs/design/ray.md#a-thread-or-a-graph.
"""

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
from attrs import evolve

from ryecore.actions.launch import graph_request
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.chain.model import ExecutionResult
from ryecore.errors import AlreadyStarted, CallCancelled, RyeError
from ryecore.graph.live import ProgressLines
from ryecore.graph.run import GraphRun, GraphService
from ryecore.policy import CallContext
from ryecore.policy.cancelling import bounded_by, is_cancelled, run_to_end
from ryecore.runs.handle import watched_result
from ryecore.runs.request import RunRequest, parse_limits
from ryecore.state.idempotency import EarlierStart
from ryecore.threads.result import StartedThread

if TYPE_CHECKING:
    from ryecore.remote.config import Remote
    from ryecore.state.store import ThreadStore

__all__ = ["QueuedGraphs"]

_HOMEWARD_S: Final = 5.0
"""How long after its deadline a run may take to end by itself, in seconds."""


class QueuedGraphs:
    """The graphs of one open Rye that workers run.

    Args:
        executor: Verifies a graph and its inputs here, so that a wrong call is refused at once.
        graphs: Returns the service for the handles of runs.
        store: Returns the threads.
        find: Returns the remote of a target.
        enqueue: Registers a run, gives it to a worker, and returns its id.
    """

    def __init__(
        self,
        executor: PrimitiveExecutor,
        graphs: Callable[[], GraphService],
        store: Callable[[], "ThreadStore"],
        find: "Callable[[str], Remote]",
        enqueue: Callable[[RunRequest, CallContext], Awaitable[str]],
    ) -> None:
        self._executor = executor
        self._graphs = graphs
        self._store = store
        self._find = find
        self._enqueue = enqueue

    async def run(
        self,
        request: RunRequest,
        ctx: CallContext,
        *,
        trace: bool = False,
        output_log: str | None = None,
    ) -> ExecutionResult:
        """Run a graph, and wait for its end. The caller's event sink gets no events of the run.

        Args:
            request: The graph, its inputs, and the target.
            ctx: The caller, with whom the run stops.
            trace: Whether the result has the events of its verification.
            output_log: A file that a line for each step is written to.

        Raises:
            CallCancelled: Its caller was cancelled; the run has ended.
            RyeError: Nothing ran.
        """
        remote = self._find(request.target).name
        checked = await self._check(request, ctx, trace=trace)
        request = self._planned(request, checked)
        run = await self._graphs().found(await self._enqueue(request, ctx), request.ref, ctx)
        try:
            done = await self._result(run, ctx, output_log)
        except anyio.get_cancelled_exc_class():
            with suppress(RyeError):  # a failure here must not replace the cancellation
                await run_to_end(run.cancel)
            raise
        if done is None:
            await run.cancel()
            done = await run.result()
            if is_cancelled(ctx.cancellation):
                raise CallCancelled(f"{request.ref} was cancelled by its caller.")
        return ExecutionResult(
            status=done.status,
            item_id=done.item_id,
            data=done.data,
            error=done.error,
            chain=checked.chain,
            duration_ms=done.duration_ms,
            metadata={"remote": remote},
            effect_unknown=done.effect_unknown,
            trace=checked.trace,
        )

    async def launch(self, request: RunRequest, ctx: CallContext) -> StartedThread:
        """Give a graph to a worker, and return as soon as it is registered and sent."""
        began = time.perf_counter()
        checked = await self._check(request, ctx)
        earlier: EarlierStart | None = None
        try:
            run_id = await self._enqueue(self._planned(request, checked), ctx)
        except AlreadyStarted as found:
            run_id = found.thread_id
            earlier = await EarlierStart.find(self._store(), run_id)
        pid = 0 if earlier is None else earlier.pid
        return StartedThread.of(str(request.ref), run_id, pid, began, earlier, checked.chain)

    async def _check(
        self, request: RunRequest, ctx: CallContext, *, trace: bool = False
    ) -> ExecutionResult:
        return await self._executor.execute(
            request.ref,
            request.inputs,
            ctx,
            timeout_s=request.timeout_s,
            dry_run=True,
            trace=trace,
            limits=request.limits if request.limits.to_dict() else None,
        )

    def _planned(self, request: RunRequest, checked: ExecutionResult) -> RunRequest:
        """Return the request, bound to what was verified, with the time that its plan gives it."""
        if checked.plan is None:
            raise RuntimeError("A dry run has a plan.")
        limits = parse_limits(checked.plan.limits)
        bound = evolve(request, limits=limits, timeout_s=checked.plan.timeout_s)
        return graph_request(checked.plan, bound)

    async def _result(
        self, run: GraphRun, ctx: CallContext, output_log: str | None
    ) -> ExecutionResult | None:
        """Wait for a run's end; None where its caller is cancelled, or its time long up."""
        deadline = None if ctx.deadline is None else ctx.deadline + _HOMEWARD_S
        with bounded_by(ctx.cancellation, deadline=deadline):
            if output_log is None:
                return await run.result()
            return await _logged(run, output_log)
        return None


async def _logged(run: GraphRun, path: str) -> ExecutionResult:
    """Wait for a run's end, and write a line for each of its steps meanwhile."""

    async def write() -> None:
        lines = ProgressLines(len(run.graph.nodes))
        async for event in run.events():
            line = lines.line(event)
            if line is not None:
                await anyio.to_thread.run_sync(_append, path, line)

    return await watched_result(run.result, write)


def _append(path: str, line: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
