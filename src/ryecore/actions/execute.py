"""execute: run a tool through its verified chain, or hand out a directive's directions."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from ryecore.actions.allowed import check_capability
from ryecore.actions.given import checked_mapping
from ryecore.actions.matrix import check_cell, check_modes
from ryecore.actions.options import ExecuteOptions
from ryecore.actions.start_keys import start_key_of
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.chain.prepared import PreparedChain
from ryecore.errors import AlreadyStarted, InputError, InvalidItemId, RyeError
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Spaces, named
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits
from ryecore.runs.earlier import wait_for_earlier
from ryecore.runs.ports import Planned
from ryecore.threads.served import ORCHESTRATOR

if TYPE_CHECKING:
    from ryecore.actions.directive import DirectiveAction
    from ryecore.actions.launch import LaunchAction
    from ryecore.state.start_keys import IdempotencyKey
    from ryecore.threads.service import ThreadService
    from ryecore.threads.thread import Thread
    from ryecore.threads.wish import ThreadWish

__all__ = ["ExecuteAction", "thread_wish"]

_FOREIGN_OPTIONS: Final = {
    "tool": (("model", "limits"), "for directives; a tool has no model thread"),
    "directive": (("timeout_s", "output_log"), "for tools; a directive starts no process"),
}


class ExecuteAction:
    """Checks the matrix and the caller's capabilities, then executes.

    Args:
        spaces: Where a bare id is looked for.
        executor: Executes tools.
        launch: Launches them in a process of their own.
        directives: Makes what executes directives, when the first one is.
        threads: Makes what runs their threads.
    """

    def __init__(
        self,
        spaces: Spaces,
        executor: PrimitiveExecutor,
        launch: "Callable[[], LaunchAction]",
        directives: "Callable[[], DirectiveAction]",
        threads: "Callable[[], ThreadService]",
    ) -> None:
        self._spaces = spaces
        self._executor = executor
        self._launch = launch
        self._directives = directives
        self._threads = threads

    async def __call__(
        self,
        item: str | ItemRef,
        parameters: Mapping[str, Any] | None,
        options: ExecuteOptions,
        ctx: CallContext,
    ) -> ExecutionResult:
        """Execute an item.

        Args:
            item: A canonical ref, or a bare id.
            parameters: What the item is given; nothing by default.
            options: How to execute.
            ctx: On whose behalf, within what.

        Returns:
            What came of it.

        Raises:
            RyeError: Nothing ran.
        """
        try:
            check_modes(
                options.target, options.thread, async_=options.async_, dry_run=options.dry_run
            )
            ref = item if isinstance(item, ItemRef) else self._ref(item)
            check_cell(ref.kind, options.target, options.thread, async_=options.async_)
            _check_options(ref.kind, options)
            check_capability("execute", ref, ctx)
            given = checked_mapping(parameters)
            start_key = _start_key(ref, given, options, ctx)
        except RyeError as error:
            error.during(str(item))
            raise
        if ref.kind == "directive":
            if options.thread == "fork" and not options.dry_run:
                return await self._fork(ref, given, options, ctx)
            return await self._directives().execute(ref, given, options, ctx)
        if ref.id == ORCHESTRATOR and not options.async_ and not options.dry_run:
            return await self._orchestrate(ref, given, ctx)
        if options.async_:
            return await self._launch()(ref, given, options.timeout_s, ctx, start_key)
        done = await self._executor.execute(
            ref,
            given,
            ctx,
            timeout_s=options.timeout_s,
            dry_run=options.dry_run,
            trace=options.trace,
            output_log=options.output_log,
        )
        if options.dry_run and done.chain.is_own_process:
            from ryecore.actions.graph_plan import graph_plan  # noqa: PLC0415 - for graphs alone

            called = partial(self.chain, ctx=CallContext())
            try:
                return evolve(done, data=await graph_plan(done.chain, called))
            except RyeError as error:
                error.during(str(ref), chain=done.chain.ids, trace=done.trace or ())
                raise
        return done

    async def _fork(
        self, ref: ItemRef, inputs: Mapping[str, Any], options: ExecuteOptions, ctx: CallContext
    ) -> ExecutionResult:
        """Run a directive in a managed thread, here or in a process of its own."""
        try:
            wish = thread_wish(ref, inputs, options, ctx)
            if not options.async_:
                try:
                    return await self._threads().run(wish, ctx)
                except AlreadyStarted as found:
                    thread = await self._threads().thread(found.thread_id)
                    return await wait_for_earlier(thread, ctx)
            if self._launch().can_rebuild_models:
                return await self._launch().fork(wish, ctx)
            return await self._threads().launch(wish, ctx)
        except RyeError as error:
            error.during(str(ref))
            raise

    async def _orchestrate(
        self, ref: ItemRef, parameters: Mapping[str, Any], ctx: CallContext
    ) -> ExecutionResult:
        """Serve the system bundle's orchestrator here, where threads run; another one's runs as is.

        Source: decision 41. It reaches the caller's own threads.
        """
        began = time.perf_counter()
        chain = await self._executor.chain(ref, ctx)
        item = chain.head.item
        if item is None or item.source.space.name != "system":
            return await self._executor.execute(ref, parameters, ctx)
        try:
            document = await self._threads().orchestrator.perform(parameters, ctx)
        except RyeError as error:
            error.during(str(ref), chain=chain.ids)
            raise
        is_well = document.get("success") is not False
        return ExecutionResult(
            status="success" if is_well else "error",
            item_id=str(ref),
            data=document,
            error=None if is_well else str(document.get("error")),
            chain=chain,
            duration_ms=(time.perf_counter() - began) * 1000,
        )

    async def start(
        self,
        item: str | ItemRef,
        inputs: Mapping[str, Any] | None,
        model: str | None,
        limits: "Limits | Mapping[str, float] | None",
        ctx: CallContext,
        idempotency_key: str | None = None,
    ) -> "Thread":
        """Start a directive's thread; see `Rye.start`.

        Raises:
            RyeError: Nothing runs.
        """
        try:
            ref = item if isinstance(item, ItemRef) else self._directive_ref(item)
            check_cell(ref.kind, "local", "fork", async_=False)
            check_capability("execute", ref, ctx)
            options = ExecuteOptions(
                thread="fork",
                model=model,
                limits=limits,
                idempotency_key=idempotency_key,
            )
            wish = thread_wish(ref, checked_mapping(inputs), options, ctx)
            try:
                return await self._threads().start(wish, ctx)
            except AlreadyStarted as found:
                return await self._threads().thread(found.thread_id)
        except RyeError as error:
            error.during(str(item))
            raise

    async def inspect(self, item: str | ItemRef, ctx: CallContext) -> PreparedChain:
        """Make a tool's chain ready, and run nothing.

        Raises:
            RyeError: It is no tool, or its chain does not hold; with the trace.
        """
        ref = self._allowed(item, ctx)
        if ref.kind == "directive":
            raise InputError(
                "A directive has no chain.",
                next_step="Execute it as a dry run: that shows what its thread would run under.",
            ).during(str(ref))
        return await self._executor.inspect(ref, ctx)

    async def chain(self, item: str | ItemRef, ctx: CallContext) -> ValidChain:
        """A tool's verified chain, remembered while nothing on disk has changed; nothing runs.

        Raises:
            RyeError: It is no tool, or its chain does not hold.
        """
        ref = self._allowed(item, ctx)
        if ref.kind == "directive":
            raise InputError("A directive has no chain.", next_step="Name a tool.").during(str(ref))
        return await self._executor.chain(ref, ctx)

    async def plan(
        self, item: str | ItemRef, parameters: Mapping[str, Any], ctx: CallContext
    ) -> Planned:
        """What a call of a tool would do, and nothing of it is done.

        Raises:
            RyeError: It is no tool, the caller may not execute it, or it would not run.
        """
        ref = self._allowed(item, ctx)
        if ref.kind == "directive":
            raise InputError("A directive has no plan.", next_step="Name a tool.").during(str(ref))
        chain, plan = await self._executor.plan(ref, checked_mapping(parameters), ctx)
        return Planned(chain, plan, is_served_here=ref.id == ORCHESTRATOR)

    async def schema(self, item: str | ItemRef, ctx: CallContext) -> Mapping[str, Any] | None:
        """The JSON Schema of what an item is given; None where a tool declares none.

        Raises:
            RyeError: It can't be found, verified or read.
        """
        ref = self._allowed(item, ctx)
        if ref.kind == "directive":
            return await self._directives().schema(ref)
        return (await self._executor.inspect(ref, ctx)).chain.parameter_schema

    def _allowed(self, item: str | ItemRef, ctx: CallContext) -> ItemRef:
        """The ref of what is looked at, by a caller that could execute it."""
        try:
            ref = item if isinstance(item, ItemRef) else self._ref(item)
            check_cell(ref.kind, "local", "inline", async_=False)
            check_capability("execute", ref, ctx)
        except RyeError as error:
            error.during(str(item))
            raise
        return ref

    def _directive_ref(self, text: str) -> ItemRef:
        is_bare = isinstance(text, str) and ":" not in text
        return ItemRef.parse(text, "directive") if is_bare else self._ref(text)

    def _ref(self, text: str) -> ItemRef:
        if not isinstance(text, str) or not text:
            raise InvalidItemId("item_id is required.", next_step="Pass tool:ID or directive:ID.")
        return named(text, self._spaces)


def thread_wish(
    ref: ItemRef, inputs: Mapping[str, Any], options: ExecuteOptions, ctx: CallContext
) -> "ThreadWish":
    """What a directive's thread is wanted for.

    Raises:
        InputError: A limit is unknown, or has a value that can't be.
    """
    from ryecore.threads.planner.planning import read_overrides  # noqa: PLC0415 - for threads alone
    from ryecore.threads.wish import ThreadWish  # noqa: PLC0415

    return ThreadWish(
        ref,
        inputs,
        options.model,
        read_overrides(options.limits),
        options.muted_hooks,
        start_key=_start_key(ref, inputs, options, ctx),
    )


def _start_key(
    ref: ItemRef, given: Mapping[str, Any], options: ExecuteOptions, ctx: CallContext
) -> "IdempotencyKey | None":
    """Return the idempotency key of a call, with the request that it identifies.

    Raises:
        InputError: It can't be a key, or the call starts nothing that is kept.
    """
    key = options.idempotency_key
    if key is None:
        return None
    if options.dry_run or not (options.async_ or options.thread == "fork"):
        raise InputError(
            "idempotency_key can be passed only for a tool with async and for a directive.",
            next_step="Pass async as well (--async), or leave it out.",
        )
    limits = Limits()
    if options.limits is not None:
        from ryecore.threads.planner.planning import read_overrides  # noqa: PLC0415 - threads alone

        limits = read_overrides(options.limits)
    return start_key_of(key, ref, given, limits, ctx.capabilities, options.model)


def _check_options(kind: str, options: ExecuteOptions) -> None:
    foreign, why = _FOREIGN_OPTIONS[kind]
    for name in foreign:
        if getattr(options, name) is not None:
            raise InputError(f"{name} is {why}.", next_step="Leave it out.")
