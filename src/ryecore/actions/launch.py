"""Launch a tool, or a directive's thread, in a process of its own, and return at once.

The thread is registered before anything starts. From then on whatever happens is told by the
registry: the process ends the thread itself, or is found dead.

Source: docs/design/execute.md#async; decisions 33 and 35 to 37.
"""

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ryecore.actions.payload import Fork, Payload
from ryecore.actions.settings import Settings
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.chain.model import ExecutionPlan, ExecutionResult, ValidChain
from ryecore.chain.trace import Trace
from ryecore.display.text import StyledText
from ryecore.errors import AlreadyStarted, InputError, ProcessError, RyeError, StateError
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import ProcessId, ProcessSpec, kill_process, spawn_detached
from ryecore.policy import CallContext
from ryecore.policy.context import thread_variables
from ryecore.policy.environment import for_own_process
from ryecore.state.start_keys import EarlierStart, IdempotencyKey, describe_start
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore
    from ryecore.threads.planner.planning import DirectivePlanner
    from ryecore.threads.result import StartedThread
    from ryecore.threads.wish import ThreadWish

__all__ = ["LaunchAction", "LaunchedThread"]

_RUNNER: Final = "ryecore.thread_worker"
_NOTHING: Final[Mapping[str, str]] = {}


@frozen(kw_only=True)
class LaunchedThread(ExecutionResult):
    """An execution that goes on in a process of its own.

    Attributes:
        thread_id: What `rye.threads` knows it by.
        pid: Its process id; 0 where its process has ended.
        earlier: Its state, where it was started before with the same idempotency key.
    """

    thread_id: str
    pid: int
    earlier: EarlierStart | None = None

    def to_dict(self) -> dict[str, object]:
        """The response object of an asynchronous call.

        Source: docs/design/execute.md#async; decision 33.
        """
        return {
            "status": "success",
            "async": True,
            "thread_id": self.thread_id,
            "type": "tool",
            "item_id": self.item_id,
            "execution_mode": "inline",
            "state": "running",
            "pid": self.pid,
            "chain": list(self.chain.ids),
            "metadata": {"duration_ms": round(self.duration_ms), **self.metadata},
            **(self.earlier.to_dict() if self.earlier is not None else {}),
        }

    def render(self) -> StyledText:
        """The thread for a terminal or a notebook."""
        text = StyledText()
        text.line(
            ("▸ ", "id"),
            (self.item_id, "strong"),
            (f"  {describe_start('launched', self.earlier)}", "id"),
            (f"  {round(self.duration_ms)} ms", "dim"),
        )
        process = f"  process {self.pid}" if self.pid else ""
        text.line(("  thread  ", "dim"), (self.thread_id, "id"), (process, "dim"))
        text.line(("  next    ", "dim"), f"rye threads wait {self.thread_id}")
        return text

    def __repr__(self) -> str:
        return f"LaunchedThread({self.thread_id!r}, {self.item_id!r}, pid {self.pid})"


