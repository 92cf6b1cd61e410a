"""The interface `rye.threads` to the threads of a project."""

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ryecore.actions.node_runs import NodeRuns
from ryecore.actions.reports import ThreadReport, check_page, list_threads, read_log, verify_thread
from ryecore.actions.thread_answers import ThreadAnswers
from ryecore.errors import InputError
from ryecore.policy import CallContext
from ryecore.runs.request import RunRequest, check_grace, parse_limits
from ryecore.state.model import ThreadRecord, ThreadRecords
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.actions.pruning import OnProgress, PruneReport
    from ryecore.policy.budget import Account, Charge, TreeSum
    from ryecore.policy.limits import Limits
    from ryecore.state.store import ThreadStore
    from ryecore.state.transcript_report import TranscriptReport
    from ryecore.threads.records.replay import ReplayReport
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.thread import Thread
    from ryecore.threads.tree_node import TreeNode

__all__ = ["ThreadReport", "Threads"]

T = TypeVar("T")


class Threads(ThreadAnswers, NodeRuns):
    """The threads of one project: `rye.threads`.

    Wherever an id is expected, an unambiguous beginning or end of it suffices.
    """

    async def account(self, thread_id: str) -> "Account":
        """Return the account of a thread: its limit, holds and spending, in money and in tokens.

        Raises:
            ThreadNotFound: No thread has this id.
            BudgetNotRegistered: The thread has no account, such as a tool's thread.
        """
        return await self._use(thread_id, lambda store, found: store.ledger.account(found))

    async def charges(self, thread_id: str) -> "tuple[Charge, ...]":
        """List the hold and the cost of each request of a thread to a model, in their order.

        Raises:
            ThreadNotFound: No thread has this id.
        """
        return await self._use(thread_id, lambda store, found: store.ledger.charges(found))

    async def spent(self, thread_id: str) -> "TreeSum":
        """Return the spending and holds of a thread and all below it, in money and in tokens.

        Raises:
            ThreadNotFound: No thread has this id.
            BudgetNotRegistered: The thread has no account, such as a tool's thread.
        """
        return await self._use(thread_id, lambda store, found: store.ledger.tree(found))

    async def list(
        self,
        *,
        all: bool = False,  # noqa: A002 - the word of `rye threads list`
        limit: int = 50,
        offset: int = 0,
        after: str | None = None,
    ) -> ThreadRecords:
        """List the threads that have not ended. Threads whose process died are ended before.

        Args:
            all: Whether to list ended threads too, newest first.
            limit: How many, from 1 to 1,000; `total` of the result is the number of all, and
                `is_cut` says whether more follow.
            offset: How many to skip.
            after: The thread after which the page begins: `next_after` of the last page. Threads
                that start meanwhile shift no page.

        Raises:
            InputError: `limit` or `offset` is negative or not a whole number.
            ThreadNotFound: No thread has the id `after`.
            StateError: The registry can't be read.
        """
        check_page(limit, offset)

        async def find() -> ThreadRecords:
            store = await run_in_thread(self._store)
            if store is None:
                return ThreadRecords()
            listing = partial(
                list_threads,
                store,
                active_only=not all,
                limit=limit,
                offset=offset,
                after=None if after is None else await store.find(after),
            )
            found = await listing()
            if await self._look(found):
                found = await listing()
            return found

        return await self._running.run("threads", find)

    async def run(self, request: RunRequest, ctx: CallContext) -> "ThreadResult":
        """Run a directive's thread, whose row this process has claimed, to its end."""
        return await self._running.run(request.ref, partial(self._service().run, request, ctx))

    async def prune_automatically(self) -> None:
        """Prune threads by the rule in signed configuration, after a run's end."""
        await self._running.run("threads", self._prune)

    async def thread(self, thread_id: str) -> "Thread":
        """Return the handle of a directive's thread, wherever it runs or ran.

        Raises:
            ThreadNotFound: No thread has this id.
        """

        async def find() -> "Thread":
            return await self._service().thread((await self._find(thread_id))[1])

        return await self._running.run(thread_id, find)

    async def resume(
        self,
        thread_id: str,
        message: str = "",
        *,
        again: bool = False,
        limits: "Limits | Mapping[str, float] | None" = None,
        ctx: CallContext | None = None,
    ) -> "ThreadResult":
        """Resume a thread that has ended or was killed, in a new thread; wait for its end.

        Of all callers that resume a thread, in any process, exactly one succeeds. Whether a tool
        had its effect when its process was killed is unknown: it isn't called again by itself,
        and the model is told of it.

        Args:
            thread_id: The thread.
            message: The message to the model; by default, that it was interrupted.
            again: Whether to resume it although another thread has done so already.
            limits: The new thread's limits, which override those of directive and configuration.
            ctx: The caller's context; the host's own by default.

        Raises:
            ThreadConflict: The thread still runs, or another thread continues it already.
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
        """Fork a thread after a turn into a new thread, and wait for its end.

        The fork has an account of its own, and none of the thread's children. It may do what both
        the thread and today's directive allow.

        Args:
            thread_id: The thread.
            at: The turn after whose results the conversation is cut.
            message: The message to the model at that point.
            limits: The new thread's limits, which override those of directive and configuration.
            ctx: The caller's context; the host's own by default.

        Raises:
            StateError: The thread has no such turn.
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
        """Resume a thread like `resume`, and return as soon as the new one runs."""
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
        """Fork a thread like `fork`, and return as soon as the new one runs."""
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
        _, found = await self._find(thread_id)
        return await self._service().resume_request(
            found, message, parse_limits(limits), again=again
        )

    async def _fork_request(
        self, thread_id: str, at: int, message: str, limits: "Limits | Mapping[str, float] | None"
    ) -> RunRequest:
        _, found = await self._find(thread_id)
        return await self._service().fork_request(found, at, message, parse_limits(limits))

    async def tree(self, thread_id: str) -> "TreeNode":
        """Return the tree of a thread and all that it has started.

        Raises:
            ThreadNotFound: No thread has this id.
        """
        from ryecore.threads.tree import load_tree  # noqa: PLC0415 - only for threads

        return await self._use_followed(thread_id, partial(load_tree, progress_of=self._progress))

    async def watch(
        self, thread_id: str, draw: "Callable[[TreeNode], None]", *, every_s: float = 1.0
    ) -> "TreeNode":
        """Draw a thread, and all that it has started, until all of them have ended.

        Args:
            thread_id: The thread at the top.
            draw: Draws the tree: at once, after changes, and at least every `every_s` meanwhile.
            every_s: The longest time between two drawings, in seconds.

        Returns:
            The final tree.

        Raises:
            ThreadNotFound: No thread has this id.
        """
        from ryecore.threads.tree import watch_tree  # noqa: PLC0415 - only for threads

        watch = partial(watch_tree, draw=draw, every_s=every_s, progress_of=self._progress)
        return await self._use_followed(thread_id, watch)

    def _progress(self, thread_id: str) -> str:
        return self._service().progress_of(thread_id)

    async def verify(self, thread_id: str) -> "TranscriptReport":
        """Prove a thread's transcript, and report turns that were altered, cut, or never attested.

        The journal of a graph's run is proved likewise; each of its steps is a turn. Of a run on a
        node, what came home is proved by the node's key.

        Raises:
            ThreadNotFound: No thread has this id.
            ThreadConflict: It is a tool's thread, which has no transcript.

        Source: decision 47.
        """
        return await self._use_followed(thread_id, partial(verify_thread, self._service))

    async def replay(self, thread_id: str) -> "ReplayReport":
        """Repeat the decisions of a thread from its transcript, and run nothing.

        Returns:
            Every difference from the recorded decisions, turn by turn.

        Raises:
            ThreadNotFound: No thread has this id.
            ThreadConflict: It is not a directive's thread.
            StateError: Its transcript was altered or can't be read.

        Source: decision 47.
        """
        return await self._use(thread_id, lambda _, found: self._service().replay(found))

    async def hand_off(self, thread_id: str) -> ThreadReport:
        """Ask a running thread, in any process, to hand off to a new thread at its next turn.

        Raises:
            ThreadNotFound: No thread has this id.
            ThreadConflict: It has ended, or is not a directive's thread.
        """

        async def hand_off(store: "ThreadStore", found: str) -> ThreadRecord:
            await self._service().hand_off(found, CallContext())
            return await store.look(found)

        return await self._report(thread_id, hand_off)

    async def show(self, thread_id: str) -> ThreadReport:
        """Return the report of a thread.

        Raises:
            ThreadNotFound: No thread has this id.
        """
        return await self._report(thread_id, lambda store, found: store.look(found))

    async def wait(
        self, thread_id: str, *, timeout_s: float | None = None, last: bool = False
    ) -> ThreadReport:
        """Wait until a thread has ended, in any process.

        Args:
            thread_id: The thread.
            timeout_s: How long to wait, in seconds; None for no bound.
            last: Whether to wait for the threads that continue it, too, as after a handoff or the
                death of a worker.

        Returns:
            The report, with `last` that of the last one; `ended` is False after a timeout.

        Raises:
            InputError: `timeout_s` isn't a number.
            ThreadNotFound: No thread has this id.
        """
        if timeout_s is not None and math.isnan(timeout_s):
            raise InputError("timeout_s isn't a number.", next_step="Pass seconds, or None.")

        async def wait(store: "ThreadStore", found: str) -> ThreadRecord:
            if not last:
                return await store.wait(found, timeout_s, follow=self._follow_one)
            from ryecore.state.queue_waits import wait_for_last  # noqa: PLC0415 - for chains

            return await wait_for_last(store, found, timeout_s, follow=self._follow_one)

        return await self._report(thread_id, wait)

    async def cancel(self, thread_id: str) -> ThreadReport:
        """Ask a thread, or the one that continues it, to stop; return its report at once.

        Raises:
            ThreadNotFound: No thread has this id.
        """
        return await self._report(thread_id, lambda store, found: store.cancel(found))

    async def kill(self, thread_id: str, *, grace_s: float = 3.0) -> ThreadReport:
        """Kill a thread: its processes, those of the threads below it, and of all their tools.

        Returns once they have ended. If it shares its process with others, its tools alone are
        killed after the grace. Of a chain, the last thread is killed and returned.

        Args:
            thread_id: The thread.
            grace_s: How long they may take to end by themselves, in seconds.

        Raises:
            InputError: `grace_s` isn't a number from 0.
            ThreadNotFound: No thread has this id.
            StateError: A process can't be ended from here.
        """
        check_grace(grace_s)
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
            keep: How many of the latest threads are kept whatever their age.
            include_resumable: Whether resumable threads are removed at the same age; by default
                they are kept longer.
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

        rule = (older_than, keep, include_resumable)
        prune = partial(prune_threads, self._store, self._service, rule)
        call = partial(prune, dry_run=dry_run, on_progress=on_progress)
        return await self._running.run("threads", call)

    async def log(self, thread_id: str, *, offset: int = 0, wait_s: float = 0.0) -> tuple[str, int]:
        """Read the output of a thread's tool so far.

        Args:
            thread_id: The thread.
            offset: The byte to start at.
            wait_s: The longest wait in seconds for output after the offset, or for the thread's
                end.

        Returns:
            The text, of at most 16 MiB, and the byte to start at next, before a cut character.

        Raises:
            ThreadNotFound: No thread has this id.
            InputError: `wait_s` isn't a number from 0.
            StateError: The log can't be read.
        """
        if not wait_s >= 0:
            raise InputError("wait_s isn't a number from 0.", next_step="Pass seconds, such as 3.")
        return await self._use(
            thread_id, lambda store, found: read_log(store, found, offset, wait_s)
        )
