"""The interface `rye.graphs` to the graphs of a project."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

from attrs import evolve

from ryecore.actions.reports import check_page
from ryecore.convert.lines import check_mapping
from ryecore.errors import InputError, InvalidItemId, RyeError
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Spaces, named
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits
from ryecore.policy.permissions import check_capability
from ryecore.runs.request import (
    GraphOptions,
    ResumeOptions,
    RunRequest,
    parse_limits,
)
from ryecore.runs.tasks import Running
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.graph.model import Graph
    from ryecore.graph.reading import GraphReport
    from ryecore.graph.result import GraphResult
    from ryecore.graph.run import GraphRun, GraphService
    from ryecore.graph.run_view import RunView
    from ryecore.graph.validation.calls import SchemaLookup
    from ryecore.state.model import ThreadRecords
    from ryecore.state.store import ThreadStore

__all__ = ["GraphResumeOptions", "GraphRunOptions", "GraphStepOptions", "Graphs"]

T = TypeVar("T")


class _GraphOptions(TypedDict, total=False):
    limits: Limits | Mapping[str, float] | None
    ctx: CallContext | None


class GraphRunOptions(_GraphOptions, total=False):
    """The options of `rye.graphs.run` and `start`.

    Attributes:
        limits: The limits of the run, its nodes and everything that these start.
        idempotency_key: A call repeated with the same key, here or elsewhere, finds the first run:
            `run` waits for its result, and `start` returns its handle.
        labels: What the run is for, such as `{"tenant": "acme"}`; all that it starts inherits them.
        ctx: The caller's context; the host's own by default.
    """

    idempotency_key: str | None
    labels: Mapping[str, str] | None


class GraphStepOptions(_GraphOptions, total=False):
    """The options of `rye.graphs.step` and `start_step`.

    Attributes:
        inputs: The inputs of the graph.
        state: Values of the state, which override those that the graph begins with.
        limits: The limits of the run.
        ctx: The caller's context; the host's own by default.
    """

    inputs: Mapping[str, Any] | None
    state: Mapping[str, Any] | None


class _Resumption(TypedDict, total=False):
    at: int | None
    again: bool
    rerun: bool
    result: Any
    members: Mapping[int, Any] | None
    failed: bool
    state: Mapping[str, Any] | None
    changed: bool


class GraphResumeOptions(_GraphOptions, _Resumption, total=False):
    """The options of `rye.graphs.resume` and `start_resume`.

    Attributes:
        at: The step after which to continue; where the run stopped by default.
        again: Whether to resume although another run has done so already.
        rerun: Whether to repeat the node that had begun and has no known end.
        result: The result of that node, if you found it out.
        members: The results of the finished members of that node, if it is a foreach, by their
            indexes; `rerun` repeats the others.
        failed: Whether to call only those members again that did not complete, of the foreach
            that follows the step `at`.
        state: Values to set in the state first.
        changed: Whether to resume although the graph has changed.
        limits: The limits of the new run.
        ctx: The caller's context; the host's own by default.
    """


SchemaOf: TypeAlias = Callable[[ItemRef, CallContext], Awaitable[Mapping[str, Any] | None]]
"""Returns the JSON Schema of an item's parameters; None where it takes anything."""


