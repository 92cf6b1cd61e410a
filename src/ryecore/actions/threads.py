"""The threads of a project, for the person or the application that it belongs to."""

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from ryecore.actions.reports import ThreadReport, check_page, read_log
from ryecore.errors import InputError
from ryecore.policy import CallContext
from ryecore.runs.request import RunRequest, parse_limits
from ryecore.runs.tasks import Running
from ryecore.state.model import ThreadRecord, ThreadRecords, thread_not_found
from ryecore.state.waiting import run_blocking, run_in_thread

if TYPE_CHECKING:
    from ryecore.actions.pruning import OnProgress, PruneReport
    from ryecore.policy.budget import Account, Charge, TreeSum
    from ryecore.policy.limits import Limits
    from ryecore.state.ledger import BudgetLedger
    from ryecore.state.store import ThreadStore
    from ryecore.state.transcript_report import TranscriptReport
    from ryecore.threads.records.replay import ReplayReport
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.service import ThreadService
    from ryecore.threads.thread import Thread
    from ryecore.threads.tree import TreeNode

__all__ = ["ThreadReport", "Threads"]

T = TypeVar("T")
Values = TypeVarTuple("Values")


class Threads:
    """The threads of one project: `rye.threads`.

    An id may be cut short wherever what is left names one thread alone.

    Args:
        store: Opens the project's threads; None where there are none yet and none is asked for.
        running: The calls of the Rye, which end when it is closed.
        service: Runs the threads of directives.
        prune: Prunes what signed configuration doesn't keep, where that is due.
    """

    def __init__(
        self,
        store: "Callable[[], ThreadStore | None]",
        running: Running,
        service: "Callable[[], ThreadService]",
        prune: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._running = running
        self._service = service
        self._prune = prune

    async def account(self, thread_id: str) -> "Account":
        """Return what a thread may spend, holds and has spent, in money and in tokens.

        Raises:
            ThreadNotFound: There is no such thread.
            BudgetNotRegistered: It has no account, as a tool's thread.
        """
        return await self._read_ledger(thread_id, lambda ledger, found: ledger.account(found))

    async def charges(self, thread_id: str) -> "tuple[Charge, ...]":
        """List what each request of a thread to a model held and has cost, in their order.

        Raises:
            ThreadNotFound: There is no such thread.
        """
        return await self._read_ledger(thread_id, lambda ledger, found: ledger.charges(found))

    async def spent(self, thread_id: str) -> "TreeSum":
        """Return what a thread and all below it have spent and hold, in money and in tokens.

        Raises:
            ThreadNotFound: There is no such thread.
            BudgetNotRegistered: It has no account, as a tool's thread.
        """
        return await self._read_ledger(thread_id, lambda ledger, found: ledger.tree(found))

    async def _read_ledger(
        self, thread_id: str, read: "Callable[[BudgetLedger, str], Awaitable[T]]"
    ) -> T:
        async def run() -> T:
            store, found = await run_in_thread(self._find, thread_id)
            return await read(store.ledger, found)

        return await self._running.run(thread_id, run)

    async def list(
        self,
        *,
        all: bool = False,  # noqa: A002 - the word of `rye threads list`
        limit: int = 50,
        offset: int = 0,
    ) -> ThreadRecords:
        """List the threads that have not ended; those nobody runs any more are ended first.

        Args:
            all: Whether the ended ones count too, newest first.
            limit: How many, from 1 to 1,000.
            offset: How many to skip.

        Returns:
            Their rows; `total` says how many there are in all.

        Raises:
            InputError: `limit` or `offset` is negative or not a whole number.
            StateError: The registry can't be read.
        """
        check_page(limit, offset)
        return await self._call("threads", self._list, all, limit, offset)

    def _list(self, ended_too: bool, limit: int, offset: int) -> ThreadRecords:
        store = self._store()
        if store is None:
            return ThreadRecords()
        if ended_too:
            rows = run_blocking(
                store.look_at_all(lambda found: found.list_threads(limit=limit, offset=offset))
            )
            return ThreadRecords(rows, run_blocking(store.registry.count_threads()))
        active = run_blocking(store.look_at_all(lambda found: found.list_active()))
        return ThreadRecords(active[offset : offset + limit], len(active))

    async def run(self, request: RunRequest, ctx: CallContext) -> "ThreadResult":
        """Run a directive's thread, whose row this process has claimed, to its end."""
        return await self._running.run(request.ref, partial(self._service().run, request, ctx))

    async def prune_automatically(self) -> None:
        """Prune what signed configuration doesn't keep; for whoever has ended a row."""
        await self._running.run("threads", self._prune)

    async def thread(self, thread_id: str) -> "Thread":
        """The handle of a directive's thread, wherever it runs or ran: its events and its cost.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        _, found = await self._call(thread_id, self._find, thread_id)
        return await self._service().thread(found)

    async def resume(
        self,
        thread_id: str,
        message: str = "",
        *,
        again: bool = False,
        limits: "Limits | Mapping[str, float] | None" = None,
        ctx: CallContext | None = None,
    ) -> "ThreadResult":
        """Go on with a thread that has ended or was killed, in a new one; wait for its end.

        Of all callers that resume a thread, in whichever process, exactly one succeeds. Whether a
        tool had its effect when its process was killed is unknown. It isn't called again by
        itself, and the model learns of it.

        Args:
            thread_id: The thread.
            message: What is said to the model; by default, that it was interrupted.
            again: Whether to resume it though another thread has done so already.
            limits: What bounds the new thread, above what the directive and configuration say.
            ctx: On whose behalf; the host's own by default.

        Raises:
            ThreadConflict: It still runs, or another thread continues it already.
            RyeError: Nothing runs.

        Source: decision 47.
        """
        request = partial(self._resume_request, thread_id, message, limits, again=again)
        return await self._serve(thread_id, request, lambda: self._service().run, ctx)

    async def fork(
        self,
        thread_id: str,
        *,
        at: int,
        message: str = "",
        limits: "Limits | Mapping[str, float] | None" = None,
        ctx: CallContext | None = None,
    ) -> "ThreadResult":
        """Run a new thread that begins where another one stood after a turn; wait for its end.

        It has an account of its own, what the other might do and today's directive allows, and
        none of its children.

        Args:
            thread_id: The thread.
            at: The turn behind whose results the conversation is cut.
            message: What is said to the model then.
            limits: What bounds the new thread, above what the directive and configuration say.
            ctx: On whose behalf; the host's own by default.

        Raises:
            StateError: The turn isn't there.
            RyeError: Nothing runs.

        Source: decision 47.
        """
        request = partial(self._fork_request, thread_id, at, message, limits)
        return await self._serve(thread_id, request, lambda: self._service().run, ctx)

    async def start_resume(
        self,
        thread_id: str,
        message: str = "",
        *,
        again: bool = False,
        limits: "Limits | Mapping[str, float] | None" = None,
        ctx: CallContext | None = None,
    ) -> "Thread":
        """Go on with a thread like `resume`, and return as soon as the new one runs."""
        request = partial(self._resume_request, thread_id, message, limits, again=again)
        return await self._serve(thread_id, request, lambda: self._service().start, ctx)

    async def start_fork(
        self,
        thread_id: str,
        *,
        at: int,
        message: str = "",
        limits: "Limits | Mapping[str, float] | None" = None,
        ctx: CallContext | None = None,
    ) -> "Thread":
        """Begin where a thread stood after a turn like `fork`, and return as soon as that runs."""
        request = partial(self._fork_request, thread_id, at, message, limits)
        return await self._serve(thread_id, request, lambda: self._service().start, ctx)

    async def check_resume(
        self,
        thread_id: str,
        *,
        limits: "Limits | Mapping[str, float] | None" = None,
        ctx: CallContext | None = None,
    ) -> None:
        """Check whether a thread can be resumed, as `resume` does. Nothing is changed."""
        request = partial(self._resume_request, thread_id, "", limits)
        await self._serve(thread_id, request, lambda: self._service().check, ctx)

    async def _serve(
        self,
        thread_id: str,
        make_request: Callable[[], Awaitable[RunRequest]],
        service: Callable[[], Callable[[RunRequest, CallContext], Awaitable[T]]],
        ctx: CallContext | None,
    ) -> T:
        """Make a request, and pass it to a method of the service."""

        async def serve() -> T:
            return await service()(await make_request(), ctx or CallContext())

        return await self._running.run(thread_id, serve)

    async def _resume_request(
        self,
        thread_id: str,
        message: str,
        limits: "Limits | Mapping[str, float] | None",
        *,
        again: bool = False,
    ) -> RunRequest:
        _, found = await run_in_thread(self._find, thread_id)
        bounds = parse_limits(limits)
        return await self._service().resume_request(found, message, bounds, again=again)

    async def _fork_request(
        self, thread_id: str, at: int, message: str, limits: "Limits | Mapping[str, float] | None"
    ) -> RunRequest:
        _, found = await run_in_thread(self._find, thread_id)
        return await self._service().fork_request(found, at, message, parse_limits(limits))

    async def tree(self, thread_id: str) -> "TreeNode":
        """How a thread stands, and all that it has started.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        from ryecore.threads.tree import load_tree  # noqa: PLC0415 - for threads alone

        return await self._call(thread_id, lambda: load_tree(*self._find(thread_id)))

    async def watch(
        self, thread_id: str, draw: "Callable[[TreeNode], None]", *, every_s: float = 1.0
    ) -> "TreeNode":
        """Have a thread, and all that it has started, drawn until all of them have ended.

        Args:
            thread_id: The thread at the top.
            draw: Draws it: at once, after changes, and at least every `every_s` while it runs.
            every_s: In seconds.

        Returns:
            The tree in the end.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        from ryecore.threads.tree import watch_tree  # noqa: PLC0415 - for threads alone

        async def watch() -> "TreeNode":
            store, found = await run_in_thread(self._find, thread_id)
            return await watch_tree(store, found, draw, every_s=every_s)

        return await self._running.run(thread_id, watch)

    async def verify(self, thread_id: str) -> "TranscriptReport":
        """Prove a thread's transcript: which turn was altered, cut, or never attested.

        That of a graph's run is proved too; each of its steps is a turn.

        Raises:
            ThreadNotFound: There is none of this id.
            ThreadConflict: It is a tool's thread, so it has no transcript.

        Source: decision 47.
        """
        return await self._call(thread_id, lambda: self._service().verify(self._find(thread_id)[1]))

    async def replay(self, thread_id: str) -> "ReplayReport":
        """Decide again what was decided in a thread, from its transcript, and run nothing.

        Returns:
            Every difference to what was recorded, turn by turn.

        Raises:
            ThreadNotFound: There is none of this id.
            ThreadConflict: It is no directive's thread, so it has no transcript.
            StateError: Its transcript can't be read, or was altered.

        Source: decision 47.
        """
        return await self._call(thread_id, lambda: self._service().replay(self._find(thread_id)[1]))

    async def hand_off(self, thread_id: str) -> ThreadReport:
        """Ask a thread that runs, here or in another process, to let another one go on with it.

        It does so at its next turn. Doesn't wait for that.

        Raises:
            ThreadNotFound: There is none of this id.
            ThreadConflict: It has ended, or is no directive's thread.
        """

        async def hand_off() -> ThreadReport:
            _, found = await run_in_thread(self._find, thread_id)
            await self._service().hand_off(found, CallContext())
            return await self.show(found)

        return await self._running.run(thread_id, hand_off)

    async def show(self, thread_id: str) -> ThreadReport:
        """Show a thread and what came of it.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        return await self._report(thread_id, lambda store, found: store.look(found))

    async def wait(self, thread_id: str, *, timeout_s: float | None = None) -> ThreadReport:
        """Wait until a thread has ended, in whichever process it runs.

        Args:
            thread_id: The thread.
            timeout_s: How long to wait, in seconds; None is for ever.

        Returns:
            The thread; `ended` is False where the time is over.

        Raises:
            InputError: `timeout_s` is no number.
            ThreadNotFound: There is none of this id.
        """
        if timeout_s is not None and math.isnan(timeout_s):
            raise InputError("timeout_s is no number.", next_step="Pass seconds, or None.")

        async def wait() -> ThreadReport:
            store, found = await run_in_thread(self._find, thread_id)
            record = await store.wait(found, timeout_s)
            return await run_in_thread(ThreadReport.of, store, record)

        return await self._running.run(thread_id, wait)

    async def cancel(self, thread_id: str) -> ThreadReport:
        """Ask a thread to stop; what it runs is ended, and then the thread. Doesn't wait for that.

        One that was handed off is stopped in the thread that goes on from it, which is returned.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        return await self._report(thread_id, lambda store, found: store.cancel(found))

    async def kill(self, thread_id: str, *, grace_s: float = 3.0) -> ThreadReport:
        """Kill a thread: its processes, those of the threads below it, and of all their tools.

        Returns once they have ended. A thread that shares its process with others is asked to stop;
        after the grace its tools are killed, and that process is not. One that was handed off is
        killed in the thread that goes on from it, which is returned.

        Args:
            thread_id: The thread.
            grace_s: How long they may take to end by themselves, in seconds.

        Raises:
            InputError: `grace_s` is no number from 0.
            ThreadNotFound: There is none of this id.
            StateError: A process can't be ended from here.
        """
        if not grace_s >= 0:
            raise InputError(
                f"grace_s is {grace_s}, no number from 0.", next_step="Pass seconds, such as 3."
            )
        return await self._report(thread_id, lambda store, found: store.kill(found, grace_s))

    async def prune(
        self,
        *,
        older_than: str | None = None,
        keep: int | None = None,
        include_resumable: bool | None = None,
        dry_run: bool = False,
        on_progress: "OnProgress | None" = None,
    ) -> "PruneReport":
        """Remove threads that ended long ago, with all their files; whole families only.

        Args:
            older_than: The age from which they are removed, such as `30d`; by default that of the
                signed `agent/retention.yaml`.
            keep: How many are kept whatever their age, the latest first.
            include_resumable: Whether threads that may be resumed are removed at the same age; by
                default they stay longer.
            dry_run: Whether to remove nothing.
            on_progress: Called with the number of threads removed so far, and of those to remove.

        Returns:
            The threads that were removed, or would be.

        Raises:
            ConfigError: No age is passed or configured, or it can't be used.
            InputError: `keep` is negative.
            StateError: The registry can't be read or written.

        Source: ADR 027.
        """
        from ryecore.actions.pruning import prune_threads  # noqa: PLC0415 - when it is needed

        chosen = (older_than, keep, include_resumable)
        prune = partial(prune_threads, self._store, self._service, chosen)
        call = partial(prune, dry_run=dry_run, on_progress=on_progress)
        return await self._running.run("threads", call)

    async def log(self, thread_id: str, *, offset: int = 0) -> tuple[str, int]:
        """Read what a thread's tool has printed so far.

        Args:
            thread_id: The thread.
            offset: From which byte on.

        Returns:
            The text, of at most 16 MiB, and the byte to go on from. A character that is not yet
            whole is left for the next time.

        Raises:
            ThreadNotFound: There is none of this id.
            StateError: The log can't be read.
        """

        def read() -> tuple[str, int]:
            store, found = self._find(thread_id)
            return read_log(store.log_of(found), offset)

        return await self._call(thread_id, read)

    async def _report(
        self, thread_id: str, act: "Callable[[ThreadStore, str], Coroutine[Any, Any, ThreadRecord]]"
    ) -> ThreadReport:
        def report() -> ThreadReport:
            store, found = self._find(thread_id)
            return ThreadReport.of(store, run_blocking(act(store, found)))

        return await self._call(thread_id, report)

    async def _call(
        self, about: str, function: Callable[[Unpack[Values]], T], *values: *Values
    ) -> T:
        """Call a function that reads or writes the registry, on a thread of its own."""
        return await self._running.run(about, partial(run_in_thread, function, *values))

    def _find(self, thread_id: str) -> "tuple[ThreadStore, str]":
        """The store, and the whole id of a thread that is called by its beginning."""
        store = self._store()
        if store is None or not thread_id:
            raise thread_not_found(thread_id)
        return store, run_blocking(store.find(thread_id))
