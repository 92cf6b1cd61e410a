"""The launch of tools and directives' threads in processes of their own.

The thread is registered before anything starts. From then on the registry holds its state: the
process ends the thread itself, or is found dead.

Source: docs/design/execute.md#async; decisions 33 and 35 to 37.
"""

import json
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import evolve

from ryecore.actions.payload import Payload
from ryecore.actions.settings import Settings, missing_audit
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.chain.model import ExecutionPlan, ValidChain
from ryecore.chain.trace import Trace
from ryecore.errors import (
    AlreadyStarted,
    InputError,
    ProcessError,
    RyeError,
    StateError,
    StateUnreachable,
)
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import (
    ProcessId,
    ProcessSpec,
    current_process,
    kill_process,
    spawn_detached,
)
from ryecore.policy import CallContext
from ryecore.policy.cancelling import held_cancellation, run_to_end
from ryecore.policy.context import thread_variables
from ryecore.policy.environment import for_own_process
from ryecore.runs.request import RunRequest
from ryecore.state.idempotency import EarlierStart
from ryecore.state.waiting import run_in_thread
from ryecore.threads.result import StartedThread

if TYPE_CHECKING:
    from ryecore.policy.execution import Execution
    from ryecore.state.store import ThreadStore
    from ryecore.threads.planner.planning import DirectivePlanner

__all__ = [
    "LaunchAction",
    "graph_request",
    "parent_variable",
    "register_for_process",
]

_RUNNER: Final = "ryecore.thread_worker"


