"""The parts of a `Rye`, wired together.

The parts that execute tools are made at once. Each other part is made, and its module imported,
when it is first needed.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import evolve

from ryecore.actions.execute import ExecuteAction
from ryecore.actions.settings import Settings
from ryecore.chain.builder import ChainBuilder, FileTypes
from ryecore.chain.config import ConfigResolver
from ryecore.chain.dotenv import DotenvReader
from ryecore.chain.environment import EnvResolver, ProjectEnv
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.chain.interpreters import Interpreters
from ryecore.chain.layout import Sealer
from ryecore.chain.prepared import Preparer
from ryecore.chain.primitives import KeptProcesses
from ryecore.chain.trace import Trace
from ryecore.display.sanitize import warn
from ryecore.items.keys import AuthorKeys
from ryecore.items.project_trust import allowed_variables, is_project_trusted
from ryecore.items.snapshots import SnapshotStore
from ryecore.items.spaces import Space, Spaces, built_in_space
from ryecore.items.trust import TrustStore
from ryecore.items.verification import Verifier
from ryecore.lillux.event_loop import run_in_thread
from ryecore.lillux.keys import PublicKey
from ryecore.policy import CallContext
from ryecore.runs.tasks import Running, Tasks
from ryecore.state.lazy_store import LazyThreadStore
from ryecore.state.object_places import ObjectPlace

if TYPE_CHECKING:
    from ryecore.actions.cluster import Cluster
    from ryecore.actions.directive import DirectiveAction
    from ryecore.actions.dispatch import ActionDispatcher
    from ryecore.actions.fetch import FetchAction
    from ryecore.actions.graph_process import GraphProcesses
    from ryecore.actions.graphs import Graphs
    from ryecore.actions.launch import LaunchAction
    from ryecore.actions.maps import Map
    from ryecore.actions.mcp_servers import McpServers, Verify
    from ryecore.actions.pruning import AutomaticPruning
    from ryecore.actions.remotes import Remotes
    from ryecore.actions.search import SearchAction
    from ryecore.actions.sign import SignAction
    from ryecore.actions.targets.remote_parts import RemoteParts
    from ryecore.actions.threads import Threads
    from ryecore.actions.verify import VerifyAction
    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.agent.telemetry import Observer
    from ryecore.audit import Audit
    from ryecore.graph.result_cache import Entries
    from ryecore.graph.run import GraphService
    from ryecore.policy.authorization import Authorize
    from ryecore.policy.execution import Executions
    from ryecore.policy.permissions import Approve
    from ryecore.policy.reports import Ask
    from ryecore.runs.host import RunHost
    from ryecore.state.exports import ExportVerifier
    from ryecore.threads.planner.planning import DirectivePlanner
    from ryecore.threads.service import ThreadService
    from ryecore.tools.items import ItemExecutor

__all__ = ["Parts"]

_DEV_MODE: Final = "RYE_DEV_MODE"


class Parts:
    """The parts of one Rye, made from its settings.

    `env` holds the names of the project's `.env` that the user allows; `tasks` the runs in the
    background of the Rye.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        approve: "Approve | None",
        agent: "AgentRunnerDeps | None",
        observer: "Observer | None" = None,
        audit: "Audit | str | os.PathLike[str] | None" = None,
        ask: "Ask | None" = None,
        authorize: "Authorize | None" = None,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._approve = approve
        self._ask = ask
        self._authorize = authorize
        self._agent = agent
        self._observer = observer
        self._audit = audit if callable(audit) else None
        if observer is not None and agent is not None and agent.observer is None:
            self._agent = evolve(agent, observer=observer)
        self.tasks = Tasks()
        self.project = project = Path(settings.project_path)
        user = Space("user", Path(settings.user_space) / ".ai")
        self.spaces = Spaces(Space("project", project / ".ai"), user, settings.system_spaces)
        self.keys = AuthorKeys(user, environ)
        host_keys = [PublicKey.from_pem(pem) for pem in settings.trusted_keys]
        self.trust = TrustStore(self.spaces, host_keys)
        self.store = LazyThreadStore(
            self.spaces.project.root,
            user.root,
            settings.durability,
            settings.state,
            ObjectPlace(settings.objects, environ),
        )
        file_types = FileTypes(self.spaces, self.trust)
        self._forms = file_types.comment_forms
        is_dev = environ.get(_DEV_MODE) == "1"
        if is_dev:
            warn(f"{_DEV_MODE}=1: integrity errors are warnings, and what runs is not verified.")
        self._verifier = Verifier(self.trust, dev_mode=is_dev, file_types=self._forms)
        auditor = Verifier(self.trust, dev_mode=is_dev, file_types=self._forms, remember=False)
        self.configs = ConfigResolver(self.spaces, self._verifier, settings.config)
        self._builder = ChainBuilder(self.spaces, self._verifier, file_types)
        allowed = partial(allowed_variables, user, project, self._verifier)
        self._dotenv = DotenvReader(
            project,
            environ,
            lambda evidence: allowed(evidence) | set(settings.allow_env),
            settings.inherit_env,
        )
        self.env = ProjectEnv(project, user, self.keys, self._dotenv, allowed)
        interpreters = self._make_interpreters()
        self._variables = EnvResolver(environ, self._dotenv, interpreters, settings.inherit_env)
        self._executor = self._make_executor(interpreters, auditor)
        self.execute = ExecuteAction(
            self.spaces,
            self._executor,
            lambda: self._launch,
            lambda: self._directives,
            lambda: self.threads,
            lambda: self.remote,
            self._executions,
        )

    def _make_interpreters(self) -> Interpreters:
        user, project = self.spaces.user, self.project
        return Interpreters(
            project,
            lambda evidence: (
                self._settings.trust_project_interpreters
                or is_project_trusted(user, project, self._verifier, evidence)
            ),
            user.root.parent,
        )

    def _make_executor(self, interpreters: Interpreters, auditor: Verifier) -> PrimitiveExecutor:
        settings = self._settings
        preparer = Preparer(
            self._builder,
            Sealer(SnapshotStore(Path(settings.cache_dir)), self._verifier),
            self._variables,
            self.configs,
            {
                "project_path": str(self.project),
                "user_space": settings.user_space,
                "system_space": str(built_in_space().root),
            },
        )
        return PrimitiveExecutor(
            preparer,
            interpreters,
            auditor,
            os.path.realpath(self.project),
            self._keep_connectors,
            lambda: self._graph_processes,
            settings.warm_memory_mib * 1024 * 1024,
            self._ask,
        )

    @cached_property
    def _executions(self) -> "Executions | None":
        """The observer and the audit log, where there is one."""
        settings, observer, audit = self._settings, self._observer, self._audit
        if settings.audit is None and observer is None and audit is None:
            return None
        from ryecore.actions.observing import make_executions  # noqa: PLC0415

        return make_executions(str(self.project), settings, observer, audit)

    @cached_property
    def fetch(self) -> "FetchAction":
        """The action that reads and copies items."""
        from ryecore.actions.fetch import FetchAction  # noqa: PLC0415

        return FetchAction(self.spaces, self._export_verifier, self._forms, self._approve)

    @cached_property
    def search(self) -> "SearchAction":
        """The action that finds items."""
        from ryecore.actions.search import SearchAction  # noqa: PLC0415
        from ryecore.state.exports import ExportVerifier  # noqa: PLC0415

        index = self.spaces.user.root / "cache" / "search"
        exports = ExportVerifier(self._strict_verifier, self.spaces.user.root)
        return SearchAction(self.spaces, index, exports, self._forms)

    @cached_property
    def sign(self) -> "SignAction":
        """The action that signs items."""
        from ryecore.actions.sign import SignAction  # noqa: PLC0415

        return SignAction(self.spaces, self.keys, self._strict_verifier, self._forms, self._approve)

    @cached_property
    def verify(self) -> "VerifyAction":
        """The action that verifies items."""
        from ryecore.actions.verify import VerifyAction  # noqa: PLC0415

        return VerifyAction(self.spaces, self._export_verifier, self._forms)

    @cached_property
    def _directives(self) -> "DirectiveAction":
        from ryecore.actions.directive import DirectiveAction  # noqa: PLC0415

        return DirectiveAction(self.planner, self._dispatcher.chain)

    @cached_property
    def planner(self) -> "DirectivePlanner":
        """The planner of directives and their threads."""
        from ryecore.threads.planner.planning import DirectivePlanner  # noqa: PLC0415

        return DirectivePlanner(self.spaces, self._verifier, self.configs)

    @cached_property
    def _pruning(self) -> "AutomaticPruning":
        from ryecore.actions.pruning import AutomaticPruning  # noqa: PLC0415

        return AutomaticPruning(self.store.open_existing, self.planner)

    async def prune(self) -> None:
        """Prune the threads that signed retention doesn't keep, where that is due."""
        await self._pruning()

    def make_graphs(self, running: Running) -> "Graphs":
        """Make the interface to the project's graphs, for the calls of one Rye."""
        from ryecore.actions.graphs import Graphs  # noqa: PLC0415

        return Graphs(
            self.spaces,
            running,
            lambda: self.graphs,
            self.store.open_existing,
            self.execute.schema,
        )

    def make_map(self, running: Running) -> "Map":
        """Make the interface to maps, for the calls of one Rye."""
        from ryecore.actions.maps import Map  # noqa: PLC0415

        return Map(running, lambda: self.graphs, self.store.open_existing, self.execute.checker)

    def make_mcp(self, rye: "ItemExecutor", verify: "Verify", running: Running) -> "McpServers":
        """Make the interface to MCP servers, for the calls of one Rye."""
        from ryecore.actions.mcp_servers import McpServers  # noqa: PLC0415

        async def sign(refs: Sequence[str]) -> object:
            call = partial(self.sign.on_behalf, *refs, ctx=CallContext())
            return await running.run(refs[0], call)

        return McpServers(rye, self.spaces.project, verify, sign)

    def make_threads(self, running: Running) -> "Threads":
        """Make the interface to the project's threads, for the calls of one Rye."""
        from ryecore.actions.threads import Threads  # noqa: PLC0415
        from ryecore.actions.tool_runs import ToolRuns  # noqa: PLC0415

        return Threads(
            self.store.open_existing,
            running,
            lambda: self.threads,
            self.prune,
            self.remote,
            ToolRuns(self.store.open, lambda: self.execute, running),
        )

    def make_cluster(self, running: Running) -> "Cluster":
        """Make the interface to workers and queues, for the calls of one Rye."""
        from ryecore.actions.cluster import Cluster  # noqa: PLC0415

        return Cluster(self.store, self.remote, running)

    def make_remotes(self, running: Running) -> "Remotes":
        """Make the interface to the nodes that the project knows, for the calls of one Rye."""
        from ryecore.actions.remotes import Remotes  # noqa: PLC0415

        return Remotes(
            self.spaces,
            self.keys,
            self.remote,
            running,
        )

    @cached_property
    def remote(self) -> "RemoteParts":
        """The parts that reach nodes, queues and Ray clusters."""
        from ryecore.actions.targets.remote_parts import RemoteParts  # noqa: PLC0415

        return RemoteParts(
            self._settings,
            self._environ,
            self.project,
            self.keys,
            self.configs,
            self._builder,
            self._dotenv,
            self._executor,
            self.store,
            lambda: self._host,
            lambda: self.planner,
            lambda: self.threads,
            lambda: self.graphs,
            lambda: self.execute,
        )

    @cached_property
    def threads(self) -> "ThreadService":
        """The service that runs directives in managed threads."""
        from ryecore.threads.service import ThreadService  # noqa: PLC0415

        return ThreadService(self._host, self.planner, self.remote)

    @cached_property
    def graph_results(self) -> "Entries":
        """The cached results of graph nodes."""
        from ryecore.graph.result_cache import Entries  # noqa: PLC0415

        return Entries(self.spaces.project.root, self.spaces.user.root, self._settings.durability)

    @cached_property
    def graphs(self) -> "GraphService":
        """The service that runs graphs."""
        from ryecore.graph.lifecycle import GraphDeps  # noqa: PLC0415
        from ryecore.graph.reading import GraphLoader  # noqa: PLC0415
        from ryecore.graph.result_cache import ResultsCache  # noqa: PLC0415
        from ryecore.graph.run import GraphService  # noqa: PLC0415
        from ryecore.policy.limits import Limits  # noqa: PLC0415

        deps = GraphDeps(
            GraphLoader(self._dispatcher),
            lambda asked: self.planner.limits(Limits(), asked, Trace(None)),
            ResultsCache(self._dispatcher, self.graph_results),
            self._variables.names,
            lambda: self.planner.loop_config().rate_limits,
        )
        return GraphService(self._host, deps)

    @cached_property
    def _dispatcher(self) -> "ActionDispatcher":
        from ryecore.actions.dispatch import ActionDispatcher  # noqa: PLC0415
        from ryecore.search.walk import ItemListing  # noqa: PLC0415

        return ActionDispatcher(
            self.execute,
            lambda: self.fetch,
            lambda: self.search,
            lambda: self.sign,
            ItemListing(self.spaces, "tool", self._forms),
        )

    @cached_property
    def _host(self) -> "RunHost":
        """The host of threads and graph runs."""
        from ryecore.runs.host import RunHost  # noqa: PLC0415

        return RunHost(
            self.store.open,
            self.store.last,
            self._dispatcher,
            self._agent,
            self.tasks,
            self.prune,
            self.remote.follow,
            project_root=self.spaces.project.root,
            user_root=self.spaces.user.root,
            durability=self._settings.durability,
            environ=self._environ,
            executions=self._executions,
        )

    @cached_property
    def _graph_processes(self) -> "GraphProcesses":
        from ryecore.actions.graph_process import GraphProcesses  # noqa: PLC0415

        return GraphProcesses(self.store.open, self._settings, self._environ)

    @cached_property
    def _launch(self) -> "LaunchAction":
        from ryecore.actions.launch import LaunchAction  # noqa: PLC0415

        return LaunchAction(
            self._executor,
            self.store.open,
            self._settings,
            self._environ,
            lambda: self.planner,
        )

    @cached_property
    def _export_verifier(self) -> "ExportVerifier":
        """The verifier of items and of threads' exports."""
        from ryecore.state.exports import ExportVerifier  # noqa: PLC0415

        return ExportVerifier(self._verifier, self.spaces.user.root)

    @cached_property
    def _strict_verifier(self) -> Verifier:
        """The verifier that refuses in dev mode, too."""
        return Verifier(self.trust, file_types=self._forms)

    def __copy__(self) -> "Parts":
        """Return the parts of another Rye with the same settings."""
        return Parts(
            self._settings,
            self._environ,
            self._approve,
            self._agent,
            self._observer,
            self._audit,
            self._ask,
            self._authorize,
        )

    def _keep_connectors(self) -> KeptProcesses:
        from ryecore.mcp_client.pool import ConnectorPool  # noqa: PLC0415 - only for MCP servers

        return ConnectorPool(authorize=self._authorize)

    async def aclose(self) -> None:
        """End the processes that are kept, and close the store and the search index."""
        await self._executor.aclose()
        if "remote" in self.__dict__:  # a part that was never needed isn't made to be closed
            await self.remote.aclose()
        if self.store.is_open:  # who closes it last moves its log home, which waits for the disk
            await run_in_thread(self.store.close)
        if "search" in self.__dict__:
            self.search.close()
