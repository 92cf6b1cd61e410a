"""The runs of a queue as one of its workers carries them out: begun, taken over, or left alone.

The registry says who runs what. However often a run is taken from the queue, and by however many
workers, one of them begins it, and one resumes it after that one's death.

Source: docs/design/queues.md; ADR 041.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from ryecore.actions.targets.queue_tools import QueueTools, effect_unknown, kill_call
from ryecore.actions.targets.run_log import RunLog
from ryecore.errors import ProcessError, RyeError, StateError, StateUnreachable, ThreadConflict
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import current_process, kill_processes
from ryecore.policy import CallContext
from ryecore.policy.context import THREAD_MARK, thread_mark
from ryecore.remote.protocol.error_documents import write_error
from ryecore.runs.handle import RunHandle
from ryecore.runs.queued_run import QueuedRun, TakenRun
from ryecore.runs.request import Claimed, Registered, RunRequest
from ryecore.state.model import ThreadRecord
from ryecore.state.owners import lacks_worker
from ryecore.state.queue_waits import wait_for_worker
from ryecore.state.run_queue import QueuedRequest, RunQueue
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread
from ryecore.threads.service import ThreadService

if TYPE_CHECKING:
    from ryecore.graph.run import GraphService

__all__ = ["QueueRuns", "queue_of"]

MAX_TAKEOVERS: Final = 5
"""How often a run may be taken over: one that ends each of its workers must end itself."""


class QueueRuns:
    """Carries out runs of queues in this process.

    Args:
        store: Returns the threads.
        threads: Returns the service that runs directives' threads.
        graphs: Returns the service that runs graphs.
        tools: Runs the tools, which only nodes put into queues; one may turn out to be a graph.
    """

    def __init__(
        self,
        store: Callable[[], ThreadStore],
        threads: Callable[[], ThreadService],
        graphs: "Callable[[], GraphService]",
        tools: QueueTools,
    ) -> None:
        self._open = store
        self._is_open = False
        self._threads = threads
        self._graphs = graphs
        self._tools = tools

    async def _store(self) -> ThreadStore:
        """Return the threads; the first time waits for the disk, off the event loop."""
        if self._is_open:
            return self._open()
        store = await run_in_thread(self._open)
        self._is_open = True
        return store

    async def carry_out(self, run_id: str, taken: TakenRun | None = None) -> None:
        """Bring a run to its end: begin it, resume it where its worker is dead, else wait for it.

        Args:
            run_id: The run, or the first one of its chain.
            taken: The same run, where it was read already.

        Raises:
            StateError: The registry can't be read or written.
        """
        store = await self._store()
        if await self._begin(store, run_id, taken):
            return
        while True:
            record = await store.look(await store.registry.last_of(run_id))
            if record.status == "created" and record.continuation_of is None:
                await self._begin(store, record.thread_id)
            elif record.status == "continued":
                await self._resume(store, record)
            elif record.ended:
                return
            elif lacks_worker(record) or self._is_left(record):
                await self._end_dead(store, record)
            else:
                await wait_for_worker(store, record.thread_id)

    async def fail(self, run_id: str, error: RyeError) -> None:
        """End a run that this process can't carry out, unless another worker runs it.

        Raises:
            StateError: The registry can't be read or written.
        """
        store = await self._store()
        record = await store.look(await store.registry.last_of(run_id))
        result = write_error(error.during(record.item_id))
        if record.status == "created" and record.continuation_of is None:
            with suppress(ThreadConflict):  # stopped meanwhile, or begun by another worker
                await store.settle(record.thread_id, "error", result, record.fence)
                await queue_of(store.queue).put_outcome(run_id, "")
            return
        if lacks_worker(record) or self._is_left(record):
            await self._end_dead(store, record)
        await self._give_up(store, run_id, record.thread_id, result)

    async def _give_up(
        self, store: ThreadStore, run_id: str, last_id: str, result: Mapping[str, object]
    ) -> None:
        """End a run as an error, if its chain was left and can't be resumed.

        Of one that has ended, no worker tells the outcome any more.
        """
        queue = queue_of(store.queue)
        await queue.give_up(last_id, result)
        record = await store.registry.get_thread(last_id)
        if record.ended and not record.awaits_worker:
            await queue.put_outcome(run_id, "")
        store.announce(last_id)

    def _is_left(self, record: ThreadRecord) -> bool:
        """Return whether this process has left a run of its own, as the state was away."""
        is_own = record.status == "running" and record.owner == current_process()
        run_id = record.thread_id
        is_running = self._threads().is_running(run_id) or self._tools.is_running(run_id)
        return is_own and not is_running

    async def _begin(self, store: ThreadStore, run_id: str, taken: TakenRun | None = None) -> bool:
        """Claim a run, if nobody has begun it, and run it; return whether it has ended."""
        taken = taken or await TakenRun.find(queue_of(store.queue), run_id)
        if taken is None:
            raise StateError(
                f"{run_id} is in a queue, and its request is missing.",
                next_step=f"Stop it, and start it anew: rye threads cancel {run_id}",
                thread_id=run_id,
            )
        if taken.record.status != "created":
            return False  # stopped before, or begun by another worker
        request = evolve(taken.queued.request, registered=Registered(run_id, taken.record))
        ctx, log = _context(taken.queued, taken.kept), RunLog.of_request(run_id, request)
        try:
            if request.ref.kind == "directive":
                ended: str = (await self._threads().run(request, ctx)).ended
            elif request.graph.digest is not None or await self._tools.is_graph(request.ref, ctx):
                ended = (await self._graphs().run(request, _timed(ctx, request))).ended
            else:
                claimed = Claimed(run_id, fence=await store.registry.claim(run_id))
                store.announce(run_id)
                ended = await self._tools.run(store, claimed, request, ctx)
        except ThreadConflict:
            log.leave()
            return False
        except RyeError as error:
            log.end(error)
            return False  # its row says so, unless that couldn't be written
        log.end(ended)
        return True

    async def _end_dead(self, store: ThreadStore, record: ThreadRecord) -> None:
        """End a run whose worker is dead, so that it can be resumed, with what it had started."""
        run_id, queue = record.thread_id, queue_of(store.queue)
        ref = ItemRef.parse(record.item_id, "tool")
        if ref.kind == "tool" and not await self._tools.is_graph(ref, CallContext()):
            if await queue.end_dead(record):
                kept = await queue.request_of(run_id)
                if kept is not None:
                    left = QueuedRun.from_text(kept.body)
                    await kill_call(left.ctx.call_id, ref, left.request.inputs)
                await queue.give_up(run_id, effect_unknown(record.item_id))
        elif await store.records.exists(run_id):
            if await queue.end_dead(record):
                below = await store.registry.list_tree(run_id)
                marks = [(THREAD_MARK, thread_mark(store.project, one.thread_id)) for one in below]
                with suppress(ProcessError):  # what can't be ended is as a local kill leaves it
                    await run_in_thread(partial(kill_processes, (), 0.0, marks=marks))
        else:
            await queue.begin_anew(record)
        store.announce(run_id)

    async def _resume(self, store: ThreadStore, record: ThreadRecord) -> None:
        """Resume a run whose worker is dead, unless another worker does, and wait for its end."""
        run_id, queue = record.thread_id, queue_of(store.queue)
        kept = await queue.request_of(run_id)
        try:
            if kept is None or await queue.count_takeover(run_id) > MAX_TAKEOVERS:
                kind = "threads" if record.item_id.startswith("directive:") else "graph"
                raise StateError(
                    f"{run_id} was taken over {MAX_TAKEOVERS} times, and each worker died.",
                    next_step=f"See what it does, and resume it: rye {kind} resume {run_id}",
                    thread_id=run_id,
                )
            run = await self._take_over(record, kept)
            resumed = (await run.record()).thread_id
            log = RunLog.of_resumed(resumed, record)
            await store.registry.link_continuation(run_id, resumed)
            store.announce(run_id)
            before = await store.registry.get_thread(run_id)
            if before.cancel_requested or before.kill_requested:  # while nobody ran it
                await run.cancel()
        except ThreadConflict:
            await self._follow(store, run_id)
        except StateUnreachable:
            raise  # the run can be resumed once the state can be reached
        except RyeError as error:
            result = write_error(error.during(record.item_id))
            if error.facts.get("effect_unknown") is True:  # of a graph: as after any death
                result["died"] = True
            await queue.give_up(run_id, result)
            store.announce(run_id)
        else:
            try:
                log.end((await run.result()).ended)
            except RyeError as error:  # its row says so
                log.end(error)

    async def _take_over(self, record: ThreadRecord, kept: QueuedRequest) -> RunHandle[Any]:
        queued, run_id = QueuedRun.from_text(kept.body), record.thread_id
        ctx, request, queue = _context(queued, kept), queued.request, record.queue or ""
        if request.ref.kind == "directive":
            return await self._threads().take_over(run_id, queue, ctx)
        return await self._graphs().take_over(run_id, request.ref, queue, _timed(ctx, request))

    async def _follow(self, store: ThreadStore, run_id: str) -> None:
        """Wait for the run that resumes another one, by another worker."""
        following = await store.registry.list_following(run_id)
        resumed = [one for one in following if one.chain_root_id is not None]
        if not resumed:
            return
        record = resumed[-1]
        if record.status != "created":  # its worker may have died before it linked both
            await store.registry.link_continuation(run_id, record.thread_id)
            store.announce(run_id)
        await wait_for_worker(store, record.thread_id)


def queue_of(queue: RunQueue | None) -> RunQueue:
    """Return the queues of a state, which must be on a server."""
    if queue is None:
        raise StateError(
            "The state is in the project's folder, which has no queues.",
            next_step="Name a state that machines share: RYE_STATE, or state= of Rye.open.",
        )
    return queue


def _context(queued: QueuedRun, kept: QueuedRequest) -> CallContext:
    """Return the caller of a run, with its deadline by this process's clock."""
    if kept.deadline is None:
        return queued.ctx
    return evolve(queued.ctx, deadline=time.monotonic() + kept.deadline - time.time())


def _timed(ctx: CallContext, request: RunRequest) -> CallContext:
    """Return the caller of a graph's run, whose time counts from here, on each of its workers."""
    if request.timeout_s is None:
        return ctx
    until = time.monotonic() + request.timeout_s
    return evolve(ctx, deadline=until if ctx.deadline is None else min(ctx.deadline, until))