class LaunchAction:
    """The action that launches tools and threads, in processes that open the same Rye.

    `environ` is the environment of those processes, which run ryecore's code, not the tool's.
    """

    def __init__(
        self,
        executor: PrimitiveExecutor,
        threads: "Callable[[], ThreadStore]",
        settings: Settings,
        environ: Mapping[str, str],
        planner: "Callable[[], DirectivePlanner]",
    ) -> None:
        self._executor = executor
        self._threads = threads
        self._settings = settings
        self._environ = environ
        self._planner = planner

    async def __call__(self, request: RunRequest, ctx: CallContext) -> StartedThread:
        """Launch a tool or a graph, once it is verified and its run registered.

        The cancellation and the event sink of `ctx` apply to this call only.
        """
        started, ref = time.perf_counter(), request.ref
        if request.start_key is not None:  # found even if the tool's file has changed
            try:
                store = await run_in_thread(self._threads)
                await store.registry.check_start(request.start_key, ctx.budget_account)
            except AlreadyStarted as found:
                chain = await self._chain_now(ref, ctx)
                return await self._found(found.thread_id, ref, chain, started)
            except RyeError as error:
                error.during(str(ref))
                raise
        if request.target != "local":
            return await self._launch_remote(request, ctx, started)
        # A wrong call is reported to the caller, not in a thread's result.
        checked = await self._executor.execute(
            ref,
            request.inputs,
            ctx,
            timeout_s=request.timeout_s,
            dry_run=True,
            limits=request.limits if request.limits.to_dict() else None,
        )
        deadline = None
        if checked.plan is not None and checked.chain.is_own_process:
            request = graph_request(checked.plan, request)
            deadline = time.monotonic() + checked.plan.timeout_s
        try:
            run_id, process = await self._launch(request, ctx, deadline)
        except AlreadyStarted as found:
            return await self._found(found.thread_id, ref, checked.chain, started)
        except RyeError as error:
            error.during(str(ref), chain=checked.chain.ids)
            raise
        return StartedThread.of(str(ref), run_id, process.pid, started, chain=checked.chain)

    async def _launch_remote(
        self, request: RunRequest, ctx: CallContext, started: float
    ) -> StartedThread:
        """Launch a process that follows a tool on a node, once the tool is verified here."""
        ref = request.ref
        chain = await self._executor.chain(ref, ctx)
        if ctx.execution is not None:
            ctx.execution.item = chain.head.item
        try:
            if request.limits.to_dict():
                chain.check_takes_limits(str(ref))
            run_id, process = await self._launch(request, ctx)
        except AlreadyStarted as found:
            return await self._found(found.thread_id, ref, chain, started)
        except RyeError as error:
            error.during(str(ref), chain=chain.ids)
            raise
        return StartedThread.of(str(ref), run_id, process.pid, started, chain=chain)

    async def _chain_now(self, ref: ItemRef, ctx: CallContext) -> ValidChain:
        """Return the tool's chain; an empty one where it can't be verified."""
        try:
            return await self._executor.chain(ref, ctx)
        except RyeError:
            return ValidChain(())

    async def _found(
        self, thread_id: str, ref: ItemRef, chain: ValidChain, started: float
    ) -> StartedThread:
        earlier = await EarlierStart.find(self._threads(), thread_id)
        return StartedThread.of(str(ref), thread_id, earlier.pid, started, earlier, chain)

    @property
    def can_rebuild_models(self) -> bool:
        """Whether another process can rebuild the host's models."""
        return self._settings.deps_factory is not None

    async def fork(self, request: RunRequest, ctx: CallContext) -> StartedThread:
        """Launch a directive's thread; see `__call__`."""
        started = time.perf_counter()
        earlier: EarlierStart | None = None
        try:
            run_id, process = await self._fork(request, ctx)
            pid = process.pid
        except AlreadyStarted as found:
            run_id = found.thread_id
            earlier = await EarlierStart.find(self._threads(), run_id)
            pid = earlier.pid
        return StartedThread.of(str(request.ref), run_id, pid, started, earlier)

    async def _fork(self, request: RunRequest, ctx: CallContext) -> tuple[str, ProcessId]:
        from ryecore.runs.bounds import refuse_unproved_parent  # noqa: PLC0415 - only threads

        refuse_unproved_parent(self._environ, ctx.budget_account)
        store = await run_in_thread(self._threads)
        await store.registry.check_start(request.start_key, ctx.budget_account)
        await run_in_thread(self._check_inputs, request, ctx)
        return await self._launch(request, ctx)

    def _check_inputs(self, request: RunRequest, ctx: CallContext) -> None:
        planner, log = self._planner(), Trace(ctx.event_sink)
        loaded = planner.load(request.ref, log)
        if ctx.execution is not None:
            ctx.execution.item = loaded.item
        planner.inputs(loaded, request.inputs, log)

    async def _launch(
        self, request: RunRequest, ctx: CallContext, deadline: float | None = None
    ) -> tuple[str, ProcessId]:
        """Register a run, and start its process."""
        store = await run_in_thread(self._threads)
        payload = await register_for_process(
            store, self._settings, self._environ, request, ctx, deadline
        )
        process = await run_to_end(partial(self._start, store, payload, ctx.execution))
        return payload.run_id, process

    async def _start(
        self, threads: "ThreadStore", payload: Payload, execution: "Execution | None"
    ) -> ProcessId:
        run_id, process = payload.run_id, None
        # A tool's parent comes only from the context.
        environ = {} if payload.token is None else parent_variable(payload.ctx)
        async with _ended_by_failure(threads, payload.run_id, payload.request):
            if not sys.executable:
                raise InputError(
                    "This Python doesn't know its own program, so no other process can be started.",
                    next_step="Set sys.executable, or leave async out.",
                )
            try:
                if execution is not None:
                    await execution.begins(run_id)
                await threads.prepare(run_id)
                log = threads.log_of(run_id)
                spec = ProcessSpec(
                    sys.executable,
                    ("-P", "-m", _RUNNER),  # a file in the working folder can't shadow a module
                    cwd=str(log.parent),
                    env={
                        **for_own_process(self._environ),
                        **environ,
                        **thread_variables(threads.project, run_id),
                    },
                    stdin=payload.to_bytes(),
                )
                await threads.synced()
                process = await run_in_thread(spawn_detached, spec, log)
                # From now on every reader notices if it died before it claimed the thread.
                await threads.registry.assign_process(run_id, process)
                await threads.synced()
                if execution is not None:
                    execution.moves()
            except BaseException:
                if process is not None:
                    with suppress(ProcessError):
                        kill_process(process)
                raise
            return process
        raise AssertionError("what is raised above is raised on")


