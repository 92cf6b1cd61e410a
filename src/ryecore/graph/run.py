"""The service that runs the graphs of an open Rye, and the handle of one run.

Source: docs/design/runtimes.md#state-graphs; decision 30.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from ryecore.agent.outcome import NodeFailure
from ryecore.chain.model import ValidChain
from ryecore.errors import AlreadyStarted, RyeError
from ryecore.graph.journal.recovery import RecoveredRun
from ryecore.graph.lifecycle import GraphDeps, GraphLifecycle
from ryecore.graph.mapping import MAP_REF, load_map, recorded_options
from ryecore.graph.model import Graph
from ryecore.graph.reading import GraphReport, LoadedGraph
from ryecore.graph.result import GraphResult
from ryecore.graph.run_view import RunView, load_run_view, with_graph
from ryecore.graph.schedule import EndStatus, read_failure
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.budget import Amount
from ryecore.runs.handle import RunHandle, run_to_result, start_run, wait_for_earlier
from ryecore.runs.host import RunHost
from ryecore.runs.request import GraphOptions, ResumeOptions, RunRequest
from ryecore.state.model import ThreadRecord

__all__ = ["GraphRun", "GraphService"]

_NO_CHAIN: Final = ValidChain(())
_ENDED: Final[Mapping[object, EndStatus]] = {
    "completed": "completed",
    "completed_with_errors": "completed_with_errors",
    "error": "error",
    "cancelled": "cancelled",
    "killed": "cancelled",
}


class GraphRun(RunHandle[GraphResult]):
    """The handle of a graph's run: its events, its result, its cost, a way to stop it.

    `rye.graphs.start` makes it. The run needs no listener. It runs until it ends, is cancelled, or
    the Rye that started it is closed.

    Attributes:
        item_id: The graph, as a canonical ref.
    """

    def __init__(
        self,
        host: RunHost,
        run_id: str,
        item_id: str,
        loaded: LoadedGraph | RyeError,
        life: GraphLifecycle | None = None,
    ) -> None:
        super().__init__(host, run_id, item_id, life)
        self._loaded = loaded

    @property
    def run_id(self) -> str:
        """Its id, for `rye.graphs`, `rye.threads` and the command line."""
        return self._run_id

    @property
    def graph(self) -> Graph:
        """Its graph, as it runs; of a run found by its idempotency key, as the file is now.

        Raises:
            RyeError: It is such a run, and the graph can't be loaded any more.
        """
        if isinstance(self._loaded, RyeError):
            raise self._loaded
        return self._loaded.graph

    @property
    def is_earlier(self) -> bool:
        """Whether an earlier start with the same idempotency key began it."""
        return self._life is None

    @property
    def _resume_command(self) -> str:
        return f"rye graph resume {self._run_id}"

    async def _read_result(self, record: ThreadRecord, total: Amount) -> GraphResult:
        view, found = await load_run_view(self._host.store, record.thread_id)
        stored = await self._host.registry.get_result(record.thread_id)
        stored = stored if isinstance(stored, Mapping) else {}
        if isinstance(self._loaded, LoadedGraph):
            view = with_graph(view, found, self._loaded.graph)
            if found is not None and not view.is_changed:
                return _stored_result(view, stored, self._loaded.chain, self._loaded.graph)
        return _stored_result(view, stored, _NO_CHAIN, None)

    def _repr_html_(self) -> str:
        if self._result is not None:
            return self._result._repr_html_()
        from ryecore.graph.live import run_html  # noqa: PLC0415 - only for notebooks

        # A notebook renders it between two cells: nothing is settled, and nothing waits.
        return run_html(self.graph, self._run_id, self._host.store)


def _stored_result(
    view: RunView, stored: Mapping[str, Any], chain: ValidChain, graph: Graph | None
) -> GraphResult:
    """Make a run's result from its row, journal and stored result, incomplete after a crash."""
    document, metadata = stored.get("data"), stored.get("metadata")
    if not isinstance(document, Mapping):
        error = stored.get("error") or f"The run ended as {view.record.status}."
        document = {"success": False, "status": view.record.status, "error": error}
        document["graph_run_id"] = view.run_id
    is_well = view.record.status == "completed"
    ended = _ENDED.get(document.get("status")) or _ENDED.get(view.record.status, "error")
    error = document.get("error")
    took = metadata.get("duration_ms") if isinstance(metadata, Mapping) else None
    errors = document.get("errors")
    return GraphResult(
        status="success" if is_well else "error",
        item_id=view.item_id,
        data=document,
        error=None if is_well else str(error or ended),
        chain=chain,
        duration_ms=float(took) if isinstance(took, int | float) else view.lasted_s * 1000,
        # For a run whose process died, the journal tells whether a call had begun.
        effect_unknown=document.get("effect_unknown", stored.get("died") and view.is_unknown)
        is True,
        run_id=view.run_id,
        ended=ended,
        output=document.get("output"),
        steps=view.steps,
        state=view.state or {},
        failed=None if is_well else _failed(document),
        errors=tuple(map(read_failure, errors)) if isinstance(errors, list) else (),
        suppressed=int(document.get("errors_suppressed", 0)),
        cost=view.record.cost,
        total=view.cost,
        graph=graph,
        run_status=view.run_status,
    )


