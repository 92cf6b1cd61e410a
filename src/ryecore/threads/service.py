"""Start threads, take them up again, and let others look after them.

Source: docs/design/execute.md#fork; docs/design/threads.md#steps; decisions 45 to 48.
"""

import time
from collections.abc import Mapping

from attrs import evolve, frozen

from ryecore.errors import AlreadyStarted, ConfigError, RyeClosed, ThreadConflict
from ryecore.items.refs import ItemRef
from ryecore.lillux.locks import find_lock_holders
from ryecore.lillux.processes import current_process
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits
from ryecore.runs.ports import Shown
from ryecore.runs.tasks import Tasks
from ryecore.state.model import ThreadRecord
from ryecore.state.pruning import Retention
from ryecore.state.start_keys import EarlierStart
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript_check import verify_transcript
from ryecore.state.transcript_report import TranscriptReport
from ryecore.state.waiting import run_in_thread
from ryecore.threads.host import ThreadHost
from ryecore.threads.lifecycle.continuing import fork_of, resume_of
from ryecore.threads.lifecycle.steps import ThreadLifecycle
from ryecore.threads.orchestrator.tool import Orchestrator, orchestrator_tool
from ryecore.threads.planner.planning import read_overrides
from ryecore.threads.records.replay import ReplayReport, replay
from ryecore.threads.result import StartedThread, ThreadResult
from ryecore.threads.thread import Thread
from ryecore.threads.wish import Continuation, ThreadWish

__all__ = ["ThreadService"]


