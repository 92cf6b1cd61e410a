"""The service that starts, resumes and examines the threads of a Rye.

Source: docs/design/execute.md#fork; docs/design/threads.md#steps; decisions 45 to 48.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import anyio
from attrs import evolve

from ryecore.errors import AlreadyStarted, RyeError, ThreadConflict
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import current_process
from ryecore.policy import CallContext
from ryecore.policy.cancelling import bounded_by, run_to_end
from ryecore.policy.limits import Limits
from ryecore.runs.elsewhere import Continuing, refuse_elsewhere
from ryecore.runs.handle import progress_in, run_to_result, start_run, wait_for_earlier
from ryecore.runs.host import RunHost
from ryecore.runs.lifecycle import RunLifecycle
from ryecore.runs.ports import Shown, TargetKind
from ryecore.runs.request import RunRequest, ThreadOptions
from ryecore.runs.resume import Continuation
from ryecore.state.idempotency import EarlierStart
from ryecore.state.model import ThreadRecord
from ryecore.state.pruning import Retention
from ryecore.state.transcript_report import TranscriptReport
from ryecore.state.waiting import run_in_thread
from ryecore.threads.calls.palette import PaletteBuilder
from ryecore.threads.lifecycle import ThreadDeps, ThreadLifecycle
from ryecore.threads.orchestrator.tool import Orchestrator, orchestrator_tool
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.records.replay import ReplayReport, replay
from ryecore.threads.result import StartedThread, ThreadResult
from ryecore.threads.resume import fork_of, resume_of
from ryecore.threads.thread import Thread

__all__ = ["ThreadService"]


class Elsewhere(Protocol):
    """The other machines and processes that threads can run on."""

    def kind_of(self, target: str) -> TargetKind:
        """Return what a target is.

        Raises:
            RyeError: There is no such remote.
        """
        ...

    async def life(self, request: RunRequest, ctx: CallContext) -> RunLifecycle[Any, ThreadResult]:
        """Return the lifecycle of a thread on the node of the request's target."""
        ...

    async def enqueue(self, request: RunRequest, ctx: CallContext) -> str:
        """Put a thread into the queue of the request's target, and return its id."""
        ...