def _failed(document: Mapping[str, Any]) -> NodeFailure:
    node, message = str(document.get("node") or ""), str(document.get("error") or "")
    message = message.removeprefix(f"{node}: ") if node else message
    return read_failure({**document, "error": message, "code": document.get("error_code")})


class GraphService:
    """The service for the graph runs of one open Rye."""

    def __init__(self, host: RunHost, deps: GraphDeps) -> None:
        self._host = host
        self._deps = deps

    async def load(self, ref: ItemRef, ctx: CallContext) -> LoadedGraph:
        """Load a graph without running it."""
        return await self._deps.load(ref, ctx)

    async def load_of(self, view: RunView, found: RecoveredRun | None) -> Graph:
        """Load the graph of a run: of a map, the one that its journal describes."""
        ref = ItemRef.parse(view.item_id, "tool")
        if ref == MAP_REF:
            return load_map(recorded_options(found.started if found else {})).graph
        return (await self.load(ref, CallContext())).graph

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

    async def run(
        self,
        request: RunRequest,
        ctx: CallContext,
        watch: Callable[[GraphRun], Awaitable[None]] | None = None,
    ) -> GraphResult:
        """Run a graph to its end, or wait for the run that the same idempotency key started before.

        Returns the result, also of a run that failed. CallCancelled ends only such a wait. `watch`
        looks on while it runs.
        """
        return await self._host.observed(partial(self._run, watch), request, ctx)

    async def _run(
        self,
        watch: Callable[[GraphRun], Awaitable[None]] | None,
        request: RunRequest,
        ctx: CallContext,
    ) -> GraphResult:
        life = self._life(request, ctx)

        async def look() -> None:
            if watch is not None:
                await watch(self._handle(life))

        try:
            return await run_to_result(self._host, life, None if watch is None else look)
        except AlreadyStarted as found:
            return await wait_for_earlier(await self.found(found.thread_id, request.ref, ctx), ctx)

    async def start(self, request: RunRequest, ctx: CallContext) -> GraphRun:
        """Start a run, and return as soon as it runs; or find the one that its key started."""
        return await self._host.observed(self._start, request, ctx, "start")

    async def _start(self, request: RunRequest, ctx: CallContext) -> GraphRun:
        life = self._life(request, ctx)
        try:
            return await start_run(
                self._host,
                life,
                lambda _: self._handle(life),
            )
        except AlreadyStarted as found:
            return await self.found(found.thread_id, request.ref, ctx)

    async def take_over(self, run_id: str, item: ItemRef, queue: str, ctx: CallContext) -> GraphRun:
        """Resume a run of a queue whose worker died, as a task of this Rye.

        Of all workers that do this, exactly one succeeds.

        Raises:
            ThreadConflict: Another worker has resumed it.
            StateError: A node that had begun has no known end, so it isn't repeated by itself.
            RyeError: It can't be resumed.
        """
        options = GraphOptions(resumes=ResumeOptions(run_id))
        request = RunRequest(item, queue=queue, graph=options)
        return await self._host.observed(self._start, request, ctx, "start")

    def _handle(self, life: GraphLifecycle) -> GraphRun:
        return GraphRun(self._host, life.run_id, life.item_id, life.loaded, life)

    def _life(self, request: RunRequest, ctx: CallContext) -> GraphLifecycle:
        return GraphLifecycle(self._host, self._deps, request, ctx)

    async def found(self, run_id: str, ref: ItemRef, ctx: CallContext) -> GraphRun:
        """Return the handle of a run of a graph, wherever it runs or ran."""
        try:
            loaded: LoadedGraph | RyeError = await self._deps.load(ref, ctx)
        except RyeError as error:  # the file's changes don't matter to an earlier run
            loaded = error
        return GraphRun(self._host, run_id, str(ref), loaded)
