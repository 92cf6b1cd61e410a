"""The interface through which threads and graph runs call the actions of a Rye."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

from ryecore.chain.model import ChainTrace, ExecutionPlan, ExecutionResult, ValidChain
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext

if TYPE_CHECKING:
    from ryecore.agent.settlements import Unwritten
    from ryecore.search.model import SearchResults
    from ryecore.state.model import Cost, ThreadRecord

__all__ = [
    "CallOptions",
    "Dispatcher",
    "Fetched",
    "Follow",
    "Planned",
    "RunSpending",
    "Shown",
    "TargetKind",
    "Tell",
]

Tell: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Records an event: its type and its payload."""


TargetKind: TypeAlias = Literal["local", "node", "queue", "ray"]
"""Where a target is: in this project, on a node, in a queue of workers, or on a Ray cluster."""


class Shown(Protocol):
    """The result of an action, which models see as a response object."""

    def to_dict(self) -> Mapping[str, object]:
        """Return the response object."""
        ...


class Fetched(Shown, Protocol):
    """One item that was read and verified."""

    @property
    def content(self) -> str:
        """The file's text, its signature line included."""
        ...


@frozen
class Planned:
    """The plan of a call that wasn't made. A tool served in this process starts no process."""

    chain: ValidChain
    plan: ExecutionPlan
    is_served_here: bool = False


class CallOptions(TypedDict, total=False):
    """The options of a call: where it runs, if not on this machine, and a graph's limits."""

    target: str
    limits: Mapping[str, Any]


class Follow(Protocol):
    """Follows runs on nodes whose follower is gone, and looks after those that wait for a cluster.

    See `RemoteRuns.look` and `ClusterWaits`.
    """

    async def __call__(self, records: "Iterable[ThreadRecord]", *, must: bool) -> None:
        """Follow those of these runs that nobody follows."""
        ...


class Dispatcher(Protocol):
    """The actions of one open Rye.

    Each takes the caller's context and checks its capabilities, without exception.
    """

    async def execute(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        limits: Mapping[str, Any] | None = None,
        target: str = "local",
        ctx: CallContext | None = None,
    ) -> ExecutionResult:
        """Execute a tool through its verified chain, or get a directive's directions.

        Args:
            ref: The item.
            parameters: Its parameters.
            dry_run: Whether to run nothing.
            limits: The limits of a graph's run.
            target: `local`, or the node that runs it: `remote` or `remote:NAME`.
            ctx: The caller.
        """
        ...

    async def launch(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any],
        *,
        limits: Mapping[str, Any] | None = None,
        target: str = "local",
        ctx: CallContext,
    ) -> Shown:
        """Launch a tool, or a graph with limits, in a process of its own, and return at once."""
        ...

    async def fork(
        self,
        ref: str | ItemRef,
        inputs: Mapping[str, Any],
        *,
        async_: bool = False,
        model: str | None = None,
        limits: Mapping[str, Any] | None = None,
        muted_hooks: frozenset[str] = frozenset(),
        target: str = "local",
        ctx: CallContext,
    ) -> Shown:
        """Run a directive in a managed thread, a child of `ctx.budget_account`.

        With `async_` it returns as soon as that is registered. `muted_hooks` are the keys of hooks
        that don't run in it, because one of them started it.
        """
        ...

    async def trace(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ChainTrace:
        """Return the trace of a tool's verified chain. Nothing runs."""
        ...

    async def chain(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ValidChain:
        """Return the chain without its trace, cached until something on disk changes."""
        ...

    async def plan(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        ctx: CallContext,
    ) -> Planned:
        """Plan a call of a tool. Its chain is verified as for the call; nothing runs."""
        ...

    def tool_ids(self, category: str = "") -> tuple[str, ...]:
        """Return the ids of all tools of all spaces, sorted, new files included.

        Args:
            category: The first part of the ids; by default, any.
        """
        ...

    async def search(
        self,
        query: str,
        *,
        scope: str = "*",
        limit: int = 10,
        offset: int = 0,
        ctx: CallContext | None = None,
    ) -> "SearchResults":
        """Search items by their content."""
        ...

    async def fetch(self, ref: str | ItemRef, *, ctx: CallContext) -> Fetched:
        """Read and verify one item."""
        ...

    async def request_signing(self, pattern: str, *, ctx: CallContext) -> Shown:
        """Sign the items that a glob matches, once the host has approved."""
        ...


class RunSpending(Protocol):
    """The spending of a run, as its lifecycle settles it."""

    @property
    def cost(self) -> "Cost":
        """What it has cost so far, without its children."""
        ...

    @property
    def has_overspent(self) -> bool:
        """Whether what isn't settled yet cost more than was held for it."""
        ...

    async def settle_unwritten(self) -> None:
        """Settle what the ledger doesn't have yet."""
        ...

    def unwritten(self) -> "Unwritten":
        """Return the costs to write before the account closes, an interrupted request included."""
        ...

    def waiting(self) -> "Unwritten":
        """Return the costs that the account has to settle yet."""
        ...
