"""One run's life: what happens before its first node, and after its last.

A run stands in the registry and the ledger as a thread does: a row, an account that its children
draw on, a signed file, a signed journal.

Source: docs/design/graphs.md#the-walk; decisions 37, 39, 41 and 47.
"""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial

import anyio
from attrs import evolve

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.runner import create_agent_node_executor
from ryecore.errors import StateError
from ryecore.graph.host import GraphHost
from ryecore.graph.journal.events import GraphEvent
from ryecore.graph.journal.journal import Journal
from ryecore.graph.journal.recovery import Found
from ryecore.graph.lifecycle.closing import made_result, settle_failed
from ryecore.graph.lifecycle.going_on import Begun, begun_at
from ryecore.graph.lifecycle.limits import RunLimits, limits_of_run
from ryecore.graph.lifecycle.preflight import check_preflight, checked_inputs
from ryecore.graph.lifecycle.taking_up import OBJECTS, TakenUp, take_up
from ryecore.graph.loading import LoadedGraph
from ryecore.graph.model import Graph
from ryecore.graph.result import GraphResult, document_of, status_of
from ryecore.graph.schedule import Ending, NodeError, Position, first
from ryecore.graph.walk.agents import AgentWork
from ryecore.graph.walk.calls import ItemCaller
from ryecore.graph.walk.offers import Offers, offers_of
from ryecore.graph.walk.vertices import Vertices
from ryecore.graph.walk.walker import Walk, Walker
from ryecore.graph.wish import GraphWish
from ryecore.items.signature import utc_now
from ryecore.policy import CallContext, CancelToken
from ryecore.policy.budget import Amount
from ryecore.policy.cancelling import run_to_end
from ryecore.policy.limits import Limits
from ryecore.policy.permissions import attenuate
from ryecore.runs.bounds import (
    RunBounds,
    depth_used_up,
    find_parent,
    within_bounds,
)
from ryecore.runs.children import stop_children, wait_for_children
from ryecore.runs.hooks import HookRunner
from ryecore.runs.naming import register_thread
from ryecore.runs.spending import Spending
from ryecore.runs.supervisor import pass_on_requests
from ryecore.state.attestation import check_graph_folders
from ryecore.state.thread_file import THREAD_FILE, ThreadFile, write_thread_file
from ryecore.state.thread_rows import SpawnLimit
from ryecore.state.transcript_format import Head
from ryecore.state.waiting import run_in_thread

__all__ = ["GraphLife"]


