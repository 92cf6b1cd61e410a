"""A dispatcher over a real open Rye, as a thread is handed one, and short ways to call tools."""

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ryecore import ExecutionResult, Rye
from ryecore.chain.model import ChainTrace, ValidChain
from ryecore.errors import RyeError
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import named
from ryecore.llm.parts import ToolCallPart
from ryecore.policy import CallContext
from ryecore.policy.permissions import check_capability
from ryecore.runs.ports import Dispatcher, Fetched, Planned, Shown
from ryecore.search.model import SearchResults
from ryecore.search.walk import ItemListing
from ryecore.threads.calls.palette import Palette, PaletteBuilder
from ryecore.tools import ToolContext, ToolOutcome


@frozen
class Child:
    """What came of a child thread."""

    document: Mapping[str, object]

    def to_dict(self) -> Mapping[str, object]:
        return self.document


class RecordingDispatcher(Dispatcher):
    """The actions of an open Rye. Forks start nothing, and are written down."""

    def __init__(self, rye: Rye) -> None:
        self.rye = rye
        self.forks: list[tuple[ItemRef, Mapping[str, Any], Mapping[str, Any], CallContext]] = []
        self.child: Mapping[str, object] | RyeError = {"status": "success", "thread_id": "x-1"}
        self._listing = ItemListing(rye.spaces, "tool", dict)

    async def execute(
        self,
        ref: str | ItemRef,
        parameters: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        limits: Mapping[str, Any] | None = None,
        ctx: CallContext | None = None,
    ) -> ExecutionResult:
        return await self.rye.execute(ref, parameters, dry_run=dry_run, limits=limits, ctx=ctx)

    async def launch(
        self, ref: str | ItemRef, parameters: Mapping[str, Any], *, ctx: CallContext
    ) -> Shown:
        return await self.rye.execute(ref, parameters, async_=True, ctx=ctx)

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
        found = ref if isinstance(ref, ItemRef) else named(ref, self.rye.spaces)
        check_capability("execute", found, ctx.capabilities)
        options = {"async_": async_, "model": model, "limits": limits, "muted_hooks": muted_hooks}
        self.forks.append((found, inputs, options, ctx))
        if isinstance(self.child, RyeError):
            raise self.child
        return Child(self.child)

    async def trace(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ChainTrace:
        return await self.rye.trace(ref, ctx=ctx)

    async def chain(self, ref: str | ItemRef, *, ctx: CallContext | None = None) -> ValidChain:
        return await self.rye._parts.execute.chain(ref, ctx or CallContext())

    async def plan(
        self, ref: str | ItemRef, parameters: Mapping[str, Any], *, ctx: CallContext
    ) -> Planned:
        return await self.rye._parts.execute.plan(ref, parameters, ctx=ctx)

    def tool_ids(self, category: str = "") -> tuple[str, ...]:
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
        return await self.rye.search(query, scope=scope, limit=limit, offset=offset, ctx=ctx)

    async def fetch(self, ref: str | ItemRef, *, ctx: CallContext) -> Fetched:
        return await self.rye.fetch(ref, ctx=ctx)

    async def request_signing(self, pattern: str, *, ctx: CallContext) -> Shown:
        return await self.rye.request_signing(pattern, ctx=ctx)


@frozen
class PaletteCaller:
    """A thread's model at its palette: it holds some capabilities, and calls."""

    palette: Palette
    capabilities: tuple[str, ...]
    options: Mapping[str, Any] = {}

    async def call(self, name: str, arguments: str | None = None, **given: Any) -> ToolOutcome:
        ctx = ToolContext(
            call=CallContext(capabilities=frozenset(self.capabilities), budget_account="t-1"),
            **self.options,
        )
        text = json.dumps(given) if arguments is None else arguments
        return await self.palette.registry.dispatch(ToolCallPart("call-1", name, text), ctx)

    async def says(self, name: str, **given: Any) -> Any:
        """What the model is shown, as JSON."""
        return json.loads((await self.call(name, **given)).part.text)


async def palette_caller(
    dispatcher: RecordingDispatcher, *capabilities: str, **options: Any
) -> PaletteCaller:
    """A model at the palette of these capabilities."""
    palette = await PaletteBuilder(dispatcher).build(capabilities)
    return PaletteCaller(palette, capabilities, options)
