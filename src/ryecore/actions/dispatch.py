"""The dispatcher, through which threads call the actions of one Rye."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ryecore.actions.execute import ExecuteAction
from ryecore.actions.request import ExecuteRequest
from ryecore.chain.model import ChainTrace, ExecutionResult, ValidChain
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.runs.ports import Fetched, Planned, Shown
from ryecore.search.model import SearchResults
from ryecore.search.walk import ItemListing

if TYPE_CHECKING:
    from ryecore.actions.fetch import FetchAction
    from ryecore.actions.search import SearchAction
    from ryecore.actions.sign import SignAction

__all__ = ["ActionDispatcher"]


class ActionDispatcher:
    """The dispatcher of each call to the action that serves it, with the caller's context."""

    def __init__(
        self,
        execute: ExecuteAction,
        fetch: "Callable[[], FetchAction]",
        search: "Callable[[], SearchAction]",
        sign: "Callable[[], SignAction]",
        listing: ItemListing,
    ) -> None:
        self._execute = execute
        self._fetch = fetch
        self._search = search
        self._sign = sign
        self._listing = listing

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
        """Execute a tool, or get a directive's directions."""
        request = ExecuteRequest(ref, parameters, dry_run=dry_run, target=target, limits=limits)
        return await self._execute(request, ctx or CallContext())

    async def launch(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any],
        *,
        limits: Mapping[str, Any] | None = None,
        target: str = "local",
        ctx: CallContext,
    ) -> Shown:
        """Launch a tool in a process of its own."""
        request = ExecuteRequest(ref, parameters, async_=True, target=target, limits=limits)
        return await self._execute(request, ctx)

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
        """Run a directive in a managed thread."""
        request = ExecuteRequest(
            ref,
            inputs,
            target=target,
            thread="fork",
            async_=async_,
            model=model,
            limits=limits,
            muted_hooks=muted_hooks,
        )
        return await self._execute(request, ctx)

    async def trace(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ChainTrace:
        """Return the trace of a tool's verified chain."""
        prepared = await self._execute.inspect(ref, ctx or CallContext())
        return ChainTrace(f"tool:{prepared.chain.head.item_id}", prepared.chain, prepared.events)

    async def chain(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ValidChain:
        """Return a tool's verified chain."""
        return await self._execute.chain(ref, ctx or CallContext())

    async def plan(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        ctx: CallContext,
    ) -> Planned:
        """Plan a call of a tool."""
        return await self._execute.plan(ref, parameters, ctx, timeout_s)

    def tool_ids(self, category: str = "") -> tuple[str, ...]:
        """Return the ids of all tools of all spaces, or of those of a category."""
        return self._listing.ids(category)

    async def search(
        self,
        query: str,
        *,
        scope: str = "*",
        limit: int = 10,
        offset: int = 0,
        ctx: CallContext | None = None,
    ) -> SearchResults:
        """Search items by their content."""
        ctx = ctx or CallContext()
        return await self._search()(query, scope, None, limit, offset, ctx)

    async def fetch(self, ref: str | ItemRef, *, ctx: CallContext) -> Fetched:
        """Read and verify one item."""
        return await self._fetch()(ref, ctx)

    async def request_signing(self, pattern: str, *, ctx: CallContext) -> Shown:
        """Sign the items that a glob matches, once the host has approved."""
        return await self._sign().on_behalf(pattern, ctx=ctx)
