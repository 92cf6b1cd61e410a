"""`SyncRye`: the verbs of `Rye` as calls that block, for scripts and notebooks.

Methods are made from those of the asynchronous classes, whose parameters and documentation they
have.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from functools import partial, wraps
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
)
from weakref import finalize

from ryecore.actions.cluster import Cluster
from ryecore.actions.graphs import Graphs
from ryecore.actions.maps import Map, MapResult, Progress
from ryecore.actions.mcp_servers import McpServers
from ryecore.actions.remotes import Remotes
from ryecore.actions.settings import OpenOptions
from ryecore.actions.threads import Threads
from ryecore.errors import RyeClosed
from ryecore.graph.map_result import MapReport, fields_of
from ryecore.items.keys import AuthorKeys
from ryecore.rye import Rye
from ryecore.sync_handles import LoopCall, SyncGraphRun, SyncThread
from ryecore.sync_loop import EventLoopThread, ItemsOnLoop, closed

if TYPE_CHECKING:
    from ryecore.actions.recovering import Recovered
    from ryecore.chain.environment import ProjectEnv
    from ryecore.items.spaces import Spaces
    from ryecore.items.trust import TrustStore
    from ryecore.policy import CallContext
    from ryecore.policy.limits import Limits

__all__ = [
    "SyncGraphs",
    "SyncMap",
    "SyncMapResult",
    "SyncRye",
    "SyncThreads",
]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Handle = TypeVar("Handle")

_forks: Final = RLock()
"""Held during every fork, and while a forked child opens its own Rye."""
os.register_at_fork(
    before=_forks.acquire, after_in_parent=_forks.release, after_in_child=_forks.release
)


def blocking(
    method: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], T]:
    """Make an asynchronous method one that blocks, with the same parameters.

    The object needs `_target`, which has the method, and `_call`.
    """

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        name = str(args[0]) if args else ""
        result: T = self._call(name, partial(method, self._target, *args, **kwargs))
        return result

    return call


def direct(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method of an object's `_target` one of its own."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._target, *args, **kwargs)

    return call


def starting(
    handle: Callable[[T, LoopCall], Handle], method: Callable[Concatenate[S, P], Awaitable[T]]
) -> Callable[Concatenate[Any, P], Handle]:
    """Make an asynchronous method one that blocks, and that returns a handle which blocks too."""
    start = blocking(method)

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle:
        return handle(start(self, *args, **kwargs), self._call)

    call.__annotations__ = method.__annotations__ | {"return": handle}
    return call


class _Runs(Generic[T]):
    """The threads or the graphs of a project, with calls that block.

    `target` returns the asynchronous object of this process; `call` makes a call on the event
    loop's thread and waits for it.
    """

    def __init__(self, target: Callable[[], T], call: LoopCall) -> None:
        self._get_target = target
        self._call = call

    @property
    def _target(self) -> T:
        return self._get_target()


class SyncThreads(_Runs[Threads]):
    """The threads of a project, with calls that block: `rye.threads` of a `SyncRye`."""

    account = blocking(Threads.account)
    approvals = blocking(Threads.approvals)
    approve = blocking(Threads.approve)
    deny = blocking(Threads.deny)
    charges = blocking(Threads.charges)
    spent = blocking(Threads.spent)
    list = blocking(Threads.list)
    show = blocking(Threads.show)
    log = blocking(Threads.log)
    tree = blocking(Threads.tree)
    watch = blocking(Threads.watch)
    wait = blocking(Threads.wait)
    cancel = blocking(Threads.cancel)
    kill = blocking(Threads.kill)
    hand_off = blocking(Threads.hand_off)
    verify = blocking(Threads.verify)
    pull = blocking(Threads.pull)
    node_events = blocking(Threads.node_events)
    replay = blocking(Threads.replay)
    prune = blocking(Threads.prune)
    thread = starting(SyncThread, Threads.thread)
    resume = blocking(Threads.resume)
    start_resume = starting(SyncThread, Threads.start_resume)
    fork = blocking(Threads.fork)
    start_fork = starting(SyncThread, Threads.start_fork)


class SyncGraphs(_Runs[Graphs]):
    """The graphs of a project, with calls that block: `rye.graphs` of a `SyncRye`."""

    load = blocking(Graphs.load)
    validate = blocking(Graphs.validate)
    run = blocking(Graphs.run)
    start = starting(SyncGraphRun, Graphs.start)
    step = blocking(Graphs.step)
    start_step = starting(SyncGraphRun, Graphs.start_step)
    resume = blocking(Graphs.resume)
    start_resume = starting(SyncGraphRun, Graphs.start_resume)
    show = blocking(Graphs.show)
    list = blocking(Graphs.list)
    forget_results = blocking(Graphs.forget_results)


class SyncMapResult(MapReport):
    """The result of `rye.map` of a `SyncRye`: a row for each row that it was given."""

    _result: MapResult
    _call: LoopCall

    def __init__(self, result: MapResult, call: LoopCall) -> None:
        super().__init__(**fields_of(result))
        object.__setattr__(self, "_result", result)
        object.__setattr__(self, "_call", call)

    def retry_failed(
        self, *, limits: "Limits | Mapping[str, float] | None" = None,
        progress: Progress = None, ctx: "CallContext | None" = None,
    ) -> "SyncMapResult":  # fmt: skip
        """Run the rows again that did not complete, and no others; see `MapResult.retry_failed`."""
        again = partial(self._result.retry_failed, limits=limits, progress=progress, ctx=ctx)
        return SyncMapResult(self._call(self.run_id, again), self._call)


class SyncMap(_Runs[Map]):
    """Calls of one item for each of many rows, with calls that block: `rye.map` of a `SyncRye`."""

    __call__ = starting(SyncMapResult, Map.__call__)
    resume = starting(SyncMapResult, Map.resume)
    retry_failed = starting(SyncMapResult, Map.retry_failed)
    show = starting(SyncMapResult, Map.show)


class SyncRemotes(_Runs[Remotes]):
    """The remotes of a project, with calls that block: `rye.remotes` of a `SyncRye`."""

    list = direct(Remotes.list)
    identify = blocking(Remotes.identify)
    add = direct(Remotes.add)
    add_queue = direct(Remotes.add_queue)
    add_cluster = direct(Remotes.add_cluster)
    kind_of = direct(Remotes.kind_of)
    check_cluster = blocking(Remotes.check_cluster)
    remove = direct(Remotes.remove)
    plan = blocking(Remotes.plan)
    push = blocking(Remotes.push)
    check = blocking(Remotes.check)
    metrics = blocking(Remotes.metrics)


class SyncCluster(_Runs[Cluster]):
    """The workers of a shared state, with calls that block: `rye.cluster` of a `SyncRye`."""

    check = blocking(Cluster.check)
    status = blocking(Cluster.status)


class SyncMcpServers(_Runs[McpServers]):
    """The tools of MCP servers, with calls that block: `rye.mcp` of a `SyncRye`."""

    __call__ = blocking(McpServers.__call__)


class SyncRye:
    """A Rye whose calls block. Its event loop has a thread of its own, so any thread may call it.

    Its methods are those of `Rye`, with the same parameters. It may be used in a forked child: the
    first call there opens what it needs anew. A call that an exception of a signal's handler
    interrupts (KeyboardInterrupt, a soft time limit) is cancelled, and has ended before the
    exception propagates.

    Open one with `SyncRye.open`, with the same arguments as `Rye.open`, and close it:
    `with SyncRye.open(".") as rye: ...`.
    """

    def __init__(self, loop: EventLoopThread) -> None:
        self._open = loop
        # One that nobody closes is closed once it is garbage, or the interpreter ends.
        self._close = finalize(self, loop.close)

    @classmethod
    def open(
        cls, project_path: str | os.PathLike[str] = ".", **options: Unpack[OpenOptions]
    ) -> Self:
        """Open a project; see `Rye.open` for the options.

        Raises:
            ConfigError: The project isn't a folder, a bundle can't be loaded, or an option has an
                invalid value.
        """
        return cls(EventLoopThread(Rye.open(project_path, **options)))

    @property
    def project(self) -> Path:
        """The project's folder."""
        return self._open.rye.project

    @property
    def spaces(self) -> "Spaces":
        """The spaces in which items are looked for."""
        return self._target.spaces

    @property
    def trust(self) -> "TrustStore":
        """The keys that are trusted."""
        return self._target.trust

    @property
    def keys(self) -> AuthorKeys:
        """The signing key of the person who works here."""
        return self._target.keys

    @property
    def env(self) -> "ProjectEnv":
        """The names of the project's `.env` that are set."""
        return self._target.env

    @property
    def graphs(self) -> SyncGraphs:
        """The project's graphs, run in this process."""
        return SyncGraphs(lambda: self._target.graphs, self._call)

    @property
    def map(self) -> SyncMap:
        """Calls of one item for each of many rows: `rye.map("directive:ID", rows)`."""
        return SyncMap(lambda: self._target.map, self._call)

    @property
    def mcp(self) -> SyncMcpServers:
        """Tools of MCP servers: `tools=[*rye.mcp("mcp/servers/time")]`, for agents of any loop."""
        return SyncMcpServers(lambda: self._target.mcp.through(ItemsOnLoop(self._loop)), self._call)

    @property
    def cluster(self) -> "SyncCluster":
        """The workers of a state that machines share, and the runs in its queues."""
        return SyncCluster(lambda: self._target.cluster, self._call)

    @property
    def remotes(self) -> "SyncRemotes":
        """The nodes that the project knows."""
        return SyncRemotes(lambda: self._target.remotes, self._call)

    @property
    def threads(self) -> SyncThreads:
        """The project's threads and runs, of this process and of others."""
        return SyncThreads(lambda: self._target.threads, self._call)

    @property
    def recovered(self) -> "tuple[Recovered, ...]":
        """The threads and runs that had died and were resumed; see `Rye.open(recover=True)`."""
        return self._target.recovered

    execute = blocking(Rye.execute)
    start = starting(SyncThread, Rye.start)
    recover = blocking(Rye.recover)
    trace = blocking(Rye.trace)
    schema = blocking(Rye.schema)
    fetch = blocking(Rye.fetch)
    search = blocking(Rye.search)
    costs = blocking(Rye.costs)
    request_signing = blocking(Rye.request_signing)
    sign = direct(Rye.sign)
    verify = direct(Rye.verify)
    verify_all = direct(Rye.verify_all)
    trust_project = direct(Rye.trust_project)

    @property
    def _target(self) -> Rye:
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

    def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            if not self._close.alive:
                raise closed()
            return self._loop.call(call)
        except RyeClosed as error:
            raise (error.during(name) if name else error) from None

    def close(self) -> None:
        """Cancel what still runs, wait until it has ended, and end the event loop's thread."""
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
