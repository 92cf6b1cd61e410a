"""The lifecycle of a graph's run, an extension of that of every run.

Source: docs/design/graphs.md#the-walk; decisions 37, 39, 41 and 47.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve
from typing_extensions import override

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.outcome import NodeFailure
from ryecore.agent.runner import create_agent_node_executor
from ryecore.agent.spending import Spending
from ryecore.errors import ContentChanged
from ryecore.frozen import frozen
from ryecore.graph.journal.journal import Journal
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.mapping import MAP_REF, load_map, recorded_options
from ryecore.graph.members import MEMBER, member_graph, member_ref, read_parts
from ryecore.graph.model import AgentForeach, Graph
from ryecore.graph.preflight import check_inputs, check_preflight
from ryecore.graph.reading import GraphLoader, LoadedGraph
from ryecore.graph.result import (
    GraphResult,
    document_of,
    failure_document,
    failure_result,
    make_result,
    status_of,
)
from ryecore.graph.resume import Resumed, StartPosition, find_resumed, start_position
from ryecore.graph.schedule import Ending, Position, first
from ryecore.graph.walk.agents import AgentTools, AgentWork, find_agent_tools
from ryecore.graph.walk.calls import CallOutcome, ItemCaller
from ryecore.graph.walk.vertices import Vertices
from ryecore.graph.walk.walker import GraphWalk, Walker
from ryecore.llm.rate_rules import RateLimit
from ryecore.policy import CallContext
from ryecore.policy.budget import Amount
from ryecore.policy.hooks import by_event
from ryecore.policy.limits import LayeredLimits, Limits
from ryecore.policy.permissions import attenuate
from ryecore.runs.bounds import (
    bounds_of,
    carried_limits,
    check_depth,
    is_host,
    read_asked,
    within_bounds,
)
from ryecore.runs.handle import run_to_result
from ryecore.runs.hooks import HookRunner
from ryecore.runs.host import RunHost
from ryecore.runs.lifecycle import RunLifecycle
from ryecore.runs.request import GraphOptions, MapOptions, MemberOptions, RunRequest
from ryecore.state.model import (
    ContinuationLimits,
    Cost,
    Predecessor,
    SpawnLimit,
    Status,
    ThreadRecord,
)
from ryecore.state.transcript_format import Head

if TYPE_CHECKING:
    from ryecore.graph.result_cache import ResultsCache

__all__ = ["GraphDeps", "GraphLifecycle"]


@frozen
class GraphDeps:
    """The dependencies of a Rye's graph runs, besides their host, with a cache or without."""

    load: GraphLoader
    limits: Callable[[Limits], LayeredLimits]
    cache: "ResultsCache | None"
    variables: Callable[[], Collection[str]]
    rate_limits: Callable[[], Mapping[str, RateLimit]]


