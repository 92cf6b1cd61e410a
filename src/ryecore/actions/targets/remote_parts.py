"""The parts of a Rye that reach other machines, each made when it is first needed."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ryecore.actions.settings import Settings
from ryecore.chain.builder import ChainBuilder
from ryecore.chain.config import ConfigResolver
from ryecore.chain.dotenv import DotenvReader
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.errors import MissingExtra
from ryecore.items.keys import AuthorKeys
from ryecore.lillux.event_loop import run_in_thread
from ryecore.policy import CallContext
from ryecore.state.lazy_store import LazyThreadStore

if TYPE_CHECKING:
    from ryecore.actions.execute import ExecuteAction
    from ryecore.actions.targets.handed_runs import HandedRuns
    from ryecore.actions.targets.queue_runs import QueueRuns
    from ryecore.actions.targets.queued_graphs import QueuedGraphs
    from ryecore.actions.targets.ray_calls import RayCalls
    from ryecore.graph.run import GraphService
    from ryecore.remote.cluster_waits import ClusterWaits
    from ryecore.remote.config import Remote, RemotesReader
    from ryecore.remote.connection import ConnectedNode, NodePool
    from ryecore.remote.lifecycle import RemoteLifecycle
    from ryecore.remote.plan import PushPlanner
    from ryecore.remote.queued import QueuedRuns
    from ryecore.remote.service import RemoteRuns
    from ryecore.runs.host import RunHost
    from ryecore.runs.ports import TargetKind
    from ryecore.runs.request import RunRequest
    from ryecore.state.model import ThreadRecord
    from ryecore.threads.planner.planning import DirectivePlanner
    from ryecore.threads.service import ThreadService

__all__ = ["RemoteParts"]


class RemoteParts:
    """The parts of one Rye that reach nodes, queues and Ray clusters.

    Args:
        settings: The settings with which another process opens the Rye.
        environ: The environment of the Rye.
        project: The project's folder.
        keys: The author's keys.
        configs: Reads configuration.
        builder: Builds chains.
        dotenv: Reads `.env` files.
        executor: Executes tools.
        store: The threads.
        host: Returns the host of runs.
        planner: Returns the planner of directives.
        threads: Returns the service that runs directives' threads.
        graphs: Returns the service that runs graphs.
        execute: Returns the action that executes items.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        project: Path,
        keys: AuthorKeys,
        configs: ConfigResolver,
        builder: ChainBuilder,
        dotenv: DotenvReader,
        executor: PrimitiveExecutor,
        store: LazyThreadStore,
        host: "Callable[[], RunHost]",
        planner: "Callable[[], DirectivePlanner]",
        threads: "Callable[[], ThreadService]",
        graphs: "Callable[[], GraphService]",
        execute: "Callable[[], ExecuteAction]",
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._project = project
        self._keys = keys
        self._configs = configs
        self._builder = builder
        self._dotenv = dotenv
        self._executor = executor
        self._store = store
        self._host = host
        self._planner = planner
        self._threads = threads
        self._graphs = graphs
        self._execute = execute

    @cached_property
    def read(self) -> "RemotesReader":
        """The reader of remotes.yaml."""
        from ryecore.remote.config import RemotesReader  # noqa: PLC0415

        return RemotesReader(self._configs)

    def kind_of(self, target: str) -> "TargetKind":
        """Return what a target is: the one place where it is decided where a run goes.

        Raises:
            RyeError: There is no such remote, or remotes.yaml can't be read.
        """
        return "local" if target == "local" else self.read().find(target).kind

    @cached_property
    def pushes(self) -> "PushPlanner":
        """The planner of what travels of the project."""
        from ryecore.remote.plan import PushPlanner  # noqa: PLC0415

        return PushPlanner(self._project, Path(self._settings.user_space))

    @cached_property
    def nodes(self) -> "NodePool":
        """The nodes that the Rye is connected to."""
        try:
            from ryecore.remote.connection import NodePool  # noqa: PLC0415
        except ModuleNotFoundError as problem:
            if problem.name not in ("httptools", "httpx2"):
                raise
            raise MissingExtra(
                f"A remote target needs the package {problem.name}, which is not installed.",
                next_step="Run `pip install 'ryecore[remote]'`.",
                extra="remote",
            ) from None

        from ryecore.remote.secrets import RemoteSecrets  # noqa: PLC0415

        secrets = RemoteSecrets(self._builder.build, self._dotenv, self._environ)
        return NodePool(self.read, self._keys.load, self.pushes, secrets)

    async def connect(self, target: "str | Remote") -> "ConnectedNode":
        """Return the node of a target, connected to when it is first needed."""
        return await self.nodes.connect(target)

    @cached_property
    def runs(self) -> "RemoteRuns":
        """The runs that nodes carry out."""
        from ryecore.remote.service import RemoteRuns  # noqa: PLC0415

        return RemoteRuns(self._host(), self._planner(), self.connect)

    async def life(self, request: "RunRequest", ctx: CallContext) -> "RemoteLifecycle[Any]":
        """Return the lifecycle of a run on the node of the request's target."""
        return await self.runs.life(request, ctx)

    async def follow(self, records: "Iterable[ThreadRecord]", *, must: bool) -> None:
        """Follow runs on nodes that nobody follows; look after those that wait for a cluster."""
        placed: list[ThreadRecord] = []
        for record in records:
            if record.place is not None:
                placed.append(record)
            elif record.queue is not None:
                self._waits.look_after(record.queue)
        if placed:
            await self.runs.look(placed, must=must)

    @cached_property
    def queued(self) -> "QueuedRuns":
        """The runs that this Rye gives to the workers of queues and clusters."""
        from ryecore.remote.queued import QueuedRuns  # noqa: PLC0415

        return QueuedRuns(
            self._host(),
            self._planner(),
            self.read,
            self._settings.state,
            self.rays.sender,
            lambda: self.pushes,
            self._waits,
        )

    async def enqueue(self, request: "RunRequest", ctx: CallContext) -> str:
        """Give a run to the workers of the request's target, and return its id."""
        return await self.queued.enqueue(request, ctx)

    @cached_property
    def queue_runs(self) -> "QueueRuns":
        """The runs of queues that this Rye carries out, as a worker."""
        from ryecore.actions.targets.queue_runs import QueueRuns  # noqa: PLC0415
        from ryecore.actions.targets.queue_tools import QueueTools  # noqa: PLC0415

        tools = QueueTools(self._execute)
        return QueueRuns(self._store.open, self._threads, self._graphs, tools)

    @cached_property
    def handed(self) -> "HandedRuns":
        """The runs that a node hands to the workers of a queue, at either end."""
        from ryecore.actions.targets.handed_runs import HandedRuns  # noqa: PLC0415

        return HandedRuns(lambda: self.queued, self._host)

    @cached_property
    def queued_graphs(self) -> "QueuedGraphs":
        """The graphs that the workers of a Ray cluster run."""
        from ryecore.actions.targets.queued_graphs import QueuedGraphs  # noqa: PLC0415

        return QueuedGraphs(
            self._executor,
            self._graphs,
            self._store.open,
            lambda target: self.read().find(target),
            self.enqueue,
        )

    @cached_property
    def rays(self) -> "RayCalls":
        """The calls on Ray clusters."""
        from ryecore.actions.targets.ray_calls import RayCalls  # noqa: PLC0415

        return RayCalls(
            self._settings,
            lambda: self._store.open().travelling(),
            lambda: self.pushes,
        )

    @cached_property
    def _waits(self) -> "ClusterWaits":
        from ryecore.remote.cluster_waits import ClusterWaits  # noqa: PLC0415

        fail = self.queue_runs.fail
        return ClusterWaits(self._host(), self.read, self.rays.sender, fail)

    async def aclose(self) -> None:
        """Close the connections; a part that was never needed isn't made to be closed."""
        if "nodes" in self.__dict__:
            await self.nodes.aclose()
        if "queued" in self.__dict__:
            await run_in_thread(self.queued.close)
