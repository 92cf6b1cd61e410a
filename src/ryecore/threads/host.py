"""What the threads of one open Rye have in common."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.directives.inputs import Declared
from ryecore.policy import CancelToken
from ryecore.runs.host import RunHost
from ryecore.runs.ports import Dispatcher
from ryecore.runs.supervisor import Supervisor
from ryecore.state.model import Durability
from ryecore.threads.calls.guard import ArtifactStore, ResultGuard
from ryecore.threads.calls.palette import PaletteBuilder
from ryecore.threads.calls.returning import return_tool
from ryecore.threads.harness import SafetyHarness
from ryecore.threads.loop.recorder import Recorder
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.wish import Continuation
from ryecore.tools.definition import ToolDef

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["RunningThread", "ThreadHost"]

_ARTIFACTS: Final = "artifacts"


class RunningThread(Protocol):
    """A thread that runs in this process."""

    recorder: Recorder | None
    cancellation: CancelToken

    def want_handoff(self) -> None:
        """Have another thread go on, at the next turn."""
        ...


class ThreadHost(RunHost):
    """What the threads of one open Rye have in common.

    Args:
        store: Opens the project's threads.
        planner: Reads directives.
        dispatcher: The actions of the Rye.
        deps: Models, keys and tools; None where the host injects none.
        supervisor: Supervises what runs here.
        prune: Called behind each run's end: prunes what configuration doesn't keep.
        project_root: The project's `.ai` folder.
        user_root: The user's `.ai` folder.
        durability: What a change survives.
        environ: The environment of this process.

    Attributes:
        palettes: Builds what models may call.
        own_tool: The tool by which a thread looks after those below it; the service sets it.
        running: The threads that run here, by their ids.
    """

    def __init__(
        self,
        store: "Callable[[], ThreadStore]",
        planner: DirectivePlanner,
        dispatcher: Dispatcher,
        deps: AgentRunnerDeps | None,
        supervisor: Supervisor,
        prune: Callable[[], Awaitable[None]],
        *,
        project_root: Path,
        user_root: Path,
        durability: Durability,
        environ: Mapping[str, str],
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
        self.planner = planner
        self.palettes = PaletteBuilder(dispatcher)
        self.own_tool: ToolDef | None = None
        self.running: dict[str, RunningThread] = {}

    def artifacts(self, thread_id: str, continues: Continuation | None) -> ArtifactStore:
        """Where a thread's own large results are kept, and it reads those that it goes on from."""
        folder = self.store.folder_of
        also = (folder(continues.previous_id) / _ARTIFACTS,) if continues else ()
        return ArtifactStore(folder(thread_id) / _ARTIFACTS, also)

    def own_tools(
        self, harness: SafetyHarness, guard: ResultGuard, outputs: Sequence[Declared]
    ) -> list[ToolDef]:
        """The tools that are a thread's own: to return, to read on, to look after its children."""
        tools: list[ToolDef] = []
        returns = return_tool(outputs)
        if returns is not None:
            tools.append(returns)
        if harness.capabilities:
            tools.append(guard.reader())
        own = self.own_tool
        if own is not None and own.capability and harness.check_permission(own.capability):
            tools.append(own)
        return tools