class GraphLifecycle(RunLifecycle[Position, GraphResult]):
    """The lifecycle of one run of a graph."""

    _loaded: LoadedGraph
    _map: MapOptions | None
    _resumed: Resumed | None
    _inputs: dict[str, object]
    _begun: StartPosition
    _tools: AgentTools
    _held: frozenset[str] | None
    _asked: Limits
    _call: CallContext
    _walk: GraphWalk
    _walker: Walker

    def __init__(
        self, host: RunHost, deps: GraphDeps, request: RunRequest, ctx: CallContext
    ) -> None:
        super().__init__(host, request, ctx)
        self._deps = deps
        self._journal: Journal | None = None
        self._spent: Spending | None = None
        self._is_killed = False
        self._has_end = False

    @property
    def loaded(self) -> LoadedGraph:
        """The graph and its chain, once the run has begun."""
        return self._loaded

    @property
    def graph(self) -> Graph:
        """The graph, once the run has begun."""
        return self._loaded.graph

    @property
    def journal(self) -> Journal:
        """The run's log, once it is opened."""
        if self._journal is None:
            raise RuntimeError("The journal is opened before the run walks.")
        return self._journal

    async def check(self) -> None:
        """Check that the run can begin. Nothing is changed."""
        host, options = self._host, self._request.graph
        is_map = self._request.ref == MAP_REF
        member = options.member
        if member is not None:  # its caller is the run of that graph, which was allowed
            self._loaded = await self._deps.load(member.graph, self._ctx.for_host())
            self._loaded = evolve(self._loaded, graph=_graph_of_member(self.graph, member))
        elif not is_map:
            self._loaded = await self._deps.load(self._request.ref, self._ctx)
            if self.execution is not None:
                self.execution.item = self._loaded.chain.head.item
        await host.store.check_objects()
        self._resumed = None
        if options.resumes is not None:
            self._resumed = await find_resumed(host, options.resumes)
        found = self._resumed.found if self._resumed else None
        self._map = recorded_options(found.started) if found else options.map
        if is_map:
            self._loaded = load_map(self._map)
        self._inputs = await check_inputs(self.graph, self._request, found)
        check_preflight(self.graph, host, self._deps.variables, options.only)
        if found is not None and options.resumes is not None:
            now_ms = time.time_ns() // 1_000_000
            self._begun = start_position(
                self.graph, found, options.resumes, self._inputs, now_ms=now_ms
            )
        else:
            position = first(self.graph)
            state = {**position.state, **options.state}
            node = options.only or self.graph.start
            self._begun = StartPosition(evolve(position, node=node, state=state), {})

    # Begin

    async def _prepare(self) -> None:
        await self.check()
        self._tools = await find_agent_tools(self.graph, self._models(), self._host.dispatcher)
        self._held = within_bounds(
            self._ctx.capabilities,
            self._parent.capabilities if self._parent else None,
            self._resumed.found.started.get("held") if self._resumed else None,
        )
        check_depth(self._parent)

    def _models(self) -> AgentRunnerDeps:
        """Return the host's models; empty ones where it has none and no node uses any."""
        if self._host.has_models:
            return self._host.deps_within(self._deps.rate_limits())
        return AgentRunnerDeps(resolve_provider=lambda _: None, key_for=lambda _: "")

    @property
    def _follows(self) -> Predecessor | None:
        return self._resumed.follows if self._resumed else None

    @property
    def _spawns(self) -> SpawnLimit | None:
        return SpawnLimit(self._parent.limits.spawns) if self._parent else None

    @property
    @override
    def recorder(self) -> Journal | None:
        return self._journal

    @property
    def _spending(self) -> Spending | None:
        return self._spent

    @property
    def _binding_limits(self) -> Limits:
        """The limits, with the turns and the duration only where the caller asked for them."""
        asked = self._asked
        return evolve(self._limits, turns=asked.turns, duration_s=asked.duration_s)

    @property
    def _deadline(self) -> float | None:
        """The caller's deadline, or the end of the duration that the caller asked for."""
        deadline, duration_s = self._ctx.deadline, self._asked.duration_s
        if duration_s is None:
            return deadline
        until = self._started + float(duration_s)
        return until if deadline is None else min(deadline, until)

    @property
    def _call_root(self) -> str:
        """The run whose id is part of call ids, so that a repeated call keeps its id."""
        return (self._resumed and self._resumed.call_root) or self.run_id

    async def _plan(self) -> LayeredLimits:
        layered = await self._along_chain()
        # Like turns and duration: its author bounds the members of a foreach, else its caller.
        layered = evolve(layered, limits=evolve(layered.limits, spawns=self._asked.spawns))
        if self._parent is None:
            return layered
        return evolve(layered, limits=layered.limits.capped_by(self._parent.limits))

    async def _along_chain(self) -> LayeredLimits:
        """Return the run's limits, less what the run that it resumes has used, if any is left.

        Turns and duration bound a run only where its caller sets them. Limits that a person or the
        host resumes with count from zero.

        Source: decisions 39, 40 and 80.
        """
        request, resumes = self._request, self._request.graph.resumes
        self._asked = request.limits
        if self._resumed is None or resumes is None:
            return self._deps.limits(request.limits)
        found = self._resumed.found
        before = read_asked(resumes.run_id, found.started)
        asked = before.under(request.limits)
        layered = self._deps.limits(asked)
        bounds = bounds_of(resumes.run_id, found.started).limits
        carried = ContinuationLimits(
            resumes.run_id,
            evolve(bounds, turns=before.turns, duration_s=before.duration_s, spawns=before.spawns),
            found.ran_s,
            layered.limits,
            request.limits if is_host(self._ctx) else Limits(),
        )
        limits = await carried_limits(self._store, self.run_id, carried, needs_turns=False)
        self._asked = evolve(
            asked,
            turns=None if asked.turns is None else limits.turns,
            duration_s=None if asked.duration_s is None else limits.duration_s,
            spawns=None if asked.spawns is None else limits.spawns,
        )
        return evolve(layered, limits=limits)

    async def _open_log(self, record: ThreadRecord) -> None:
        store, graph, run_id = self._store, self.graph, self.run_id
        options, begun = self._request.graph, self._begun
        # Source: decision 41. Its file declares its capabilities, within those of its caller.
        capabilities = frozenset(attenuate(graph.permissions, self._held))
        self._file = self._thread_file(
            record,
            item_hash=graph.digest,
            capabilities=tuple(sorted(capabilities)),
            continuation_of=options.resumes.run_id if options.resumes else None,
        )
        await store.write_file(self._file)
        registry = store.registry

        async def set_head(head: Head) -> None:
            await registry.set_head(run_id, (head.offset, head.digest))

        positions = PositionStore(store.objects(run_id), run_id)
        sink = self._ctx.event_sink
        self._journal = journal = await Journal.create(
            store.records, positions, run_id, sink=sink, set_head=set_head
        )
        started = {**self._file.to_dict(), "graph": graph.ref.id, "inputs": self._inputs}
        started["asked"] = self._asked.to_dict()
        started["held"] = None if self._held is None else sorted(self._held)
        if options.member is not None:
            started["member_of"] = options.member.node
        if self._map is not None:
            started["map"] = self._map.to_dict()
        if options.only is not None:
            started["only"] = options.only
        if self._call_root != run_id:
            started["call_root"] = self._call_root
        journal.append("run_started", started)
        if options.resumes is not None:
            source = {"from": options.resumes.run_id, "step": begun.position.step}
            journal.append("run_resumed", source)
        await journal.checkpoint(begun.position, begun.known)
        await journal.commit()
        self._make_walk(capabilities, journal)
        await self._walk.hooks.check()

    def _make_walk(self, capabilities: frozenset[str], journal: Journal) -> None:
        host, graph, deps = self._host, self.graph, self._tools.deps
        options = self._request.graph
        self._call = call = evolve(
            self._ctx,
            capabilities=capabilities,
            budget_account=self.run_id,
            cancellation=self.cancellation,
            deadline=self._deadline,
            call_id=self._call_root,
            parent=self._ctx.call_id,
            event_sink=None,
            budget=None,
            caller="",
            execution=None,
            intent=None,
        )
        caller = ItemCaller(host.dispatcher, self._deps.cache)
        vertices = Vertices(graph, caller, journal, self._run_member, self._begun.known)
        executor = create_agent_node_executor(deps, handlers=vertices.handlers())
        self._spent = spending = Spending(
            self.run_id,
            self._store.ledger,
            self._limits,
            deps,
            journal,
            self.cancellation,
            waits=host.budget_waits.of(self.run_id, self._store.ledger),
        )

        async def tell(kind: str, payload: Mapping[str, Any]) -> None:
            journal.append(kind, payload)

        hooks = HookRunner(
            by_event(graph.hooks),
            host.dispatcher,
            tell,
            directive_ctx=call,
            host_ctx=evolve(call, capabilities=None),
        )
        self._walk = GraphWalk(
            run_id=self.run_id,
            graph=graph,
            inputs=self._inputs,
            executor=executor,
            vertices=vertices,
            agents=AgentWork(executor, self._tools, journal, call, spending, self._asked.turns),
            journal=journal,
            hooks=hooks,
            call=call,
            member=None if options.member is None else options.member.name,
        )
        self._walker = Walker(self._walk, self._begun.position)

    async def _run_member(
        self, vertex: AgentForeach, member: object, call: CallContext
    ) -> CallOutcome:
        """Run an agent for one member of a foreach, as a child, and return its outcome."""
        graph = self.graph
        read = read_parts(
            vertex.agent.node.prompt_template, self._inputs, self._walker.position.state
        )
        options = GraphOptions(
            member=MemberOptions(graph.ref, graph.digest, vertex.id, vertex.as_),
            state={**read.state, MEMBER: member},
        )
        request = RunRequest(member_ref(graph, vertex), read.inputs, graph=options)
        life = GraphLifecycle(self._host, self._deps, request, call)
        done = await run_to_result(self._host, life)
        outcome = CallOutcome("completed", done.output)
        if done.failed is not None or done.ended == "cancelled":
            failure = done.failed or NodeFailure("cancelled", done.error or "")
            outcome = evolve(outcome, status="failed", output=None, failure=failure)
        return evolve(outcome, thread_id=done.run_id, spend_microcents=done.total.spend_microcents)

    # Run

    async def _run(self) -> Position:
        forget = None
        if self._ctx.cancellation is not None:
            forget = self._ctx.cancellation.on_cancel(self.cancellation.cancel)
        try:
            if self._request.graph.only is None:
                return await self._walker.to_the_end()
            return self._after_one_step(await self._walker.one_step(), self._request.graph.only)
        finally:
            if forget is not None:
                forget()

    def _after_one_step(self, after: Position, node: str) -> Position:
        if after.ending is not None and after.node is not None:
            return after
        output: dict[str, object] = {
            "executed_node": node,
            "next_node": after.node,
            "state": dict(after.state),
        }
        if after.ending is not None:
            output["output"] = after.ending.output
        return evolve(after, node=None, ending=Ending("completed", output))

    # End

    def _status_of(self, ending: Position) -> Status:
        status = status_of(ending.ending or Ending("cancelled"))
        return "killed" if status == "cancelled" and self._is_killed else status

    def _stopped(self, *, killed: bool) -> Position:
        error = NodeFailure("cancelled", "The run was cancelled.")
        return evolve(self._walker.position, ending=Ending("cancelled", error=error))

    def _failed(self, error: Exception) -> Position:
        position = self._walker.position
        failure = NodeFailure("internal", str(error), node=position.node or "")
        return evolve(position, ending=Ending("error", error=failure))

    async def _conclude(self, ending: Position) -> Position:
        if self._status_of(ending) == "cancelled":
            self._is_killed = (await self._store.registry.get_thread(self.run_id)).kill_requested
        return ending

    def _make_result(self, ending: Position, cost: Cost, total: Amount) -> GraphResult:
        seconds = time.monotonic() - self._started
        projection = self._walk.projection
        return make_result(self._loaded, self.run_id, ending, cost, total, seconds, projection)

    async def _log_end(self, ending: Position, cost: Cost, total: Amount) -> None:
        document = document_of(self.run_id, ending, total)
        payload = {key: document[key] for key in document if key != "state"}
        self.journal.append(f"run_{self._status_of(ending)}", payload)
        await self.journal.checkpoint(ending)
        self._has_end = True

    async def _log_failure(self, error: BaseException, cost: Cost) -> None:
        if self._has_end:  # only the row could not be written
            return
        status, result = self._failure_result(error)
        await self.journal.break_off(f"run_{status}", {"error": result["error"]})

    def _failure_result(self, error: BaseException) -> tuple[Status, dict[str, object]]:
        status: Status = "error" if isinstance(error, Exception) else "cancelled"
        said = str(error) or type(error).__name__
        document = failure_document(self.run_id, said, status)
        return status, failure_result(self.item_id, document)


def _graph_of_member(graph: Graph, member: MemberOptions) -> Graph:
    """Return the graph of a foreach's member, if the file is still the one that its run has."""
    vertex = graph.nodes.get(member.node)
    if member.digest != graph.digest or not isinstance(vertex, AgentForeach):
        raise ContentChanged(
            f"{graph.ref} has changed while it ran.",
            next_step="Resume its run: with --changed, where its nodes still mean the same.",
        )
    return member_graph(graph, vertex)
