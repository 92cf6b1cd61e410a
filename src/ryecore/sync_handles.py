"""The handles of runs with calls that block, as `SyncRye` returns them."""

import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ryecore.sync_loop import check_process

if TYPE_CHECKING:
    from ryecore.graph.model import Graph
    from ryecore.graph.result import GraphResult
    from ryecore.graph.run import GraphRun
    from ryecore.policy.budget import Amount
    from ryecore.runs.handle import RunHandle
    from ryecore.state.events import RunEvent
    from ryecore.state.model import Status, ThreadRecord
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.thread import Thread

__all__ = ["LoopCall", "SyncGraphRun", "SyncThread"]

T = TypeVar("T")

LoopCall: TypeAlias = Callable[[str, Callable[[], Awaitable[Any]]], Any]
"""Makes a call on the event loop's thread, about the item or thread of that name, and waits."""


class _SyncHandle:
    """The handle of a run, with calls that block.

    `call` makes a call on the event loop's thread and waits for it; `next_step` says what to do
    where this handle can't be used, in a process that was forked since.
    """

    def __init__(self, run: "RunHandle[Any]", run_id: str, next_step: str, call: LoopCall) -> None:
        self._run = run
        self._run_id = run_id
        self._next_step = next_step
        self._call_on_loop = call
        self._process = os.getpid()

    @property
    def item_id(self) -> str:
        """The directive or graph, as a canonical ref."""
        return self._run.item_id

    def record(self) -> "ThreadRecord":
        """Return its row in the registry, as it is now."""
        return self._call(self._run.record)

    def status(self) -> "Status":
        """Return its status: created, running, completed, error, cancelled, continued or killed."""
        return self._call(self._run.status)

    def cost(self) -> "Amount":
        """Return the money and tokens that it and its children used, and its continuations."""
        return self._call(self._run.cost)

    def children(self) -> "tuple[ThreadRecord, ...]":
        """Return the runs that it has started, oldest first."""
        return self._call(self._run.children)

    def continuation(self) -> str | None:
        """Return the id of the run that continues it, the latest; see `Thread.continuation`."""
        return self._call(self._run.continuation)

    def cancel(self) -> None:
        """Ask it, its continuations, and their children to stop. Doesn't wait for their end."""
        self._call(self._run.cancel)

    def kill(self, *, grace_s: float = 3.0) -> None:
        """Kill it with all its processes; see `Thread.kill`."""
        self._call(partial(self._run.kill, grace_s=grace_s))

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        check_process(self._process, f"The handle of {self._run_id}", self._next_step)
        result: T = self._call_on_loop(self._run_id, function)
        return result

    def events(self, *, from_start: bool = True, follow: bool = True) -> "Iterator[RunEvent]":
        """Yield its events until it has ended; see `Thread.events`."""
        events = self._run.events(from_start=from_start, follow=follow)
        try:
            while True:
                event = self._call(partial(anext, events, None))
                if event is None:
                    return
                yield event
        finally:
            self._call(events.aclose)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._run_id!r})"


class SyncThread(_SyncHandle):
    """The handle of a directive's thread that was started, as `Thread`, with calls that block."""

    def __init__(self, thread: "Thread", call: LoopCall) -> None:
        thread_id = thread.thread_id
        super().__init__(
            thread, thread_id, f"Get one here: rye.threads.thread({thread_id!r}).", call
        )
        self._thread = thread

    @property
    def thread_id(self) -> str:
        """Its id, for `rye.threads` and `rye threads`."""
        return self._run_id

    def result(self) -> "ThreadResult":
        """Wait until it has ended, and return its result; see `Thread.result`."""
        return self._call(self._thread.result)

    def __str__(self) -> str:
        return str(self._thread)

    def _repr_html_(self) -> str:
        return self._thread._repr_html_()


class SyncGraphRun(_SyncHandle):
    """The handle of a graph's run that was started, as `GraphRun`, with calls that block."""

    def __init__(self, run: "GraphRun", call: LoopCall) -> None:
        super().__init__(run, run.run_id, f"See its state: rye.graphs.show({run.run_id!r}).", call)
        self._graph_run = run

    @property
    def run_id(self) -> str:
        """Its id, for `rye.graphs`, `rye.threads` and the command line."""
        return self._run_id

    @property
    def graph(self) -> "Graph":
        """Its graph, as it runs; see `GraphRun.graph`."""
        return self._graph_run.graph

    def result(self) -> "GraphResult":
        """Wait until it has ended, and return its result; see `GraphRun.result`."""
        return self._call(self._graph_run.result)

    def _repr_html_(self) -> str:
        return self._graph_run._repr_html_()