class ThreadService:
    """The service for the threads of one open Rye."""

    def __init__(
        self,
        host: RunHost,
        planner: DirectivePlanner,
        elsewhere: Elsewhere,
    ) -> None:
        self._host = host
        self._elsewhere = elsewhere
        self._planner = planner
        self.orchestrator = Orchestrator(lambda: host.store, self)
        own_tool = orchestrator_tool(lambda: host.store, self)
        self._deps = ThreadDeps(planner, PaletteBuilder(host.dispatcher), own_tool)

    async def _life(self, request: RunRequest, ctx: CallContext) -> RunLifecycle[Any, ThreadResult]:
        if request.target != "local":
            return await self._elsewhere.life(request, ctx)
        return ThreadLifecycle(self._host, self._deps, request, ctx)

    async def run(self, request: RunRequest, ctx: CallContext) -> ThreadResult:
        """Run a thread, and every thread that it is handed off to, to the end of the last one.

        Where the same idempotency key has started a thread before, this waits for that one; the
        wait can be cancelled or run out of time, a CallCancelled.
        """
        return await self._host.observed(self._run, request, ctx)

    async def _run(self, request: RunRequest, ctx: CallContext) -> ThreadResult:
        try:
            if self.is_queued(request):
                return await self._wait_for_worker(await self._start(request, ctx), ctx)
            return await run_to_result(self._host, await self._life(request, ctx))
        except AlreadyStarted as found:
            return await wait_for_earlier(await self.thread(found.thread_id), ctx)

    def is_running(self, thread_id: str) -> bool:
        """Return whether a task of this Rye runs a thread."""
        return thread_id in self._host.running

    def is_queued(self, request: RunRequest) -> bool:
        """Return whether a thread goes to workers that share the state: of a queue, or of Ray."""
        return self._elsewhere.kind_of(request.target) in ("queue", "ray")

    async def _wait_for_worker(self, thread: Thread, ctx: CallContext) -> ThreadResult:
        """Wait for a thread that a worker runs, which is asked to stop with its caller."""
        try:
            with bounded_by(ctx.cancellation):
                return await thread.result()
        except anyio.get_cancelled_exc_class():
            with suppress(RyeError):  # a failure here must not replace the cancellation
                await run_to_end(thread.cancel)
            raise
        await thread.cancel()
        return await thread.result()

    async def start(self, request: RunRequest, ctx: CallContext) -> Thread:
        """Start a thread, and return as soon as it runs, or find the one that its key started."""
        return await self._host.observed(self._start_or_find, request, ctx, "start")

    async def _start_or_find(self, request: RunRequest, ctx: CallContext) -> Thread:
        try:
            return await self._start(request, ctx)
        except AlreadyStarted as found:
            return await self.thread(found.thread_id)

    async def _start(self, request: RunRequest, ctx: CallContext) -> Thread:
        if self.is_queued(request):
            run_id = await self._elsewhere.enqueue(request, ctx)
            return Thread(self._host, run_id, str(request.ref))
        life, item_id = await self._life(request, ctx), str(request.ref)
        return await start_run(
            self._host, life, lambda begun: Thread(self._host, begun.run_id, item_id, begun)
        )

    async def launch(self, request: RunRequest, ctx: CallContext) -> StartedThread:
        """Start a thread as a task of this Rye, or in a queue; see `start`."""
        began = time.perf_counter()
        # The caller's event sink listens only for the length of this call.
        earlier: EarlierStart | None = None
        try:
            thread = await self._start(request, evolve(ctx, event_sink=None))
        except AlreadyStarted as found:
            thread = await self.thread(found.thread_id)
            earlier = await EarlierStart.find(self._host.store, thread.thread_id)
        pid = 0 if self.is_queued(request) else current_process().pid
        if earlier is not None:
            pid = earlier.pid
        return StartedThread.of(thread.item_id, thread.thread_id, pid, began, earlier)

    async def thread(self, thread_id: str) -> Thread:
        """Return the handle of a directive's thread, wherever it runs or ran."""
        record = await self._directives(thread_id)
        return Thread(self._host, record.thread_id, record.item_id)

    def progress_of(self, run_id: str) -> str:
        """Return how far the tool of a run of this process is; empty where it reports nothing."""
        return progress_in(self._host, run_id)

    # Resume

    async def resume(self, thread_id: str, message: str, ctx: CallContext) -> ThreadResult:
        """Resume a thread that has ended, with a message, and wait for its end."""
        return await self.run(await self.resume_request(thread_id, message, Limits()), ctx)

    async def take_over(self, thread_id: str, queue: str, ctx: CallContext) -> Thread:
        """Resume a thread of a queue whose worker died, as a task of this Rye.

        Of all workers that do this, exactly one succeeds.

        Raises:
            ThreadConflict: Another worker has resumed it.
            RyeError: It can't be resumed.
        """
        request = evolve(await self.resume_request(thread_id, "", Limits()), queue=queue)
        return await self._host.observed(self._start, request, ctx, "start")

    async def resume_request(
        self, thread_id: str, message: str, limits: Limits, *, again: bool = False
    ) -> RunRequest:
        """Return the request that resumes a thread that has ended."""
        record = await self._at_home(thread_id, "resumed")
        config = await run_in_thread(self._planner.loop_config)
        continues = await resume_of(
            self._host.store, record, message, config.resume_ceiling_tokens, again=again
        )
        return _continuing(record, continues, limits)

    async def fork_request(
        self, thread_id: str, turn: int, message: str, limits: Limits
    ) -> RunRequest:
        """Return the request that forks a thread after a turn.

        Source: decision 47.
        """
        record = await self._at_home(thread_id, "forked")
        continues = await fork_of(self._host.store, record, turn, message)
        return _continuing(record, continues, limits)

    async def check(self, request: RunRequest, ctx: CallContext) -> None:
        """Check whether a thread can begin. Nothing is changed."""
        _ = self._host.deps  # raises without models
        await run_in_thread(ThreadLifecycle(self._host, self._deps, request, ctx).check)

    async def _directives(self, thread_id: str) -> ThreadRecord:
        """Return the row of a directive's thread; refuse a tool's, which has no conversation."""
        record = await self._transcribed(thread_id)
        if not _is_directives(record):
            raise ThreadConflict(
                f"The thread {thread_id} runs the graph {record.item_id}, which has no "
                "conversation.",
                next_step=f"See the run, and how to continue it: rye graph show {thread_id}",
                thread_id=thread_id,
                state=record.status,
            )
        return record

    async def _at_home(self, thread_id: str, what: Continuing) -> ThreadRecord:
        """Return the row of a directive's thread of this machine; refuse a run of a node."""
        record = await self._host.store.look_closed(thread_id)
        place = record.place
        if place is None:
            return await self._directives(thread_id)
        if _is_directives(record):
            raise await refuse_elsewhere(self._host.store, record, place, what)
        raise ThreadConflict(
            f"{thread_id}, a run of {record.item_id} on the node {place.remote}, has no "
            "conversation.",
            next_step=f"See its result: rye threads show {thread_id}",
            thread_id=thread_id,
            state=record.status,
        )

    async def _transcribed(self, thread_id: str) -> ThreadRecord:
        """Return the row of a thread with a transcript: a directive's, or the run of a graph."""
        store = self._host.store
        record = await store.look_closed(thread_id)
        if not _is_directives(record) and not await store.records.exists(thread_id):
            raise ThreadConflict(
                f"The thread {thread_id} runs {record.item_id}, which has no conversation and no "
                "transcript.",
                next_step=f"See its result: rye threads show {thread_id}",
                thread_id=thread_id,
                state=record.status,
            )
        return record

    def retention(self) -> Retention | None:
        """Return the retention of ended threads; None where no signed configuration sets one."""
        return self._planner.retention()

    # Proof

    async def verify(self, thread_id: str) -> TranscriptReport:
        """Prove the transcript of a thread, or of a graph's run, each step of which is a turn."""
        record = await self._transcribed(thread_id)
        return await self._host.store.records.verify(
            thread_id,
            record.transcript_head,
            ended=record.ended and record.completed_at is not None,
            unit="turn" if _is_directives(record) else "step",
        )

    async def replay(self, thread_id: str) -> ReplayReport:
        """Repeat the decisions of a directive's thread, and run nothing."""
        record = await self._at_home(thread_id, "replayed")
        project = self._host.project_root.parent
        return await replay(self._host.store, self._planner, record, str(project))

    async def hand_off(self, thread_id: str, ctx: CallContext) -> Shown:
        """Ask a thread, in any process, to hand its work off at its next turn."""
        running = self._host.running.get(thread_id)
        if isinstance(running, ThreadLifecycle):
            running.want_handoff()
            return _HandedOff(thread_id)
        await self._at_home(thread_id, "handed off")
        record = await self._host.store.hand_off(thread_id)
        if record.ended:
            raise ThreadConflict(
                f"The thread {thread_id} is {record.status} and can't be handed off.",
                next_step="Resume it instead, with a message.",
                thread_id=thread_id,
                state=record.status,
            )
        return _HandedOff(thread_id)


def _continuing(record: ThreadRecord, continues: Continuation, limits: Limits) -> RunRequest:
    """Return the request that continues a thread: the same directive with the same inputs."""
    return RunRequest(
        ItemRef.parse(record.item_id, "directive"),
        continues.inputs,
        limits,
        continues.model,
        thread=ThreadOptions(continues=continues),
    )


def _is_directives(record: ThreadRecord) -> bool:
    return record.item_id.startswith("directive:")


@frozen
class _HandedOff:
    thread_id: str

    def to_dict(self) -> Mapping[str, object]:
        return {"status": "success", "thread_id": self.thread_id, "state": "handing off"}
