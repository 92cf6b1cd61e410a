"""Runs that a caller puts into a queue, for workers that share its state.

The run is a row of the state, with its request; DBOS has its place in the queue. The row is written
first: a worker puts a row that never got there into the queue.

Source: docs/design/queues.md; ADR 041.
"""

import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from attrs import evolve

from ryecore.chain.trace import Trace
from ryecore.errors import (
    AlreadyStarted,
    ConfigError,
    InputError,
    MissingExtra,
    RyeError,
    StateError,
)
from ryecore.policy import CallContext
from ryecore.policy.cancelling import held_cancellation, run_to_end
from ryecore.remote.cluster_waits import ClusterWaits, waiting_of
from ryecore.remote.config import Remote, RemotesConfig
from ryecore.remote.plan import PushPlanner, make_plan
from ryecore.remote.ports import ClusterSender, RunSender
from ryecore.remote.queue_address import RAY_QUEUE
from ryecore.remote.travelling import put_project
from ryecore.runs.bounds import refuse_unproved_parent, spawn_limit
from ryecore.runs.host import RunHost
from ryecore.runs.queued_run import QueuedRun, QueuedSpace
from ryecore.runs.request import RunRequest, register_run
from ryecore.state.model import ThreadRecord
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.run_queue import QueuedRequest, QueueEntry, RunQueue
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread
from ryecore.threads.planner.planning import DirectivePlanner

if TYPE_CHECKING:
    from ryecore.remote.dbos_queue import QueueBounds, QueueClient

__all__ = ["QueuedRuns", "missing_dbos"]

_LEAST_AGE_S: Final = 10.0
"""How old a run is that its caller should have sent by now, in seconds."""

_LOOK_EVERY_S: Final = 30.0
"""How often a sender looks for runs that a cluster has lost, in seconds."""

_PRIORITY: Final = 1
"""The place in the queue of what a node puts there; DBOS counts from 1."""

_DISTRIBUTIONS: Final = ("dbos", "sqlalchemy")