class Graphs:
    """The graphs of one project: `rye.graphs`.

    A graph is a tool, so `Rye.execute` runs it too, in a process of its own. Here it runs in this
    process, with the models that the host injects.
    """

    def __init__(
        self,
        spaces: Spaces,
        running: Running,
        service: "Callable[[], GraphService]",
        store: "Callable[[], ThreadStore | None]",
        schema: SchemaOf,
    ) -> None:
        self._spaces = spaces
        self._running = running
        self._service = service
        self._store = store
        self._schema = schema

    async def load(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> "Graph":
        """Load a graph, verify and check it, and run nothing.

        Args:
            ref: `tool:ID`, or its bare id.
            ctx: The caller's context; the host's own by default.

        Returns:
            The graph. A notebook draws it.

        Raises:
            GraphInvalid: The graph has problems; all are listed, each with its line.
            RyeError: The graph can't be found or verified, or isn't one.
        """
        ctx = ctx or CallContext()

        async def load() -> "Graph":
            return (await self._service().load(self._ref(ref, ctx), ctx)).graph

        return await self._running.run(ref, load)

    async def validate(
        self, ref: str | ItemRef, *, ctx: CallContext | None = None
    ) -> "GraphReport":
        """Check a graph and everything that it calls, and run nothing.

        Args:
            ref: `tool:ID`, or its bare id.
            ctx: The caller's context; the host's own by default.

        Returns:
            The errors that keep it from running, and the warnings, each with file and line.

        Raises:
            RyeError: The graph can't be found, verified or parsed, or isn't one.
        """
        ctx = ctx or CallContext()
        found = self._ref(ref, ctx)

        async def validate() -> "GraphReport":
            report, text = await self._service().examine(found, ctx)
            if report.graph is None:
                return report
            from ryecore.graph.reading import with_calls  # noqa: PLC0415 - only to validate

            return with_calls(report, text, await self._looked_up(report.graph, ctx))

        return await self._running.run(ref, validate)

    async def _looked_up(self, graph: "Graph", ctx: CallContext) -> "SchemaLookup":
        """Return the schemas of the items that a graph calls, or why one can't be read."""
        from ryecore.graph.validation.calls import called_items  # noqa: PLC0415

        schemas: dict[ItemRef, Mapping[str, Any] | RyeError | None] = {}
        for ref in called_items(graph):
            try:
                schemas[ref] = await self._schema(ref, ctx)
            except RyeError as error:
                schemas[ref] = error

        def look_up(ref: ItemRef) -> Mapping[str, object] | None:
            found = schemas[ref]
            if isinstance(found, RyeError):
                raise found
            return found

        return look_up

    async def run(
        self,
        ref: str | ItemRef,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[GraphRunOptions],
    ) -> "GraphResult":
        """Run a graph to its end, in this process.

        Args:
            ref: `tool:ID`, or its bare id.
            inputs: Its inputs, checked against its `config_schema`.
            **options: The keywords of `GraphRunOptions`: `limits`, `idempotency_key`,
                `labels`, `ctx`.

        Returns:
            The result, also of a run that failed.

        Raises:
            CallCancelled: The call waited for an earlier run, and was cancelled or out of time;
                the run continues.
            RyeError: Nothing ran.
        """
        request, ctx = self._run_request(ref, inputs, **options)
        return await self._running.run(ref, partial(self._service().run, request, ctx))

    async def start(
        self,
        ref: str | ItemRef,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[GraphRunOptions],
    ) -> "GraphRun":
        """Start a graph, and return as soon as it runs; see `run` for the arguments.

        Returns:
            The handle of the run: its events, its result, and a way to stop it. The run is
            cancelled when the Rye that started it is closed. For an idempotency key that was used
            before, the handle of the first run, which may have ended.

        Raises:
            RyeError: Nothing runs.
        """
        request, ctx = self._run_request(ref, inputs, **options)
        return await self.carry_out(request, ctx)

    async def carry_out(self, request: RunRequest, ctx: CallContext) -> "GraphRun":
        """Start a run by its request, such as one whose row this process has claimed."""
        return await self._running.run(request.ref, partial(self._service().start, request, ctx))

    def _run_request(
        self,
        ref: str | ItemRef,
        inputs: Mapping[str, Any] | None,
        *,
        limits: Limits | Mapping[str, float] | None = None,
        idempotency_key: str | None = None,
        labels: Mapping[str, str] | None = None,
        ctx: CallContext | None = None,
    ) -> tuple[RunRequest, CallContext]:
        ctx = (ctx or CallContext()).labelled(labels)
        request = RunRequest(
            self._ref(ref, ctx), check_mapping(inputs, "Inputs"), parse_limits(limits)
        )
        return request.with_key(idempotency_key, ctx.capabilities, ctx.labels), ctx

    async def step(
        self, ref: str | ItemRef, node: str, **options: Unpack[GraphStepOptions]
    ) -> "GraphResult":
        """Run a single node of a graph, with a given state.

        Args:
            ref: The graph.
            node: The node's id.
            **options: The keywords of `GraphStepOptions`: `inputs`, `state`, `limits`, `ctx`.

        Returns:
            The result: its `output` holds `executed_node`, `next_node` and the `state` after it.

        Raises:
            RyeError: Nothing ran.
        """
        request, ctx = self._step_request(ref, node, **options)
        return await self._running.run(ref, partial(self._service().run, request, ctx))

    async def start_step(
        self, ref: str | ItemRef, node: str, **options: Unpack[GraphStepOptions]
    ) -> "GraphRun":
        """Run a single node like `step`, and return as soon as it runs."""
        return await self.carry_out(*self._step_request(ref, node, **options))

    def _step_request(
        self,
        ref: str | ItemRef,
        node: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        limits: Limits | Mapping[str, float] | None = None,
        ctx: CallContext | None = None,
    ) -> tuple[RunRequest, CallContext]:
        if not isinstance(node, str):
            raise InputError(
                f"A node is named by its id, and {node!r} is not text.",
                next_step="Pass the id of a node of the graph.",
            )
        options = GraphOptions(only=node, state=state)
        request, ctx = self._run_request(ref, inputs, limits=limits, ctx=ctx)
        return evolve(request, graph=options), ctx

    async def resume(self, run_id: str, **options: Unpack[GraphResumeOptions]) -> "GraphResult":
        """Resume a run that was killed or stopped or has failed, in a new run; wait for its end.

        What a node was doing when its process was killed is unknown. It isn't repeated unless its
        author has declared `retry` or `cache_result`.

        Args:
            run_id: The run: its id, or an unambiguous beginning or end of it.
            **options: The keywords of `GraphResumeOptions`: `at`, `again`, `rerun`, `result`,
                `members`, `failed`, `state`, `changed`, `limits`, `ctx`.

        Returns:
            The result of the new run.

        Raises:
            ThreadConflict: The run hasn't ended, or another run has resumed it.
            StateError: Its records were altered or can't be read, or a node's end isn't known.
            RyeError: Nothing runs.

        Source: decision 47.
        """
        return await self._resume(run_id, lambda: self._service().run, **options)

    async def start_resume(self, run_id: str, **options: Unpack[GraphResumeOptions]) -> "GraphRun":
        """Resume a run like `resume`, and return as soon as the new one runs."""
        return await self._resume(run_id, lambda: self._service().start, **options)

    async def check_resume(
        self,
        run_id: str,
        *,
        limits: Limits | Mapping[str, float] | None = None,
        ctx: CallContext | None = None,
    ) -> None:
        """Check whether a run can be resumed, as `resume` does. Nothing is changed."""
        await self._resume(run_id, lambda: self._service().check, limits=limits, ctx=ctx)

    async def _resume(
        self,
        run_id: str,
        serve: Callable[[], Callable[[RunRequest, CallContext], Awaitable[T]]],
        *,
        limits: Limits | Mapping[str, float] | None = None,
        ctx: CallContext | None = None,
        **options: Unpack[_Resumption],
    ) -> T:
        """Make the request that resumes a run, and pass it to a method of the service."""
        ctx = ctx or CallContext()
        resumes = ResumeOptions(run_id, **options)

        async def resume() -> T:
            ref, found = await self._find(run_id)
            check_capability("execute", ref, ctx.capabilities)
            graph = GraphOptions(resumes=evolve(resumes, run_id=found))
            return await serve()(RunRequest(ref, limits=parse_limits(limits), graph=graph), ctx)

        return await self._running.run(run_id, resume)

    async def show(self, run_id: str) -> "RunView":
        """Show a run: what happened at each node, its state, and how it can be resumed.

        The journal isn't proved; `rye.threads.verify` does that.

        Args:
            run_id: The run: its id, or an unambiguous beginning or end of it.

        Raises:
            ThreadNotFound: No run has this id.
            InputError: The thread isn't a run of a graph.
        """
        from ryecore.graph.run_view import load_run_view, with_graph  # noqa: PLC0415 - for runs

        async def show() -> "RunView":
            _, whole_id = await self._find(run_id)
            view, found = await load_run_view(await self._opened(run_id), whole_id)
            try:
                graph = await self._service().load_of(view, found)
            except RyeError:  # the graph of today doesn't matter for a past run
                return view
            return with_graph(view, found, graph)

        return await self._running.run(run_id, show)

    async def list(
        self,
        *,
        running: bool = False,
        limit: int = 50,
        offset: int = 0,
    ) -> "ThreadRecords":
        """List the runs of graphs, newest first. Runs whose process died are ended before.

        Args:
            running: Whether to list only runs that have not ended.
            limit: How many, from 1 to 1,000.
            offset: How many to skip.

        Returns:
            Their rows; `total` is the number of all.

        Raises:
            InputError: `limit` or `offset` is negative or not a whole number.
            StateError: The registry can't be read.
        """
        from ryecore.graph.run_view import list_runs  # noqa: PLC0415 - only for runs
        from ryecore.state.model import ThreadRecords  # noqa: PLC0415

        check_page(limit, offset)

        async def find() -> ThreadRecords:
            store = await run_in_thread(self._store)
            if store is None:
                return ThreadRecords()
            return await list_runs(store, running=running, limit=limit, offset=offset)

        return await self._running.run("graphs", find)

    async def forget_results(self) -> int:
        """Delete the cached results of nodes with `cache_result`, for all graphs of the project.

        Returns:
            How many results were deleted.

        Raises:
            StateError: They can't be deleted.
        """

        async def forget() -> int:
            return 0 if self._store() is None else await self._service().forget_results()

        return await self._running.run("graphs", forget)

    async def _find(self, run_id: str) -> tuple[ItemRef, str]:
        """Return the graph of a run, and the run's whole id."""
        from ryecore.graph.run_view import is_run  # noqa: PLC0415 - only for runs

        store = await self._opened(run_id)
        found = await store.find(run_id)
        record = await store.look(found)
        if not is_run(record):
            raise InputError(
                f"{found} isn't a run of a graph: it ran {record.item_id}.",
                next_step="See the runs: rye graph list",
            )
        return ItemRef.parse(record.item_id, "tool"), found

    async def _opened(self, run_id: str) -> "ThreadStore":
        from ryecore.state.model import thread_not_found  # noqa: PLC0415 - only for runs

        store = await run_in_thread(self._store)
        if store is None or not run_id:
            raise thread_not_found(run_id)
        return store

    def _ref(self, ref: str | ItemRef, ctx: CallContext) -> ItemRef:
        found = ref if isinstance(ref, ItemRef) else self._named(ref)
        if found.kind != "tool":
            raise InputError(f"{found} is not a graph.", next_step="A graph is a tool: name it so.")
        check_capability("execute", found, ctx.capabilities)
        return found

    def _named(self, text: str) -> ItemRef:
        if not isinstance(text, str) or not text:
            raise InvalidItemId("A graph is required.", next_step="Pass its id, or tool:ID.")
        return ItemRef.parse(text, "tool") if ":" not in text else named(text, self._spaces)
