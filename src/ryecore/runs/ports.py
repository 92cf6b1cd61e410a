"""The actions of one open Rye, as threads and graph runs call them from below."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from attrs import frozen

from ryecore.chain.model import ChainTrace, ExecutionPlan, ExecutionResult, ValidChain
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.search.model import SearchResults

__all__ = ["ORCHESTRATOR", "Dispatcher", "Fetched", "Planned", "Shown", "Tell"]

ORCHESTRATOR: Final = "rye/agent/threads/orchestrator"
"""The tool of the system bundle that looks after threads, which ryecore serves itself."""

Tell: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Records that something happened: its type and its payload."""


class Shown(Protocol):
    """What came of an action: the response object that models see."""

    def to_dict(self) -> Mapping[str, object]:
        """The response object."""
        ...


class Fetched(Shown, Protocol):
    """One item that was read and verified."""

    @property
    def content(self) -> str:
        """The file's text, its signature line included."""
        ...


@frozen
class Planned:
    """What a call of a tool would do.

    Attributes:
        chain: The tool's verified chain.
        plan: What would run.
        is_served_here: Whether ryecore serves it in this process, so that the plan isn't run.
    """

    chain: ValidChain
    plan: ExecutionPlan
    is_served_here: bool = False


class Dispatcher(Protocol):
    """The actions of one open Rye.

    Each takes the context of the caller and checks its capabilities: nothing here is exempt.
    """

    async def execute(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        ctx: CallContext | None = None,
    ) -> ExecutionResult:
        """Execute a tool through its verified chain, or get a directive's directions.

        A dry run plans, and runs nothing.
        """
        ...

    async def launch(
        self, ref: str | ItemRef, parameters: Mapping[str, Any], *, ctx: CallContext
    ) -> Shown:
        """Launch a tool in a process of its own, and return at once."""
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
        ctx: CallContext,
    ) -> Shown:
        """Run a directive in a managed thread, a child of `ctx.budget_account`.

        Args:
            ref: The directive.
            inputs: Its inputs.
            async_: Whether to return as soon as it is registered.
            model: `provider/model`, or a tier or name of `agent/agent.yaml`.
            limits: Limits by name, such as `{"turns": 8}`.
            muted_hooks: The keys of hooks that don't act in it, because one of them started it.
            ctx: On whose behalf.
        """
        ...

    async def trace(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ChainTrace:
        """A tool's verified chain; nothing runs."""
        ...

    async def chain(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ValidChain:
        """The same chain without the decisions, remembered while nothing on disk has changed."""
        ...

    async def plan(
        self, ref: str | ItemRef, parameters: Mapping[str, Any], *, ctx: CallContext
    ) -> Planned:
        """What a call of a tool would do. Its chain is verified as for the call; nothing runs."""
        ...

    def tool_ids(self) -> tuple[str, ...]:
        """The ids of all tools of all spaces, sorted; what is new is noticed."""
        ...

    async def search(
        self,
        query: str,
        *,
        scope: str = "*",
        limit: int = 10,
        offset: int = 0,
        ctx: CallContext | None = None,
    ) -> SearchResults:
        """Items by what they hold."""
        ...

    async def fetch(self, ref: str | ItemRef, *, ctx: CallContext) -> Fetched:
        """Read one item, verified."""
        ...

    async def request_signing(self, pattern: str, *, ctx: CallContext) -> Shown:
        """Sign what a glob matches, once the host has approved."""
        ...