class QueuedRuns:
    """The runs that one open Rye puts into queues.

    Args:
        host: The host of runs.
        planner: The planner of directives.
        remotes: Reads the remotes.
        state: The address of the Rye's state; None where it is in the project's folder.
        ray: Returns what gives runs to the workers of a Ray cluster.
        pushes: Returns what plans what of the project travels.
        waits: Looks after runs that wait for a Ray cluster.
    """

    def __init__(
        self,
        host: RunHost,
        planner: DirectivePlanner,
        remotes: Callable[[], RemotesConfig],
        state: str | None,
        ray: Callable[[Remote], ClusterSender],
        pushes: Callable[[], PushPlanner],
        waits: ClusterWaits,
    ) -> None:
        self._ray = ray
        self._waits = waits
        self._look_again_at_s: dict[str, float] = {}
        self._pushes = pushes
        self._host = host
        self._planner = planner
        self._remotes = remotes
        self._state = state
        self._client: QueueClient | None = None
        self._connecting = Lock()

    @cached_property
    def _own(self) -> PostgresAddress | None:
        """The address of this Rye's state, if machines share it."""
        return None if self._state is None else PostgresAddress.parse(self._state)

    async def enqueue(self, request: RunRequest, ctx: CallContext) -> str:
        """Put a run into the queue of the request's target, and return its id.

        It is a directive's thread or, on a Ray cluster, a graph's run that is bound to its digest.

        Raises:
            AlreadyStarted: The same request was started with its idempotency key.
            ConfigError: This Rye's state is another one.
            RyeError: The item, its inputs or the queue can't be used; nothing is in the queue.
        """
        remote = self._remotes().find(request.target)
        state, name = self.place(remote)
        is_directive = request.ref.kind == "directive"
        is_graph = request.graph.digest is not None and remote.kind == "ray"
        if request.collect or not (is_directive or is_graph):
            raise InputError(
                "A queue runs directives' threads, in the project as its workers have it.",
                next_step="Leave pull out: a worker's project is its own."
                if is_directive or is_graph
                else "Execute it here, on a node, or by a directive's thread.",
            )
        store = await self._host.open_store()  # which says best why a server can't be reached
        if store.queue is None:
            raise RuntimeError("A state on a server has queues.")
        client: RunSender | None = self._client if remote.kind == "queue" else None
        if client is None:
            client = await run_in_thread(self._sender, remote, state)
        # No worker may run what the audit log has no line of, so it has to come in between.
        is_recorded = ctx.execution is not None and ctx.execution.is_recorded
        in_queue = self._client if remote.kind == "queue" and not is_recorded else None
        entry_of = None if in_queue is None else in_queue.entry
        if request.start_key is not None:
            await store.registry.check_start(request.start_key, ctx.budget_account)
        refuse_unproved_parent(self._host.environ, ctx.budget_account)
        if is_directive:
            self._check_inputs(request, ctx)  # as fast as the plan of a thread here
        else:  # whose inputs were checked with its plan
            await store.check_objects()
        snapshot = None
        if remote.settings.travels:
            plan = await make_plan(self._pushes(), remote.settings.push.include)
            objects = await run_in_thread(store.travelling)
            snapshot = await run_in_thread(put_project, plan, objects)
        queued = QueuedRun(evolve(request, queue=name, target="local"), ctx, snapshot)
        priority = remote.settings.priority
        with held_cancellation() as held:
            record = await self._register(
                store, store.queue, queued, priority, request, ctx, entry_of=entry_of
            )
        try:
            held.deliver()
            if ctx.execution is not None:
                await ctx.execution.begins(record.thread_id)
            if remote.kind == "ray":
                await self._send_lost(store, remote, name)
            if entry_of is None:
                await run_in_thread(client.enqueue, record.thread_id, name, priority)
        except BaseException as problem:
            await run_to_end(partial(_take_back, store, record, problem))
            raise
        if ctx.execution is not None:
            ctx.execution.moves()
        self._waits.look_after(name)
        return record.thread_id

    async def hand_over(
        self, request: RunRequest, ctx: CallContext, snapshot: str, space: QueuedSpace
    ) -> str:
        """Put a run of a node's caller into the request's queue, or find the one of its key there.

        Args:
            request: The run, of any item, with its queue and its idempotency key.
            ctx: What it may do, and its deadline.
            snapshot: The snapshot of its project and user space, stored already.
            space: Whose it is.

        Returns:
            Its id.

        Raises:
            RyeError: The state can't be reached, or the inputs can't be written.
        """
        store = await self._host.open_store()
        name = request.queue
        if store.queue is None or self._own is None or name is None:
            raise RuntimeError("A node hands runs over in a state on a server.")
        client = await run_in_thread(self._connect, self._own)
        queued, record = QueuedRun(request, ctx, snapshot, space), None
        with held_cancellation() as held:
            try:
                record = await self._register(store, store.queue, queued, _PRIORITY, request, ctx)
                run_id = record.thread_id
            except AlreadyStarted as found:
                run_id = found.thread_id
        try:  # again, too: whoever began that may have died in between
            held.deliver()
            await run_in_thread(client.enqueue, run_id, name, _PRIORITY)
        except BaseException as problem:
            if record is not None:
                await run_to_end(partial(_take_back, store, record, problem))
            raise
        return run_id

    async def _send_lost(self, store: ThreadStore, remote: Remote, name: str) -> None:
        """Send runs again that the cluster should have got, or had when it was started anew."""
        if time.monotonic() < self._look_again_at_s.get(name, 0.0):
            return
        self._look_again_at_s[name] = time.monotonic() + _LOOK_EVERY_S
        lost = await waiting_of(store, name, least_age_s=_LEAST_AGE_S)
        if lost:
            await run_in_thread(self._ray(remote).send_again, lost)

    def place(self, remote: Remote) -> tuple[PostgresAddress, str]:
        """Return the state and the queue of a remote, which must be this Rye's own state.

        Raises:
            ConfigError: It is another state.
        """
        own, queue = self._own, remote.settings.queue
        if remote.kind == "ray":
            if own is None:
                raise ConfigError(
                    f"The Ray cluster {remote.name} runs threads and graphs of a state that "
                    "machines share, and this Rye's is in the project's folder.",
                    next_step="Name one: RYE_STATE, or Rye.open(state=...).",
                )
            return own, f"{RAY_QUEUE}{remote.name}"
        if queue is None:
            raise RuntimeError("A node has no queue: ask for the kind of the target first.")
        if own is None or (own != queue.state and own.place != queue.state.place):
            here = "in the project's folder" if own is None else own.shown
            raise ConfigError(
                f"The queue of {remote.name} is in {queue.state.shown}, and this Rye's state is "
                f"{here}.",
                next_step="Open it with the same state: RYE_STATE, or Rye.open(state=...).",
            )
        return own, queue.name

    def _sender(self, remote: Remote, state: PostgresAddress) -> RunSender:
        if remote.kind == "queue":
            return self._connect(state)
        cluster = self._ray(remote)
        cluster.refuse_lacking()
        return cluster

    def _connect(self, state: PostgresAddress) -> "QueueClient":
        with self._connecting:  # many first runs at once make one client
            if self._client is None:
                try:
                    from ryecore.remote.dbos_queue import QueueClient  # noqa: PLC0415 - an extra
                except ModuleNotFoundError as problem:
                    raise missing_dbos(problem) from None
                self._client = QueueClient(state)
            return self._client

    def bounds(self) -> "Mapping[str, QueueBounds]":
        """Return the bounds of the queues of this Rye's state.

        Raises:
            MissingExtra: The extra dbos isn't installed.
            StateUnreachable: The server can't be reached.
        """
        return {} if self._own is None else self._connect(self._own).bounds()

    def _check_inputs(self, request: RunRequest, ctx: CallContext) -> None:
        """Check the directive and its inputs here, so that a wrong call is refused at once."""
        trace = Trace(ctx.event_sink)
        loaded = self._planner.load(request.ref, trace)
        if ctx.execution is not None:
            ctx.execution.item = loaded.item
        self._planner.inputs(loaded, request.inputs, trace)

    async def _register(
        self,
        store: ThreadStore,
        queue: RunQueue,
        queued: QueuedRun,
        priority: int,
        request: RunRequest,
        ctx: CallContext,
        *,
        entry_of: Callable[[str, str, int], QueueEntry] | None = None,
    ) -> ThreadRecord:
        """Register the run under its key, keep its document, and perhaps put it in the queue.

        All is done in one transaction.
        """
        spawns = await spawn_limit(store, ctx.budget_account)
        deadline = None
        if ctx.deadline is not None:
            deadline = time.time() + ctx.deadline - time.monotonic()
        kept, name = QueuedRequest(queued.to_text(), priority, deadline), queued.request.queue

        async def put(record: ThreadRecord) -> None:
            entry = None
            if entry_of is not None and name is not None:
                entry = entry_of(record.thread_id, name, priority)
            await queue.put(record.thread_id, kept, entry)

        return await register_run(
            store.registry,
            evolve(queued.request, start_key=request.start_key),
            ctx.budget_account,
            spawns=spawns,
            recent=self._host.recent_ids,
            labels=ctx.labels,
            also=put,
            on_unreachable=_warn_of_run,
        )

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()