class LaunchAction:
    """Launches tools.

    Args:
        executor: Checks a call before it is launched.
        threads: Opens the project's threads.
        settings: How the process opens the same Rye.
        environ: The environment of the process, which is ryecore's own and no tool's.
        planner: Reads directives.
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

    async def __call__(
        self,
        ref: ItemRef,
        parameters: Mapping[str, Any],
        timeout_s: float | None,
        ctx: CallContext,
        start_key: IdempotencyKey | None = None,
    ) -> LaunchedThread:
        """Launch a tool.

        Args:
            ref: The tool.
            parameters: What it is given.
            timeout_s: The caller's timeout in seconds.
            ctx: On whose behalf. Its cancellation and its event sink end with this call.
            start_key: The idempotency key that it is started with.

        Returns:
            The thread that the tool runs in.

        Raises:
            RyeError: Nothing was started: the tool can't be verified, the parameters don't fit it,
                or its thread can't be registered.
        """
        started = time.perf_counter()
        if start_key is not None:  # first: its run is found whatever has become of the tool's file
            try:
                check = self._threads().registry.check_start
                await run_in_thread(check, start_key, ctx.budget_account)
            except AlreadyStarted as found:
                chain = await self._chain_now(ref, ctx)
                return await self._found(found.thread_id, ref, chain, started)
            except RyeError as error:
                error.during(str(ref))
                raise
        # What is wrong with the call is said here and now, not in a thread's result.
        checked = await self._executor.execute(
            ref, parameters, ctx, timeout_s=timeout_s, dry_run=True
        )
        try:
            if checked.plan is not None and checked.chain.is_own_process:
                launch = partial(self._launch_graph, checked.plan, ref, ctx, start_key)
            else:
                launch = partial(self._launch_tool, ref, parameters, timeout_s, ctx, start_key)
            thread_id, process = await run_in_thread(launch)
        except AlreadyStarted as found:
            return await self._found(found.thread_id, ref, checked.chain, started)
        except RyeError as error:
            error.during(str(ref), chain=checked.chain.ids)
            raise
        return _launched(ref, thread_id, process.pid, checked.chain, started)

    async def _chain_now(self, ref: ItemRef, ctx: CallContext) -> ValidChain:
        """The tool's chain; an empty one where it doesn't hold any more."""
        try:
            return await self._executor.chain(ref, ctx)
        except RyeError:
            return ValidChain(())

    async def _found(
        self, thread_id: str, ref: ItemRef, chain: ValidChain, started: float
    ) -> LaunchedThread:
        earlier = await run_in_thread(EarlierStart.find, self._threads(), thread_id)
        return _launched(ref, thread_id, earlier.pid, chain, started, earlier)

    @property
    def can_rebuild_models(self) -> bool:
        """Whether another process can be given the models that threads ask."""
        return self._settings.deps_factory is not None

    async def fork(self, wish: "ThreadWish", ctx: CallContext) -> "StartedThread":
        """Launch a directive's thread.

        Args:
            wish: What it is wanted for.
            ctx: On whose behalf. Its cancellation and its event sink end with this call.

        Returns:
            The thread.

        Raises:
            RyeError: Nothing was started: the directive can't be verified, the inputs don't fit
                it, or its thread can't be registered.
        """
        from ryecore.threads.result import StartedThread  # noqa: PLC0415 - for threads alone

        started = time.perf_counter()
        earlier: EarlierStart | None = None
        try:
            thread_id, process = await run_in_thread(self._fork, wish, ctx)
            pid = process.pid
        except AlreadyStarted as found:
            thread_id = found.thread_id
            earlier = await run_in_thread(EarlierStart.find, self._threads(), thread_id)
            pid = earlier.pid
        return StartedThread(
            status="success",
            item_id=str(wish.ref),
            data={"thread_id": thread_id},
            error=None,
            duration_ms=(time.perf_counter() - started) * 1000,
            thread_id=thread_id,
            pid=pid,
            earlier=earlier,
        )

    def _fork(self, wish: "ThreadWish", ctx: CallContext) -> tuple[str, ProcessId]:
        from ryecore.runs.bounds import (  # noqa: PLC0415 - threads alone
            refuse_unproved_parent,
            spawn_limit,
        )
        from ryecore.runs.naming import PARENT_ID, register_thread  # noqa: PLC0415

        threads, parent_id, key = self._threads(), ctx.budget_account, wish.start_key
        registry = threads.registry
        refuse_unproved_parent(self._environ, parent_id)
        registry.check_start(key, parent_id)
        planner, log = self._planner(), Trace(ctx.event_sink)
        planner.inputs(planner.load(wish.ref, log), wish.inputs, log)
        spawns = spawn_limit(threads, self._settings.user_root, parent_id)
        thread_id = register_thread(registry, wish.ref, parent_id, start=key, spawns=spawns)
        with self._ended_by_failure(thread_id, str(wish.ref)):
            token = registry.mint_token(thread_id)
        payload = Payload.within(
            ctx,
            settings=self._settings,
            thread_id=thread_id,
            item_id=str(wish.ref),
            parameters=wish.inputs,
            fork=Fork(wish.model, wish.overrides.to_dict(), wish.muted_hooks, token),
        )
        parent = {} if parent_id is None else {PARENT_ID: parent_id}
        return thread_id, self._start(payload, parent)

    def _launch_tool(
        self,
        ref: ItemRef,
        parameters: Mapping[str, Any],
        timeout_s: float | None,
        ctx: CallContext,
        start_key: IdempotencyKey | None,
    ) -> tuple[str, ProcessId]:
        from ryecore.runs.bounds import (  # noqa: PLC0415 - threads alone
            refuse_unproved_parent,
            spawn_limit,
        )

        refuse_unproved_parent(self._environ, ctx.budget_account)
        threads, thread_id = self._threads(), str(uuid.uuid4())
        payload = Payload.within(
            ctx,
            settings=self._settings,
            thread_id=thread_id,
            item_id=str(ref),
            parameters=parameters,
            timeout_s=timeout_s,
        )
        spawns = spawn_limit(threads, self._settings.user_root, ctx.budget_account)
        threads.registry.register(
            thread_id, str(ref), ctx.budget_account, start=start_key, spawns=spawns
        )
        with self._ended_by_failure(thread_id, str(ref)):
            threads.make_folder(thread_id)
        return thread_id, self._start(payload)

    def _launch_graph(
        self, plan: ExecutionPlan, ref: ItemRef, ctx: CallContext, start_key: IdempotencyKey | None
    ) -> tuple[str, ProcessId]:
        """Start the run itself, which is a thread already: there is none around it."""
        from ryecore.actions.graph_process import parent_of, run_payload  # noqa: PLC0415

        payload = run_payload(
            self._threads(), self._settings, self._environ, plan, ref, ctx, start_key
        )
        return payload.thread_id, self._start(payload, parent_of(ctx))

    @contextmanager
    def _ended_by_failure(self, thread_id: str, item_id: str) -> Iterator[None]:
        """End a thread that nobody has claimed yet, where it can't be started."""
        try:
            yield
        except BaseException as problem:
            result = {"status": "error", "error": str(problem), "item_id": item_id}
            with suppress(StateError):  # it can't be written, or the process has ended the thread
                self._threads().settle(thread_id, "error", result, 0)
            raise

    def _start(self, payload: Payload, environ: Mapping[str, str] = _NOTHING) -> ProcessId:
        threads, thread_id, process = self._threads(), payload.thread_id, None
        with self._ended_by_failure(thread_id, payload.item_id):
            if not sys.executable:
                raise InputError(
                    "This Python doesn't know its own program, so no other process can be started.",
                    next_step="Set sys.executable, or leave async out.",
                )
            try:
                folder = threads.make_folder(thread_id)
                process = spawn_detached(
                    # -P: what lies in the working folder can't stand in for a module.
                    ProcessSpec(
                        sys.executable,
                        ("-P", "-m", _RUNNER),
                        cwd=str(folder),
                        env={
                            **for_own_process(self._environ),
                            **environ,
                            **thread_variables(threads.project, thread_id),
                        },
                        stdin=payload.to_bytes(),
                    ),
                    threads.log_of(thread_id),
                )
                # From now on whoever looks notices that it has died before it claimed the thread.
                threads.registry.update_pid(thread_id, process)
            except BaseException:
                if process is not None:
                    with suppress(ProcessError):
                        kill_process(process)
                raise
            return process
        raise AssertionError("what is raised above is raised on")


def _launched(
    ref: ItemRef,
    thread_id: str,
    pid: int,
    chain: ValidChain,
    started: float,
    earlier: EarlierStart | None = None,
) -> LaunchedThread:
    return LaunchedThread(
        status="success",
        item_id=str(ref),
        data={"thread_id": thread_id},
        error=None,
        chain=chain,
        duration_ms=(time.perf_counter() - started) * 1000,
        thread_id=thread_id,
        pid=pid,
        earlier=earlier,
    )