def graph_request(plan: ExecutionPlan, request: RunRequest) -> RunRequest:
    """Return the request for the run of a graph, bound to the plan that was verified.

    The plan's standard input holds the graph's digest and its parameters.
    """
    from ryecore.runs.request import GraphOptions  # noqa: PLC0415 - only for graphs

    call = json.loads(plan.stdin)
    return evolve(request, inputs=call["parameters"], graph=GraphOptions(call["digest"]))


async def register_for_process(
    store: "ThreadStore",
    settings: Settings,
    environ: Mapping[str, str],
    request: RunRequest,
    ctx: CallContext,
    deadline: float | None = None,
) -> Payload:
    """Register a run for a process that is about to start, and return what it reads on its input.

    `deadline` is the monotonic time in seconds when the run must have ended; by default the
    caller's. A parent that only `environ` names is not proved, and is refused.
    """
    from ryecore.runs.bounds import (  # noqa: PLC0415 - only threads
        refuse_unproved_parent,
        spawn_limit,
    )
    from ryecore.runs.request import register_run  # noqa: PLC0415

    refuse_unproved_parent(environ, ctx.budget_account)
    if settings.must_audit and settings.deps_factory is None:
        raise missing_audit()
    is_graph = request.graph.digest is not None
    if is_graph:
        await store.check_objects()
    spawns = await spawn_limit(store, ctx.budget_account)
    start = request.start_key
    is_tool = request.ref.kind == "tool" and not is_graph
    run_id = str(uuid.uuid4()) if is_tool else ""

    def note_tried(tried_id: str, _: StateUnreachable) -> None:
        nonlocal run_id
        run_id = tried_id

    with held_cancellation() as held:
        try:
            if is_tool:
                await store.registry.register(
                    run_id,
                    str(request.ref),
                    ctx.budget_account,
                    start=start,
                    spawns=spawns,
                    labels=ctx.labels,
                )
            else:
                record = await register_run(
                    store.registry,
                    request,
                    ctx.budget_account,
                    spawns=spawns,
                    labels=ctx.labels,
                    on_unreachable=note_tried,
                )
                run_id = record.thread_id
        except StateUnreachable as problem:
            await run_to_end(partial(_end_if_registered, store, run_id, request, str(problem)))
            raise
    async with _ended_by_failure(store, run_id, request):
        held.deliver()
        await store.prepare(run_id)
        token = None if is_tool else await store.registry.mint_token(run_id)
        within = ctx if deadline is None else evolve(ctx, deadline=deadline)
        return Payload(settings, run_id, request, within, token)
    raise AssertionError("what is raised above is raised on")


@asynccontextmanager
async def _ended_by_failure(
    store: "ThreadStore", run_id: str, request: RunRequest
) -> AsyncGenerator[None, None]:
    """End a registered run if its process can't be started."""
    try:
        yield
    except BaseException as problem:
        result = _failure_of(run_id, request, str(problem))
        with suppress(StateError):  # it can't be written, or the process has ended the run
            await run_to_end(partial(store.settle, run_id, "error", result, 0))
        raise


async def _end_if_registered(
    store: "ThreadStore", run_id: str, request: RunRequest, why: str
) -> None:
    """End a run that this process has registered, although the answer was lost."""
    with suppress(StateError):  # it wasn't, or its row can't be read yet
        row = await store.registry.get_thread(run_id)
        if row.owner == current_process():  # else the id was taken
            await store.free_start_key(run_id)
            await store.settle(run_id, "error", _failure_of(run_id, request, why), 0)


def _failure_of(run_id: str, request: RunRequest, why: str) -> dict[str, object]:
    """Return the result of a run whose process wasn't started."""
    if request.graph.digest is None:
        return {"status": "error", "error": why, "item_id": str(request.ref)}
    from ryecore.graph.result import (  # noqa: PLC0415 - for graphs alone
        failure_document,
        failure_result,
    )

    return failure_result(str(request.ref), failure_document(run_id, why))


def parent_variable(ctx: CallContext) -> dict[str, str]:
    """Return the environment variable that names the parent of a child's process."""
    from ryecore.runs.bounds import PARENT_ID  # noqa: PLC0415 - only threads

    return {} if ctx.budget_account is None else {PARENT_ID: ctx.budget_account}
