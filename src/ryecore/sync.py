"""`SyncRye`: the verbs as calls that block, for scripts and notebooks."""

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from copy import copy
from functools import partial
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar
from weakref import finalize

from ryecore.chain.model import ChainTrace, ExecutionResult
from ryecore.errors import RyeClosed
from ryecore.items.keys import AuthorKeys
from ryecore.items.refs import ItemRef
from ryecore.items.verification import VerifiedItem
from ryecore.rye import Rye
from ryecore.sync_graphs import SyncGraphs
from ryecore.sync_loop import EventLoopThread, check_process, closed

if TYPE_CHECKING:
    from ryecore.actions.fetch import FetchedItem
    from ryecore.actions.pruning import PruneReport
    from ryecore.actions.recovering import Recovered
    from ryecore.actions.sign import SignReport
    from ryecore.actions.threads import ThreadReport, Threads
    from ryecore.actions.verify import VerifyReport
    from ryecore.chain.environment import ProjectEnv
    from ryecore.policy.budget import Amount
    from ryecore.search.model import SearchResults
    from ryecore.state.ledger import BudgetLedger
    from ryecore.state.model import ThreadRecord, ThreadRecords
    from ryecore.state.transcript_report import TranscriptReport
    from ryecore.threads.events import ThreadEvent
    from ryecore.threads.records.replay import ReplayReport
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.thread import Thread as DirectiveThread

__all__ = ["SyncRye", "SyncThread", "SyncThreads"]

T = TypeVar("T")

_forks: Final = RLock()
"""Held during every fork, and while a forked child opens its own Rye."""
os.register_at_fork(
    before=_forks.acquire, after_in_parent=_forks.release, after_in_child=_forks.release
)