class ThreadService:
    """The threads that one open Rye runs.

    Args:
        host: What they have in common.
        tasks: Where threads run that nobody waits for.

    Attributes:
        orchestrator: Looks after threads on behalf of a thread, or of the host.
    """

    def __init__(self, host: ThreadHost, tasks: Tasks) -> None:
        self._host = host
        self._tasks = tasks
        self.orchestrator = Orchestrator(lambda: host.store, self)
        host.own_tool = orchestrator_tool(lambda: host.store, self)

    async def run(self, wish: ThreadWish, ctx: CallContext) -> ThreadResult:
        """Run a thread to its end, and every thread that it is handed off to.

        Returns:
            What came of the last one.

        Raises:
            RyeError: Nothing ran.
        """
        return await self._host.supervisor.during(self._tasks, lambda: self._run(wish, ctx))

    async def _run(self, wish: ThreadWish, ctx: CallContext) -> ThreadResult:
        life = ThreadLifecycle(self._host, wish, ctx)
        await life.begin()
        result = await _to_the_end(life)
        await self._host.prune()
        return result

    async def start(self, wish: ThreadWish, ctx: CallContext) -> Thread:
        """Start a thread, and return as soon as it runs.

        Raises:
            RyeError: Nothing runs.
        """
        if not self._tasks.are_possible:
            raise ConfigError(
                "A thread that goes on by itself needs a Rye that is entered.",
                next_step="Write `async with Rye.open(...) as rye:`.",
            )
        self._host.supervisor.start(self._tasks)
        life = ThreadLifecycle(self._host, wish, ctx)
        await life.begin()
        thread = Thread(self._host, life.thread_id, str(wish.ref), is_settled=True)
        self._tasks.start_soon(self._settled, life, thread)
        return thread

    async def launch(self, wish: ThreadWish, ctx: CallContext) -> StartedThread:
        """Start a thread as a task of this Rye; see `start`."""
        began = time.perf_counter()
        # Whoever listens does so for the length of this call.
        earlier: EarlierStart | None = None
        try:
            thread = await self.start(wish, evolve(ctx, event_sink=None))
        except AlreadyStarted as found:
            thread = await self.thread(found.thread_id)
            earlier = await run_in_thread(EarlierStart.find, self._host.store, thread.thread_id)
        return StartedThread(
            status="success",
            item_id=thread.item_id,
            data={"thread_id": thread.thread_id},
            error=None,
            duration_ms=(time.perf_counter() - began) * 1000,
            thread_id=thread.thread_id,
            pid=current_process().pid if earlier is None else earlier.pid,
            earlier=earlier,
        )

    async def thread(self, thread_id: str) -> Thread:
        """Return the handle of a thread that runs here, elsewhere, or has ended.

        Raises:
            ThreadNotFound: There is none.
            ThreadConflict: It is a tool's.
        """
        record = await run_in_thread(self._directives, thread_id)
        return Thread(self._host, record.thread_id, record.item_id)

    # Going on

    async def resume(
        self,
        thread_id: str,
        message: str,
        ctx: CallContext,
        limits: Limits | Mapping[str, float] | None = None,
        *,
        again: bool = False,
    ) -> ThreadResult:
        """Go on with a thread that has ended, in a new one that begins with a message."""
        return await self.run(await self.resumed(thread_id, message, limits, again=again), ctx)

    async def fork_at(
        self,
        thread_id: str,
        turn: int,
        message: str,
        ctx: CallContext,
        limits: Limits | Mapping[str, float] | None = None,
    ) -> ThreadResult:
        """Run a thread that begins where another one stood after a turn."""
        return await self.run(await self.forked(thread_id, turn, message, limits), ctx)

    async def resumed(
        self,
        thread_id: str,
        message: str,
        limits: Limits | Mapping[str, float] | None,
        *,
        again: bool = False,
    ) -> ThreadWish:
        """What a thread is wanted for that goes on with one that has ended.

        Raises:
            ThreadConflict: It still runs, or another thread goes on with it already.
            RyeError: What it left can't be read, or was altered.
        """

        def wish() -> ThreadWish:
            host = self._host
            record = self._directives(thread_id)
            ceiling = host.planner.loop_config().resume_ceiling_tokens
            continues = resume_of(
                host.store, record, host.key.public, message, ceiling, again=again
            )
            return self._continuing(record, continues, read_overrides(limits))

        return await run_in_thread(wish)

    async def check_resume(
        self, thread_id: str, limits: Limits | Mapping[str, float] | None, ctx: CallContext
    ) -> None:
        """Find out whether a thread can be resumed, and change nothing.

        Raises:
            RyeError: It can't; see `resumed`.
        """
        wish = await self.resumed(thread_id, "", limits)
        _ = self._host.deps  # it raises where there are no models
        await run_in_thread(ThreadLifecycle(self._host, wish, ctx).check)

    async def forked(
        self, thread_id: str, turn: int, message: str, limits: Limits | Mapping[str, float] | None
    ) -> ThreadWish:
        """What a thread is wanted for that begins where another one stood after a turn.

        Raises:
            RyeError: The turn isn't there, or what the thread left can't be read or was altered.

        Source: decision 47.
        """

        def wish() -> ThreadWish:
            record = self._directives(thread_id)
            continues = fork_of(self._host.store, record, self._host.key.public, turn, message)
            return self._continuing(record, continues, read_overrides(limits))

        return await run_in_thread(wish)

    def _directives(self, thread_id: str) -> ThreadRecord:
        """The row of a directive's thread.

        Raises:
            ThreadConflict: It is a tool's, so no model ever said anything in it.
        """
        record = self._transcribed(thread_id)
        if not _is_directives(record):
            raise ThreadConflict(
                f"The thread {thread_id} runs the graph {record.item_id}, which has no "
                "conversation.",
                next_step=f"See the run, and how to continue it: rye graph show {thread_id}",
                thread_id=thread_id,
                state=record.status,
            )
        return record

    def _transcribed(self, thread_id: str) -> ThreadRecord:
        """The row of a thread that has a transcript: a directive's, or a run of a graph.

        Raises:
            ThreadConflict: It is a tool's.
        """
        store = self._host.store
        record = store.look_closed(thread_id)
        if not _is_directives(record) and not (store.folder_of(thread_id) / TRANSCRIPT).exists():
            raise ThreadConflict(
                f"The thread {thread_id} runs {record.item_id}, which has no conversation and no "
                "transcript.",
                next_step=f"See what came of it: rye threads show {thread_id}",
                thread_id=thread_id,
                state=record.status,
            )
        return record

    def _continuing(
        self, record: ThreadRecord, continues: Continuation, overrides: Limits
    ) -> ThreadWish:
        """The same directive with the same inputs, going on from where the other thread stood."""
        return ThreadWish(
            ItemRef.parse(record.item_id, "directive"),
            continues.inputs,
            continues.model,
            overrides,
            continues=continues,
        )

    def retention(self) -> Retention | None:
        """How long ended threads are kept; None where no signed configuration says so.

        Raises:
            RyeError: The file can't be verified, read or used.
        """
        return self._host.planner.retention()

    async def _settled(self, life: ThreadLifecycle, thread: Thread) -> None:
        await _settled(life, thread)
        await self._host.prune()

    # Proof

    def verify(self, thread_id: str) -> TranscriptReport:
        """Prove the transcript of a thread, or of a graph's run, each step of which is a turn.

        Raises:
            ThreadConflict: It is a tool's, which has none.
        """
        record, host = self._transcribed(thread_id), self._host
        path = host.store.folder_of(thread_id) / TRANSCRIPT
        # An owner that was declared dead may be stopped, and still hold what nobody could close.
        is_closed = record.completed_at is not None and not find_lock_holders(path)
        return verify_transcript(
            path,
            thread_id,
            host.key.public,
            record.transcript_head,
            ended=record.ended and is_closed,
            unit="turn" if _is_directives(record) else "step",
        )

    def replay(self, thread_id: str) -> ReplayReport:
        """Decide again what was decided in a thread, and run nothing.

        Raises:
            ThreadConflict: It is no directive's.
            StateError: Its transcript can't be read, or was altered.
        """
        self._directives(thread_id)
        return replay(self._host.store, self._host.planner, self._host.key.public, thread_id)

    async def hand_off(self, thread_id: str, ctx: CallContext) -> Shown:
        """Have another thread go on with one, in whichever process it runs, at its next turn."""
        life = self._host.running.get(thread_id)
        if life is not None:
            life.want_handoff()
            return _HandedOff(thread_id)
        record = await run_in_thread(self._asked_to_hand_off, thread_id)
        if record.ended:
            raise ThreadConflict(
                f"The thread {thread_id} is {record.status} and can't be handed off.",
                next_step="Resume it instead, with a message.",
                thread_id=thread_id,
                state=record.status,
            )
        return _HandedOff(thread_id)

    def _asked_to_hand_off(self, thread_id: str) -> ThreadRecord:
        self._directives(thread_id)
        return self._host.store.hand_off(thread_id)


def _is_directives(record: ThreadRecord) -> bool:
    return record.item_id.startswith("directive:")


@frozen
class _HandedOff:
    thread_id: str

    def to_dict(self) -> Mapping[str, object]:
        return {"status": "success", "thread_id": self.thread_id, "state": "handing off"}


async def _to_the_end(life: ThreadLifecycle) -> ThreadResult:
    result = await life.finish()
    while life.continuation is not None:
        life = life.continuation
        result = await life.finish()
    return result


async def _settled(life: ThreadLifecycle, thread: Thread) -> None:
    """Run a started thread to its end. Whatever happens, who waits for it is told."""
    try:
        result = await _to_the_end(life)
    except Exception as error:
        thread.settle(None, error)
    except BaseException:
        closed = RyeClosed("The Rye was closed while the thread ran.", next_step="Resume it.")
        thread.settle(None, closed)
        raise
    else:
        thread.settle(result, None)