class GraphLife:
    """One run's life.

    Args:
        host: What all runs of the Rye have in common.
        wish: What the run is wanted for.
        ctx: On whose behalf, within what.

    Attributes:
        run_id: Its id, once it is registered.
        item_id: The graph, as a canonical ref.
        cancellation: Stops it.
        journal: Where it tells what happens, once it has begun.
    """

    _loaded: LoadedGraph
    _bounds: RunLimits
    _limits: Limits
    _held: frozenset[str] | None
    _position: Position
    _offers: Offers
    _walk: Walk
    _call_root: str
    _file: ThreadFile
    journal: Journal

    def __init__(self, host: GraphHost, wish: GraphWish, ctx: CallContext) -> None:
        self._host = host
        self._wish = wish
        self._ctx = ctx
        self._started = time.monotonic()
        self.item_id = str(wish.ref)
        self._fence = wish.registered.fence if wish.registered else None
        self.run_id = wish.registered.thread_id if wish.registered else ""
        self.cancellation = CancelToken()

    @property
    def graph(self) -> Graph:
        """The graph, once it has begun."""
        return self._loaded.graph

    @property
    def total(self) -> Amount:
        """The money and the tokens that it and all below it have used, with what is held."""
        account = self._host.ledger.account(self.run_id)
        return account.total + account.held

    def events(self) -> AsyncGenerator[GraphEvent, None]:
        """What happens in it, once it has begun."""
        return self.journal.events()

    def cancel(self) -> None:
        """Ask it, and all below, to stop."""
        self.cancellation.cancel()

    def want_handoff(self) -> None:
        """A run isn't handed off: nothing of it grows too long."""

    async def check(self) -> None:
        """Check whether the run can begin. Nothing is changed.

        Raises:
            RyeError: It can't.
        """
        self._loaded = await self._host.load(self._wish.ref, self._ctx)
        await self._starting_point()

    async def _starting_point(self) -> tuple[TakenUp | None, dict[str, object], Begun]:
        """Return the run that this one continues, the inputs, and where it begins."""
        goes_on, graph = self._wish.goes_on, self._loaded.graph
        await run_in_thread(check_graph_folders, self._host.project_root / "state")
        taken = None if goes_on is None else await run_in_thread(take_up, self._host, goes_on)
        found = None if taken is None else taken.found
        inputs = await checked_inputs(graph, self._wish, found)
        check_preflight(graph, self._host, self._wish.only)
        return taken, inputs, self._begun(found, inputs)

    async def begin(self) -> None:
        """Do all that comes before the first node.

        Raises:
            AlreadyStarted: The same was started with its idempotency key.
            RyeError: Nothing runs. A run that was registered by then has ended as an error.
        """
        await self._host.open_store()
        key = self._wish.start_key
        if key is not None:  # first: the run is found even if the graph's file has changed
            parent_id = self._ctx.budget_account
            await run_in_thread(self._host.registry.check_start, key, parent_id)
        try:
            self._loaded = await self._host.load(self._wish.ref, self._ctx)
            taken, inputs, begun = await self._starting_point()
            found = None if taken is None else taken.found
            self._offers = await offers_of(self._loaded.graph, self._deps(), self._host.dispatcher)
            parent = self._parent()
            self._held = within_bounds(
                self._ctx.capabilities,
                None if parent is None else parent.capabilities,
                None if found is None else found.started.get("held"),
            )
            await self._host.ledger.until_free()
            self._register(parent, taken)
            self._call_root = (taken and taken.call_root) or self.run_id
            self._open_account(parent)
            self._claim()
            await self._open_journal(inputs, begun)
            self._prepare(inputs, begun)
            await self._walk.hooks.check()
        except BaseException as error:
            if self.run_id:
                self._host.store.free_start_key(self.run_id)
                self._end_badly(error)
            raise

    # Before anything is registered

    def _begun(self, found: Found | None, inputs: Mapping[str, object]) -> Begun:
        """Where the run begins."""
        graph, wish = self._loaded.graph, self._wish
        if found is not None and wish.goes_on is not None:
            now_ms = time.time_ns() // 1_000_000
            return begun_at(graph, found, wish.goes_on, inputs, now_ms=now_ms)
        position = first(graph)
        state = {**position.state, **wish.state}
        return Begun(evolve(position, node=wish.only or graph.start, state=state), {})

    def _parent(self) -> RunBounds | None:
        return find_parent(self._host, self._ctx.budget_account, self._wish.registered)

    # What makes it a run

    def _register(self, parent: RunBounds | None, taken: TakenUp | None) -> None:
        host, wish = self._host, self._wish
        if parent is not None and parent.limits.depth == 0:
            raise depth_used_up(parent.thread_id)
        if wish.registered is None:
            follows = None if taken is None else taken.follows
            spawns = None if parent is None else SpawnLimit(parent.limits.spawns)
            self.run_id = register_thread(
                host.registry, wish.ref, self._ctx.budget_account, follows, wish.start_key, spawns
            )
        found = None if taken is None else taken.found
        self._bounds = limits_of_run(host, self.run_id, wish, found, self._ctx)
        limits = self._bounds.limits
        self._limits = limits.capped_by(parent.limits) if parent is not None else limits

    def _open_account(self, parent: RunBounds | None) -> None:
        ledger, limits = self._host.ledger, self._limits
        wanted = Amount(limits.spend_microcents or 0, limits.tokens or 0)
        granted = wanted
        if parent is None:
            ledger.register(self.run_id, wanted)
        else:
            granted = ledger.reserve(
                self.run_id,
                parent.thread_id,
                wanted,
                reserves_spend=self._bounds.declares.spend,
                reserves_tokens=self._bounds.declares.tokens,
            )
        spend = Decimal(f"{granted.spend_microcents}e-8")
        self._limits = evolve(limits, spend_usd=spend, tokens=granted.tokens)

    def _claim(self) -> None:
        host, run_id = self._host, self.run_id
        host.registry.set_limits(run_id, self._limits.to_dict())
        if self._fence is None:
            self._fence = host.registry.claim(run_id)
        host.supervisor.add(run_id, self._fence, self)
        pass_on_requests(host.registry.get_thread(run_id), self)  # what was wished before that

    def _capabilities(self, graph: Graph) -> frozenset[str]:
        """What its actions may do: what its file says, within what its starters may.

        Source: decision 41. Never from parameters.
        """
        return frozenset(attenuate(graph.permissions, self._held))

    async def _open_journal(self, inputs: dict[str, object], begun: Begun) -> None:
        host, graph, run_id = self._host, self._loaded.graph, self.run_id
        folder = host.store.make_folder(run_id)
        row = host.registry.get_thread(run_id)
        self._file = ThreadFile(
            thread_id=run_id,
            item_id=str(graph.ref),
            directive=graph.ref.id,
            item_hash=graph.digest,
            status="running",
            created_at=row.created_at,
            updated_at=row.created_at,
            model=None,
            limits=self._limits.to_dict(),
            capabilities=tuple(sorted(self._capabilities(graph))),
            parent_id=row.parent_id,
            root_id=row.root_id,
            chain_root_id=row.chain_root_id or run_id,
            continuation_of=self._wish.goes_on.run_id if self._wish.goes_on else None,
        )
        path = folder / THREAD_FILE
        await host.write(write_thread_file, path, self._file, host.key, host.durability)
        objects = host.project_root.joinpath(*OBJECTS)
        registry = host.registry  # asked for once: each look makes sure that it is in its place

        def set_head(head: Head) -> None:
            registry.set_head(run_id, (head.offset, head.digest))

        create = partial(Journal.create, sink=self._ctx.event_sink, set_head=set_head)
        self.journal = await host.write(create, folder, objects, run_id, host.key, host.durability)
        host.running[run_id] = self
        self._position = begun.position
        started = {**self._file.to_dict(), "graph": graph.ref.id, "inputs": inputs}
        started["asked"] = self._bounds.asked.to_dict()
        started["held"] = None if self._held is None else sorted(self._held)
        if self._wish.only is not None:
            started["only"] = self._wish.only
        if self._call_root != run_id:
            started["call_root"] = self._call_root
        self.journal.append("run_started", started)
        if self._wish.goes_on is not None:
            going = {"from": self._wish.goes_on.run_id, "step": begun.position.step}
            self.journal.append("run_resumed", going)
        self.journal.checkpoint(begun.position, begun.known)
        await self.journal.synced()
        await host.store.synced()

    def _prepare(self, inputs: dict[str, object], begun: Begun) -> None:
        host, graph, journal = self._host, self._loaded.graph, self.journal
        deadline = self._ctx.deadline
        if self._bounds.asked.duration_s is not None:
            until = self._started + float(self._bounds.asked.duration_s)
            deadline = until if deadline is None else min(deadline, until)
        call = evolve(
            self._ctx,
            capabilities=self._capabilities(graph),
            budget_account=self.run_id,
            cancellation=self.cancellation,
            deadline=deadline,
            call_id=self._call_root,
            parent=self._ctx.call_id,
            event_sink=None,
        )
        vertices = Vertices(
            graph,
            ItemCaller(host.dispatcher, host.cache),
            journal,
            begun.known,
        )
        deps = self._offers.deps
        executor = create_agent_node_executor(deps, handlers=vertices.handlers())
        spending = Spending(
            self.run_id, host.ledger, self._limits, deps, journal, self.cancellation
        )
        most_turns = self._bounds.asked.turns
        hooks = HookRunner(
            graph.hooks,
            host.dispatcher,
            journal.append,
            directive_ctx=call,
            host_ctx=evolve(call, capabilities=None),
        )
        self._walk = Walk(
            run_id=self.run_id,
            graph=graph,
            inputs=inputs,
            executor=executor,
            vertices=vertices,
            agents=AgentWork(executor, self._offers, journal, call, spending, most_turns),
            journal=journal,
            hooks=hooks,
            call=call,
        )

    def _deps(self) -> AgentRunnerDeps:
        """The host's models; none where it injects none, and no node asks for any."""
        if self._host.has_models:
            return self._host.deps
        return AgentRunnerDeps(resolve_provider=lambda _: None, key_for=lambda _: "")

    # The walk, and what comes after

    async def finish(self) -> GraphResult:
        """Walk to the end. Only a cancellation of its own task is raised, once it has ended.

        Returns:
            What came of it.
        """
        forget = None
        if self._ctx.cancellation is not None:
            forget = self._ctx.cancellation.on_cancel(self.cancellation.cancel)
        walker = Walker(self._walk, self._position)
        try:
            position = await self._walked(walker)
        except anyio.get_cancelled_exc_class():
            ending = Ending("cancelled", error=NodeError("", "The run was cancelled.", "cancelled"))
            with suppress(Exception):  # no failure of the end takes the cancellation's place
                await self._finalize(evolve(walker.position, ending=ending))
            raise
        except Exception as error:
            said = NodeError(walker.position.node or "", str(error), "internal")
            position = evolve(walker.position, ending=Ending("error", error=said))
        except BaseException as error:
            self._end_badly(error)
            raise
        finally:
            if forget is not None:
                forget()
        return await self._finalize(position)

    async def _walked(self, walker: Walker) -> Position:
        if self._wish.only is None:
            return await walker.to_the_end()
        after = await walker.one_step()
        if after.ending is not None and after.node is not None:
            return after
        told: dict[str, object] = {
            "executed_node": self._wish.only,
            "next_node": after.node,
            "state": dict(after.state),
        }
        if after.ending is not None:
            told["output"] = after.ending.output
        return evolve(after, node=None, ending=Ending("completed", told))

    async def _finalize(self, position: Position) -> GraphResult:
        """End the run, once. Whatever fails on the way, nothing of it stays open here."""
        try:
            return await run_to_end(partial(self._close, position))
        except BaseException as error:
            self._end_badly(error)
            raise
        finally:
            self._forget()

    async def _close(self, position: Position) -> GraphResult:
        host, run_id = self._host, self.run_id
        ending = position.ending or Ending("cancelled")
        status = status_of(ending)
        if status == "completed":
            await wait_for_children(host.store, run_id)
        await stop_children(host.store, run_id)
        if status == "cancelled" and host.registry.get_thread(run_id).kill_requested:
            status = "killed"
        cost = self._walk.agents.cost
        await host.ledger.until_free()
        self._walk.agents.settle_unwritten()
        spent = Amount(cost.spend_microcents, cost.input_tokens + cost.output_tokens)
        host.ledger.report_actual(run_id, spent)
        host.ledger.cascade_spend(run_id)
        account = host.ledger.account(run_id)
        total = account.total + account.held
        said = document_of(run_id, position, total)
        self.journal.append(f"run_{status}", {key: said[key] for key in said if key != "state"})
        self.journal.checkpoint(position)
        await self.journal.synced()
        head = self.journal.head
        self.journal.close()
        with suppress(StateError):  # a full disk there takes no result from its caller
            file = evolve(self._file, status=status, cost=cost, updated_at=utc_now())
            folder = host.store.folder_of(run_id)
            path = folder / THREAD_FILE
            await host.write(write_thread_file, path, file, host.key, host.durability)
        result = made_result(
            self._loaded,
            run_id,
            position,
            cost,
            total,
            time.monotonic() - self._started,
            self._walk.sight,
        )
        settle = partial(
            host.store.settle,
            head=None if head is None else (head.offset, head.digest),
            snapshot=cost,
        )
        await host.write(settle, run_id, status, result.to_dict(), self._fence or 0)
        return result

    def _end_badly(self, error: BaseException) -> None:
        journal = getattr(self, "journal", None)
        walk, fence = getattr(self, "_walk", None), self._fence or 0
        unwritten = None if walk is None else walk.agents.unwritten()
        settle_failed(self._host, self.run_id, self.item_id, fence, error, journal, unwritten)
        self._forget()

    def _forget(self) -> None:
        self._host.supervisor.remove(self.run_id)
        self._host.running.pop(self.run_id, None)
        journal = getattr(self, "journal", None)
        if journal is not None:
            with suppress(StateError):  # who ends it says so already
                journal.close()