class SyncRye:
    """A Rye whose calls block. It runs on a thread of its own, so any thread may call it.

    A forked child may use it, too: with its first call there it opens what it needs anew. A call
    that an exception of a signal's handler interrupts (KeyboardInterrupt, a soft time limit) is
    cancelled and has ended before the exception propagates.

    Open one with `SyncRye.open`, with the same arguments as `Rye.open`, and close it:
    `with SyncRye.open(".") as rye: ...`.
    """

    def __init__(self, loop: EventLoopThread) -> None:
        self._open = loop
        # One that nobody closes is closed once it is garbage, or the interpreter ends.
        self._close = finalize(self, loop.close)

    @classmethod
    def open(cls, project_path: str | os.PathLike[str] = ".", **options: Any) -> Self:
        """Open a project; see `Rye.open` for the options.

        Raises:
            ConfigError: The project isn't a folder, or a bundle can't be loaded.
        """
        return cls(EventLoopThread(Rye.open(project_path, **options)))

    @property
    def project(self) -> Path:
        """The project's folder."""
        return self._open.rye.project

    @property
    def keys(self) -> AuthorKeys:
        """The signing key of the person who works here."""
        return self._rye.keys

    @property
    def env(self) -> "ProjectEnv":
        """The names of the project's `.env` that are set."""
        return self._rye.env

    @property
    def graphs(self) -> SyncGraphs:
        """The project's graphs, walked in this process."""
        return SyncGraphs(lambda: self._rye.graphs, self._call)

    @property
    def threads(self) -> "SyncThreads":
        """What runs, and ran, in processes of its own."""
        return SyncThreads(lambda: self._rye.threads, self._call)

    def execute(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ExecutionResult:
        """Execute a tool or a directive and wait for it; see `Rye.execute` for the options.

        Raises:
            RyeError: Nothing ran.
        """
        return self._call(ref, partial(self._rye.execute, ref, parameters, **options))

    @property
    def recovered(self) -> "tuple[Recovered, ...]":
        """The threads and runs that had died and were resumed; see `Rye.open(recover=True)`."""
        return self._rye.recovered

    def recover(self, **options: Any) -> "tuple[Recovered, ...]":
        """Resume all threads and runs of graphs whose process died; see `Rye.recover`.

        They run on; `threads.wait` waits for `resumed_by` of each.
        """
        return self._call("threads", partial(self._rye.recover, **options))

    def start(
        self, ref: str | ItemRef, inputs: Mapping[str, Any] | None = None, **options: Any
    ) -> "SyncThread":
        """Start a directive in a managed thread; see `Rye.start` for the options."""
        started = self._call(ref, partial(self._rye.start, ref, inputs, **options))
        return SyncThread(started, self._call)

    def trace(self, ref: str | ItemRef) -> ChainTrace:
        """Show a tool's chain and every decision that leads to it; see `Rye.trace`."""
        return self._call(ref, partial(self._rye.trace, ref))

    def schema(self, ref: str | ItemRef) -> Mapping[str, Any] | None:
        """The JSON Schema of a tool's parameters or a directive's inputs; see `Rye.schema`."""
        return self._call(ref, partial(self._rye.schema, ref))

    def fetch(self, ref: str | ItemRef, **options: Any) -> "FetchedItem":
        """Read one item of any kind, verified; see `Rye.fetch` for the options."""
        return self._call(ref, partial(self._rye.fetch, ref, **options))

    def search(self, query: str, **options: Any) -> "SearchResults":
        """Find items; see `Rye.search` for the query language and the options."""
        return self._call(query, partial(self._rye.search, query, **options))

    def sign(
        self, pattern: str | os.PathLike[str], *, space: Literal["project", "user"] = "project"
    ) -> "SignReport":
        """Sign one item, or all that a glob matches; see `Rye.sign`."""
        return self._rye.sign(pattern, space=space)

    def request_signing(self, pattern: str, **options: Any) -> "SignReport":
        """Sign on behalf of a model, once the host has approved; see `Rye.request_signing`."""
        return self._call(pattern, partial(self._rye.request_signing, pattern, **options))

    def verify(self, ref: str | os.PathLike[str]) -> VerifiedItem:
        """Verify one item, and run nothing; see `Rye.verify`."""
        return self._rye.verify(ref)

    def verify_all(
        self, pattern: str, *, space: Literal["project", "user"] = "project"
    ) -> "VerifyReport":
        """Verify every file that a glob matches; see `Rye.verify_all`."""
        return self._rye.verify_all(pattern, space=space)

    def trust_project(self) -> Path:
        """Trust this project's own interpreters from now on; see `Rye.trust_project`."""
        return self._rye.trust_project()

    @property
    def _rye(self) -> Rye:
        """Return the Rye of this process: a forked child has its own, with the same settings."""
        return self._loop.rye if self._close.alive else self._open.rye

    @property
    def _loop(self) -> EventLoopThread:
        if self._open.process != os.getpid():
            with _forks:  # the first of several threads makes it
                if self._open.process != os.getpid():
                    loop = EventLoopThread(copy(self._open.rye))
                    self._close, inherited = finalize(self, loop.close), self._close
                    inherited.detach()
                    self._open = loop
        return self._open

    def _call(self, ref: str | ItemRef, call: Callable[[], Awaitable[T]]) -> T:
        try:
            if not self._close.alive:
                raise closed()
            return self._loop.call(call)
        except RyeClosed as error:
            raise error.during(str(ref)) from None

    def close(self) -> None:
        """Cancel what still runs, wait until none of it is left, and end the thread."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SyncRye({str(self.project)!r}{'' if self._close.alive else ', closed'})"


class SyncThread:
    """A directive's thread that was started: what `Rye.start` gives, with calls that block.

    Args:
        thread: The thread.
        call: Makes a call on the event loop's thread, and waits for it.
    """

    def __init__(
        self, thread: "DirectiveThread", call: Callable[[str, Callable[[], Awaitable[Any]]], Any]
    ) -> None:
        self._thread = thread
        self._call_on_loop = call
        self._process = os.getpid()

    @property
    def thread_id(self) -> str:
        """What `rye.threads` knows it by."""
        return self._thread.thread_id

    @property
    def status(self) -> str:
        """Where it stands; see `Thread.status`."""
        return self._thread.status

    @property
    def cost(self) -> "Amount":
        """The money and the tokens that it and all below it have used so far."""
        return self._thread.cost

    @property
    def children(self) -> "tuple[ThreadRecord, ...]":
        """The threads that it has started, oldest first."""
        return self._thread.children

    def result(self) -> "ThreadResult":
        """Wait until it has ended; see `Thread.result`."""
        result: ThreadResult = self._call(self._thread.result)
        return result

    def events(self, *, from_start: bool = True) -> "Iterator[ThreadEvent]":
        """What happens in it, until it has ended; see `Thread.events`."""
        events = self._thread.events(from_start=from_start)
        try:
            while True:
                event = self._call(partial(anext, events, None))
                if event is None:
                    return
                yield event
        finally:
            self._call(events.aclose)

    def cancel(self) -> None:
        """Ask it, and all below it, to stop."""
        self._call(partial(_at_once, self._thread.cancel))

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        check_process(
            self._process,
            f"The handle of the thread {self.thread_id}",
            f"Get one here: rye.threads.thread({self.thread_id!r}).",
        )
        result: T = self._call_on_loop(self.thread_id, function)
        return result

    def __repr__(self) -> str:
        return f"SyncThread({self.thread_id!r})"

    def __str__(self) -> str:
        return str(self._thread)

    def _repr_html_(self) -> str:
        return self._thread._repr_html_()


async def _at_once(function: Callable[[], T]) -> T:
    return function()


class SyncThreads:
    """The threads of a project, with calls that block: `rye.threads` of a `SyncRye`.

    Args:
        threads: Gives the threads.
        call: Makes a call on the event loop's thread, and waits for it.
    """

    def __init__(
        self,
        threads: "Callable[[], Threads]",
        call: Callable[[str, Callable[[], Awaitable[Any]]], Any],
    ) -> None:
        self._of_process = threads
        self._call = call

    @property
    def _threads(self) -> "Threads":
        return self._of_process()

    @property
    def ledger(self) -> "BudgetLedger":
        """What each thread may spend, holds and has spent; see `Threads.ledger`."""
        return self._threads.ledger

    def list(
        self,
        *,
        all: bool = False,  # noqa: A002 - the word of `Threads.list`
        limit: int = 50,
        offset: int = 0,
    ) -> "ThreadRecords":
        """List the threads that have not ended, or all; see `Threads.list`."""
        found: ThreadRecords = self._call(
            "threads", partial(self._threads.list, all=all, limit=limit, offset=offset)
        )
        return found

    def show(self, thread_id: str) -> "ThreadReport":
        """Show a thread and what came of it; see `Threads.show`."""
        return self._report(partial(self._threads.show, thread_id))

    def thread(self, thread_id: str) -> SyncThread:
        """The handle of a directive's thread; see `Threads.thread`."""
        return SyncThread(
            self._call(thread_id, partial(self._threads.thread, thread_id)), self._call
        )

    def resume(self, thread_id: str, message: str = "", **options: Any) -> "ThreadResult":
        """Go on with a thread that has ended or was killed; see `Threads.resume`."""
        call = partial(self._threads.resume, thread_id, message, **options)
        result: ThreadResult = self._call(thread_id, call)
        return result

    def fork(self, thread_id: str, *, at: int, message: str = "", **options: Any) -> "ThreadResult":
        """Begin where another thread stood after a turn; see `Threads.fork`."""
        call = partial(self._threads.fork, thread_id, at=at, message=message, **options)
        result: ThreadResult = self._call(thread_id, call)
        return result

    def hand_off(self, thread_id: str) -> "ThreadReport":
        """Ask a thread to let another one go on with it; see `Threads.hand_off`."""
        return self._report(partial(self._threads.hand_off, thread_id))

    def verify(self, thread_id: str) -> "TranscriptReport":
        """Prove a thread's transcript; see `Threads.verify`."""
        report: TranscriptReport = self._call(thread_id, partial(self._threads.verify, thread_id))
        return report

    def replay(self, thread_id: str) -> "ReplayReport":
        """Decide again what was decided in a thread; see `Threads.replay`."""
        report: ReplayReport = self._call(thread_id, partial(self._threads.replay, thread_id))
        return report

    def wait(self, thread_id: str, *, timeout_s: float | None = None) -> "ThreadReport":
        """Wait until a thread has ended; see `Threads.wait`."""
        return self._report(partial(self._threads.wait, thread_id, timeout_s=timeout_s))

    def cancel(self, thread_id: str) -> "ThreadReport":
        """Ask a thread to stop; see `Threads.cancel`."""
        return self._report(partial(self._threads.cancel, thread_id))

    def kill(self, thread_id: str, *, grace_s: float = 3.0) -> "ThreadReport":
        """End the process that runs a thread; see `Threads.kill`."""
        return self._report(partial(self._threads.kill, thread_id, grace_s=grace_s))

    def prune(self, **options: Any) -> "PruneReport":
        """Remove threads that ended long ago; see `Threads.prune`."""
        report: PruneReport = self._call("threads", partial(self._threads.prune, **options))
        return report

    def log(self, thread_id: str, *, offset: int = 0) -> tuple[str, int]:
        """Read what a thread's tool has printed so far; see `Threads.log`."""
        read: tuple[str, int] = self._call(
            "threads", partial(self._threads.log, thread_id, offset=offset)
        )
        return read

    def _report(self, call: Callable[[], "Awaitable[ThreadReport]"]) -> "ThreadReport":
        report: ThreadReport = self._call("threads", call)
        return report
