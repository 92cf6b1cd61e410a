"""The host of the threads and graph runs of one open Rye."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from attrs import evolve

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.caches import BoundedDict
from ryecore.errors import ConfigError
from ryecore.lillux.keys import SigningKey
from ryecore.policy import CallContext
from ryecore.policy.execution import Executions, Operation
from ryecore.runs.budget_waits import BudgetWaits
from ryecore.runs.ports import Dispatcher, Follow
from ryecore.runs.request import RunRequest
from ryecore.runs.supervisor import Supervised, Supervisor
from ryecore.runs.tasks import Tasks
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Durability, ThreadRecord
from ryecore.state.records import load_run_key
from ryecore.state.waiting import run_in_thread, run_off_loop
from ryecore.tools.definition import ToolDef

if TYPE_CHECKING:
    from ryecore.llm.rate_rules import RateLimit
    from ryecore.state.registry import ThreadRegistry
    from ryecore.state.store import ThreadStore

__all__ = ["RunHost", "guarded"]

_MAX_RECENT: Final = 1_000

T = TypeVar("T")
Values = TypeVarTuple("Values")


class RunHost:
    """The host of the threads and graph runs of one open Rye. It prunes after each run."""

    def __init__(
        self,
        store: "Callable[[], ThreadStore]",
        last_store: "Callable[[], ThreadStore]",
        dispatcher: Dispatcher,
        deps: AgentRunnerDeps | None,
        tasks: Tasks,
        prune: Callable[[], Awaitable[None]],
        follow: Follow,
        *,
        project_root: Path,
        user_root: Path,
        durability: Durability,
        environ: Mapping[str, str],
        executions: Executions | None = None,
    ) -> None:
        self._open = store
        self._is_open = False
        self._deps = deps
        self._limited: tuple[Mapping[str, RateLimit], AgentRunnerDeps] | None = None
        self._user_root = user_root
        self.dispatcher = dispatcher
        self.tasks = tasks
        self.prune = prune
        self._follow = follow
        self.project_root = project_root
        self.durability: Durability = durability
        self.environ = environ
        self._executions = executions
        self.supervisor = Supervisor(last_store)
        self.running: dict[str, Supervised] = {}
        self.budget_waits = BudgetWaits()
        self.recent_ids: BoundedDict[str, str] = BoundedDict(_MAX_RECENT)
        """The last id without a suffix of each item's runs; see `register_run`."""

    @property
    def store(self) -> "ThreadStore":
        """The project's threads. Each access looks whether their folder is still in place."""
        return self._open()

    async def follow_one(self, record: ThreadRecord) -> None:
        """Follow a run on a node that nobody here follows, or look after one of a cluster.

        Raises:
            RyeError: Its remote isn't known any more.
        """
        await self._follow((record,), must=True)

    @property
    def registry(self) -> "ThreadRegistry":
        """Their rows."""
        return self.store.registry

    @property
    def ledger(self) -> BudgetLedger:
        """Their accounts."""
        return self.store.ledger

    async def open_store(self) -> "ThreadStore":
        """Open the project's threads, for a run to keep until it has ended.

        If their folder was removed, they are opened anew, while the runs in it end where they
        began. The first time waits for the disk, off the event loop.
        """
        if self._is_open:
            return self._open()
        store = await run_in_thread(self._open)
        self._is_open = True
        return store

    async def write(
        self, write: Callable[[*Values], T], *values: *Values, size_bytes: int = 0
    ) -> T:
        """Call what writes files, off the event loop where that takes long; see `run_off_loop`."""
        return await run_off_loop(self.durability, write, *values, size_bytes=size_bytes)

    async def observed(
        self,
        call: Callable[[RunRequest, CallContext], Awaitable[T]],
        request: RunRequest,
        ctx: CallContext,
        operation: Operation = "execute",
    ) -> T:
        """Make the call that runs or starts a run, seen by the observer and the audit log.

        What the execute action has begun is seen by it already.
        """
        if self._executions is None or ctx.execution is not None:
            return await call(request, ctx)
        return await self._executions.run(
            str(request.ref),
            ctx,
            partial(call, request),
            operation=operation,
            target=request.target,
            announced=None if request.registered is None else request.registered.run_id,
        )

    @cached_property
    def key(self) -> SigningKey:
        """The run key, which signs what runs leave behind."""
        return load_run_key(self._user_root)

    @property
    def has_models(self) -> bool:
        """Whether the host injects models."""
        return self._deps is not None

    @property
    def deps(self) -> AgentRunnerDeps:
        """Models, keys and tools. Where the host injects none, no thread can run."""
        if self._deps is None:
            raise ConfigError(
                "A thread needs models, and this Rye has none.",
                next_step="Open it with Rye.open(agent=AgentRunnerDeps(resolve_provider=..., "
                "key_for=...)); on the command line, pass --deps module:function, or install a "
                "provider's extra and set its key.",
            )
        return self._deps

    def deps_within(self, rate_limits: "Mapping[str, RateLimit]") -> AgentRunnerDeps:
        """Return `deps` with the rate limits of the configuration, if the host has set none.

        All runs share what counts towards them, until the configuration says other ones.
        """
        deps = self.deps
        if not rate_limits or deps.rate_limits is not None:
            return deps
        if self._limited is None or self._limited[0] != rate_limits:
            self._limited = (rate_limits, evolve(deps, rate_limits=rate_limits))
        return self._limited[1]


HOST_CAPABILITY: Final = "rye.execute.tool.host."
"""The capability of a host's function that declares none: this prefix and its name."""


def guarded(tool: ToolDef) -> ToolDef:
    """The tool, with the capability that it needs."""
    if tool.capability is not None:
        return tool
    return evolve(tool, capability=f"{HOST_CAPABILITY}{tool.name}")
