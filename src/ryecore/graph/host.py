"""What the runs of one open Rye have in common."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.graph.loading import GraphLoader, LoadedGraph
from ryecore.graph.reading import GraphReport
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits
from ryecore.runs.host import RunHost
from ryecore.runs.ports import Dispatcher
from ryecore.runs.supervisor import Supervised, Supervisor
from ryecore.state.model import Durability

if TYPE_CHECKING:
    from ryecore.graph.result_cache import ResultsCache
    from ryecore.state.store import ThreadStore

__all__ = ["Declares", "GraphHost", "LayLimits"]


@frozen
class Declares:
    """Which limits somebody has declared, and so are reserved.

    Attributes:
        spend: Whether money.
        tokens: Whether tokens.
    """

    spend: bool = False
    tokens: bool = False


LayLimits: TypeAlias = Callable[[Limits], tuple[Limits, Declares]]
"""Lays a caller's limits above those of configuration."""


class GraphHost(RunHost):
    """What the runs of one open Rye have in common.

    Args:
        store: Opens the project's threads.
        dispatcher: The actions of the Rye.
        deps: Models, keys and tools; None where the host injects none.
        supervisor: Supervises what runs here.
        prune: Called behind each run's end: prunes what configuration doesn't keep.
        limits: Lays a caller's limits above those of configuration.
        cache: Remembers the results of nodes; None where nothing does.
        project_root: The project's `.ai` folder.
        user_root: The user's `.ai` folder.
        durability: What a change survives.
        environ: The environment of this process.
        variables: The names of the environment variables that tools can ask for.

    Attributes:
        running: The runs that go on here, by their ids.
    """

    def __init__(
        self,
        store: "Callable[[], ThreadStore]",
        dispatcher: Dispatcher,
        deps: AgentRunnerDeps | None,
        supervisor: Supervisor,
        prune: Callable[[], Awaitable[None]],
        limits: LayLimits,
        cache: "ResultsCache | None" = None,
        *,
        project_root: Path,
        user_root: Path,
        durability: Durability,
        environ: Mapping[str, str],
        variables: Callable[[], Collection[str]],
    ) -> None:
        super().__init__(
            store,
            dispatcher,
            deps,
            supervisor,
            prune,
            project_root=project_root,
            user_root=user_root,
            durability=durability,
            environ=environ,
        )
        self.limits = limits
        self.cache = cache
        self.variables = variables
        self.running: dict[str, Supervised] = {}
        self._loader = GraphLoader(dispatcher)

    async def load(self, ref: ItemRef, ctx: CallContext) -> LoadedGraph:
        """Load a graph.

        Raises:
            RyeError: It can't be found, verified or read.
        """
        return await self._loader(ref, ctx)

    async def examine(self, ref: ItemRef, ctx: CallContext) -> tuple[GraphReport, str]:
        """Tell all that is wrong with a graph's file, or looks so; and give its text.

        Raises:
            RyeError: It can't be found, verified or parsed, or is no graph.
        """
        return await self._loader.examine(ref, ctx)