def _warn_of_run(run_id: str, problem: RyeError) -> None:
    """Say which run may be carried out although its caller has an error."""
    problem.facts = {**problem.facts, "thread_id": run_id}
    problem.next_step += f" It may run all the same: rye threads show {run_id}"


async def _take_back(store: ThreadStore, record: ThreadRecord, problem: BaseException) -> None:
    """End a run that couldn't be put into its queue. Where that fails too, a worker may run it."""
    run_id = record.thread_id
    why = f"It wasn't put into its queue: {type(problem).__name__}."
    text = str(problem) if isinstance(problem, RyeError) else why
    result = {"status": "error", "error": text, "item_id": record.item_id}
    try:
        await store.free_start_key(run_id)
        await store.settle(run_id, "error", result, record.fence)
    except StateError:
        if isinstance(problem, RyeError):
            _warn_of_run(run_id, problem)


def missing_dbos(problem: ModuleNotFoundError) -> RyeError | ModuleNotFoundError:
    """Return the error for the missing extra; the same one where another module is missing."""
    if (problem.name or "").partition(".")[0] not in _DISTRIBUTIONS:
        return problem
    return MissingExtra(
        f"A queue needs the package {problem.name}, which is not installed.",
        next_step="pip install 'ryecore[dbos]'",
        extra="dbos",
    )
