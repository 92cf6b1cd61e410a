"""The service that runs the graphs of an open Rye.

Source: docs/design/runtimes.md#state-graphs; decision 30.
"""

from ryecore.errors import AlreadyStarted, RyeError
from ryecore.graph.lifecycle import GraphDeps, GraphLifecycle
from ryecore.graph.reading import GraphReport, LoadedGraph
from ryecore.graph.result import GraphResult
from ryecore.graph.run import GraphRun
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.runs.handle import run_to_result, start_run, wait_for_earlier
from ryecore.runs.host import RunHost
from ryecore.runs.request import RunRequest

__all__ = ["GraphService"]


class GraphService:
    """The service for the graph runs of one open Rye."""

    def __init__(self, host: RunHost, deps: GraphDeps) -> None:
        self._host = host
        self._deps = deps

    async def load(self, ref: ItemRef, ctx: CallContext) -> LoadedGraph:
        """Load a graph without running it."""
        return await self._deps.load(ref, ctx)

    async def examine(self, ref: ItemRef, ctx: CallContext) -> tuple[GraphReport, str]:
        """Return the errors and warnings of a graph's file, and its text."""
        return await self._deps.load.examine(ref, ctx)

    async def forget_results(self) -> int:
        """Delete the cached results of nodes, and return their number."""
        cache = self._deps.cache
        return 0 if cache is None else await cache.clear()

    async def check(self, request: RunRequest, ctx: CallContext) -> None:
        """Check whether a run can begin. Nothing is changed."""
        await self._life(request, ctx).check()

    async def run(self, request: RunRequest, ctx: CallContext) -> GraphResult:
        """Run a graph to its end, or wait for the run that the same idempotency key started before.

        Returns the result, also of a run that failed. CallCancelled ends only such a wait.
        """
        try:
            return await run_to_result(self._host, self._life(request, ctx))
        except AlreadyStarted as found:
            return await wait_for_earlier(await self._earlier(found.thread_id, request, ctx), ctx)

    async def start(self, request: RunRequest, ctx: CallContext) -> GraphRun:
        """Start a run, and return as soon as it runs; or find the one that its key started."""
        life, item_id = self._life(request, ctx), str(request.ref)
        try:
            return await start_run(
                self._host,
                life,
                lambda begun: GraphRun(self._host, begun.run_id, item_id, life.loaded, life),
            )
        except AlreadyStarted as found:
            return await self._earlier(found.thread_id, request, ctx)

    def _life(self, request: RunRequest, ctx: CallContext) -> GraphLifecycle:
        return GraphLifecycle(self._host, self._deps, request, ctx)

    async def _earlier(self, run_id: str, request: RunRequest, ctx: CallContext) -> GraphRun:
        try:
            loaded: LoadedGraph | RyeError = await self._deps.load(request.ref, ctx)
        except RyeError as error:  # the file's changes don't matter to an earlier run
            loaded = error
        return GraphRun(self._host, run_id, str(request.ref), loaded)
