"""The handle of a run: its state, its cost and its result, wherever it runs."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

import anyio

from ryecore.chain.model import ExecutionResult
from ryecore.errors import BudgetNotRegistered, CallCancelled, ConfigError, RyeClosed
from ryecore.policy import CallContext
from ryecore.policy.budget import NOTHING, Amount
from ryecore.policy.cancelling import bounded_by
from ryecore.runs.host import RunHost
from ryecore.runs.lifecycle import RunLifecycle
from ryecore.runs.request import check_grace
from ryecore.state.events import RunEvent
from ryecore.state.model import Status, ThreadRecord
from ryecore.state.queue_waits import wait_for_continuation, wait_for_last

__all__ = [
    "RunHandle",
    "progress_in",
    "run_to_result",
    "start_run",
    "wait_for_earlier",
    "watched_result",
]

ResultT = TypeVar("ResultT", bound=ExecutionResult)
HandleT = TypeVar("HandleT", bound="RunHandle[Any]")

_LAST_LOOK_S: Final = 2.0
"""How long a view of a run may take to show its end."""


class RunHandle(ABC, Generic[ResultT]):
    """The handle of a run, which needs no listener.

    Where this handle didn't start the run, the registry is read instead of its `life`.
    """

    def __init__(
        self,
        host: RunHost,
        run_id: str,
        item_id: str,
        life: RunLifecycle[Any, ResultT] | None = None,
    ) -> None:
        self._host = host
        self._run_id = run_id
        self._life = life
        self._ended = anyio.Event()
        self._result: ResultT | None = None
        self._error: Exception | None = None
        self.item_id = item_id

    async def record(self) -> ThreadRecord:
        """Return its row in the registry, as it is now."""
        return await self._host.store.look(self._run_id)

    async def status(self) -> Status:
        """Return its status: created, running, completed, error, cancelled, continued or killed."""
        return (await self.record()).status

    async def cost(self) -> Amount:
        """Return the money and tokens that it and its children used, and its continuations."""
        cost, run_id = NOTHING, self._run_id
        while run_id:
            cost += await self._spent(run_id)
            run_id = (await self._host.registry.get_thread(run_id)).continuation_thread_id or ""
        return cost

    async def children(self) -> tuple[ThreadRecord, ...]:
        """Return the runs that it has started, oldest first."""
        return await self._host.registry.list_children(self._run_id)

    async def continuation(self) -> str | None:
        """Return the id of the run that continues this one, the latest; None where none does.

        Where the worker of a queue's run has died, waits until another worker has resumed it.
        """
        record = await self.record()
        if record.awaits_worker:
            record = await wait_for_continuation(self._host.store, self._run_id)
        if record.continuation_thread_id is not None:
            return record.continuation_thread_id
        following = await self._host.registry.list_following(self._run_id)
        resumed = [one.thread_id for one in following if one.chain_root_id is not None]
        return resumed[-1] if resumed else None

    async def result(self) -> ResultT:
        """Wait until the run, and every run that it was handed off to, has ended.

        Returns:
            The result of the last of them.

        Raises:
            RyeClosed: The Rye was closed before that.
            RyeError: It ended, but its end could not be written.
        """
        if self._life is None:
            return await self._stored_result()
        await self._ended.wait()
        if self._result is None:
            raise self._error or RuntimeError("The run ended without a result.")
        return self._result

    async def events(
        self, *, from_start: bool = True, follow: bool = True
    ) -> AsyncGenerator[RunEvent, None]:
        """Stream the events of the run: its log so far, then live events until its end.

        Args:
            from_start: Whether to begin with the past events.
            follow: Whether to continue until the run has ended.

        Yields:
            The records of its log. Live text comes as it is streamed, past text of a thread in
            larger pieces, past text of a graph's agents not at all.
        """
        life = self._life or self._host.running.get(self._run_id)
        recorder = life.recorder if isinstance(life, RunLifecycle) else None
        if recorder is not None:
            async with aclosing(recorder.events(from_start=from_start, follow=follow)) as events:
                async for event in events:
                    yield event
            return
        followed = self._host.store.records.follow(
            self._run_id, self._has_ended, from_start=from_start, follow=follow
        )
        async with aclosing(followed) as records:
            async for record in records:
                yield RunEvent.of(record)

    async def _has_ended(self) -> bool:
        return (await self.record()).ended

    async def cancel(self) -> None:
        """Ask the run, its continuations, and their children to stop. Doesn't wait for their end.

        Raises:
            StateError: The request can't be written for other processes to read.
        """
        run_id: str | None = self._run_id
        while run_id is not None:
            running = self._host.running.get(run_id)
            if running is not None:
                running.cancellation.cancel()
            run_id = (await self._host.store.cancel(run_id)).continuation_thread_id
        await self._host.store.synced()

    async def kill(self, *, grace_s: float = 3.0) -> None:
        """Kill the run, its continuations, and their children, with all their processes.

        Returns once the processes have ended. A run of this process is asked to stop; after the
        grace its tools are killed, but not this process.

        Args:
            grace_s: How long the processes may take to end by themselves, in seconds.

        Raises:
            InputError: `grace_s` isn't a number from 0.
            StateError: A process can't be ended from here.
        """
        await self._host.store.kill(self._run_id, check_grace(grace_s))
        await self._host.store.synced()

    async def settle(self) -> None:
        """Run to the end as a task, and wake whoever waits for the result, also after a failure."""
        if self._life is None:
            return
        try:
            execution, run = self._life.execution, self._life.run_chain
            self._result = await (run() if execution is None else execution.run_moved(run))
        except Exception as error:
            self._error = error
        except BaseException:  # a waiter in another task isn't cancelled with it
            self._error = RyeClosed(
                f"The Rye was closed while {self._run_id} ran.",
                next_step=f"Resume it: {self._resume_command}",
            )
            raise
        finally:
            self._ended.set()
        await self._host.prune()

    @property
    @abstractmethod
    def _resume_command(self) -> str:
        """Return the command that resumes the run."""

    @abstractmethod
    async def _read_result(self, record: ThreadRecord, total: Amount) -> ResultT:
        """Read the stored result of a run that has ended."""

    async def _stored_result(self) -> ResultT:
        """Wait for the end of a run that was started elsewhere, and read its result."""
        host = self._host
        record = await wait_for_last(host.store, self._run_id, follow=host.follow_one)
        return await self._read_result(record, await self._spent(record.thread_id))

    async def _spent(self, run_id: str) -> Amount:
        try:
            return (await self._host.ledger.tree(run_id)).spent
        except BudgetNotRegistered:  # it ended before it had an account
            return NOTHING

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._run_id!r})"


def progress_in(host: RunHost, run_id: str) -> str:
    """Return how far the tool of a run of this process is; empty where it reports nothing."""
    life = host.running.get(run_id)
    recorder = life.recorder if isinstance(life, RunLifecycle) else None
    return "" if recorder is None else recorder.progress


async def start_run(
    host: RunHost,
    life: RunLifecycle[Any, ResultT],
    handle: Callable[[RunLifecycle[Any, ResultT]], HandleT],
) -> HandleT:
    """Start a run as a task of the Rye."""
    if not host.tasks.are_possible:
        raise ConfigError(
            "A run in the background needs a Rye that is entered.",
            next_step="Write `async with Rye.open(...) as rye:`.",
        )
    host.supervisor.start(host.tasks)
    await life.begin(is_shown=True)
    started = handle(life)
    if life.execution is not None:
        life.execution.moves()
    host.tasks.start_soon(started.settle)
    return started


async def run_to_result(
    host: RunHost,
    life: RunLifecycle[Any, ResultT],
    watch: Callable[[], Awaitable[None]] | None = None,
) -> ResultT:
    """Run to the end in the caller's task, with every run that this one is handed off to.

    A caller that is cancelled cancels the run, and waits until its end is written. So this isn't
    `start_run` and a wait: a task of the Rye would outlive its caller, needs a Rye that is entered,
    and would break the Rye where a host's callback raises what no task may raise. `watch` looks on
    from the beginning of the run until its log is closed.
    """

    async def run() -> ResultT:
        await life.begin()
        result = await (
            life.run_chain() if watch is None else watched_result(life.run_chain, watch)
        )
        await host.prune()
        return result

    return await host.supervisor.during(host.tasks, run)


async def watched_result(
    wait: Callable[[], Awaitable[ResultT]], watch: Callable[[], Awaitable[None]]
) -> ResultT:
    """Wait for a run's result, while a view of it runs, which may still show its end."""
    failed: Exception | None = None
    seen = anyio.Event()

    async def look() -> None:
        try:
            await watch()
        finally:
            seen.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        try:
            result = await wait()
            with anyio.move_on_after(_LAST_LOOK_S):
                await seen.wait()
            return result
        except Exception as error:  # which the group would wrap
            failed = error
        finally:
            tasks.cancel_scope.cancel()
    raise failed or AssertionError("the task group is left by the return above")


async def wait_for_earlier(earlier: RunHandle[ResultT], ctx: CallContext) -> ResultT:
    """Wait for the result of a run that was started before, until the caller is cancelled.

    A CallCancelled is raised then, and where the caller's time is up; the run continues.
    """
    with bounded_by(ctx.cancellation, deadline=ctx.deadline):
        return await earlier.result()
    raise CallCancelled(
        "The wait for a run that was started before was cancelled, or out of time.",
        next_step="Call it again with the same idempotency key: the run continues meanwhile.",
    )
