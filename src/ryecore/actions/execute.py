"""The execute action: run a tool through its verified chain, or return a directive's directions.

Source: docs/design/execute.md#matrix; decision 31.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from ryecore.actions.request import ExecuteRequest, check_cell, check_modes
from ryecore.caches import BoundedDict
from ryecore.chain.executor import PrimitiveExecutor
from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.chain.plan import checked_parameters
from ryecore.chain.prepared import PreparedChain
from ryecore.convert.lines import check_mapping
from ryecore.errors import (
    InputError,
    InvalidItemId,
    RyeError,
)
from ryecore.items.refs import ORCHESTRATOR, ItemRef
from ryecore.items.spaces import Spaces, named
from ryecore.lillux.event_loop import need_loop
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy import CallContext
from ryecore.policy.permissions import check_capability

if TYPE_CHECKING:
    from ryecore.actions.directive import DirectiveAction
    from ryecore.actions.launch import LaunchAction
    from ryecore.actions.targets.remote_parts import RemoteParts
    from ryecore.policy.execution import Executions, Operation
    from ryecore.policy.limits import Limits
    from ryecore.remote.config import Remote
    from ryecore.runs.ports import Planned
    from ryecore.runs.request import RunRequest
    from ryecore.threads.service import ThreadService
    from ryecore.threads.thread import Thread

__all__ = ["ExecuteAction"]

_MAX_GRAPHS: Final = 1_000
_FOREIGN_OPTIONS: Final = {
    "tool": (("model",), "for directives; a tool has no model thread"),
    "directive": (("timeout_s", "output_log"), "for tools; a directive starts no process"),
}


class ExecuteAction:
    """The execute action: it checks the matrix and the caller's capabilities, then executes."""

    def __init__(
        self,
        spaces: Spaces,
        executor: PrimitiveExecutor,
        launch: "Callable[[], LaunchAction]",
        directives: "Callable[[], DirectiveAction]",
        threads: "Callable[[], ThreadService]",
        remote: "Callable[[], RemoteParts]",
        executions: "Executions | None" = None,
    ) -> None:
        self._remote = remote
        self._spaces = spaces
        self._executor = executor
        self._launch = launch
        self._directives = directives
        self._threads = threads
        self._executions = executions
        self._graphs: BoundedDict[tuple[ItemRef, str], bool] = BoundedDict(_MAX_GRAPHS)

    async def __call__(self, request: ExecuteRequest, ctx: CallContext) -> ExecutionResult:
        """Execute an item, seen by the observer and the audit log, where there is one."""
        if self._executions is None:
            return await self._execute(request, ctx)
        operation: Operation = "execute"
        if request.async_ or request.dry_run:
            operation = "dry_run" if request.dry_run else "start"
        return await self._executions.run(
            str(request.item),
            ctx,
            partial(self._execute, request),
            operation=operation,
            target=str(request.target),
            announced=None if ctx.execution is None else ctx.execution.announced,
        )

    async def _execute(self, request: ExecuteRequest, ctx: CallContext) -> ExecutionResult:
        try:
            check_modes(request)
            ref = self._find_ref(request.item)
            if ctx.execution is not None:
                ctx.execution.ref = str(ref)
            check_cell(ref.kind, request.target, request.thread, async_=request.async_)
            _check_options(ref.kind, request)
            check_capability("execute", ref, ctx.capabilities)
            parameters = check_mapping(request.parameters)
            limits = _limits_of(request)
            _check_key(request)
            is_inline = ref.kind == "tool" and not request.async_
            run = None if is_inline else _run_request(ref, request, ctx)
        except RyeError as error:
            error.during(str(request.item))
            raise
        if run is not None or request.target != "local" or ref.id == ORCHESTRATOR:
            need_loop()
        if run is not None and ref.kind == "directive":
            if request.thread == "fork" and not request.dry_run:
                return await self._fork(run, ctx, is_async=request.async_)
            return await self._directives().execute(run, request, ctx)
        if run is not None:
            if await self._is_queued_graph(run, ctx):
                return await self._remote().queued_graphs.launch(run, ctx)
            return await self._launch()(run, ctx)
        if request.target != "local":
            return await self._call_remote(ref, parameters, request, ctx)
        if ref.id == ORCHESTRATOR and not request.dry_run and limits is None:
            return await self._orchestrate(ref, parameters, ctx)
        done = await self._executor.execute(
            ref,
            parameters,
            ctx,
            timeout_s=request.timeout_s,
            dry_run=request.dry_run,
            trace=request.trace,
            output_log=request.output_log,
            limits=limits,
        )
        if request.dry_run and done.chain.is_own_process:
            need_loop()
            from ryecore.graph.preflight import plan_graph  # noqa: PLC0415 - only for graphs

            called = partial(self.chain, ctx=CallContext())
            try:
                return evolve(done, data=await plan_graph(done.chain, called))
            except RyeError as error:
                error.during(str(ref), chain=done.chain.ids, trace=done.trace or ())
                raise
        return done

    async def _call_remote(
        self,
        ref: ItemRef,
        parameters: Mapping[str, Any],
        request: ExecuteRequest,
        ctx: CallContext,
    ) -> ExecutionResult:
        """Run a tool on a node or a Ray cluster, which verifies it, and wait for its result."""
        try:
            remote = self._remote().read().find(request.target)
            if remote.kind == "ray":
                return await self._call_ray(remote, ref, request, ctx)
            for name in ("trace", "output_log"):
                if getattr(request, name):
                    raise InputError(
                        f"{name} is for local calls: a node sends the result alone.",
                        next_step="Leave it out, or execute the tool locally.",
                    )
            if _limits_of(request) is not None:
                (await self._executor.chain(ref, ctx)).check_takes_limits(str(ref))
            if request.pull:  # it needs a row
                return await self._run_remote(_run_request(ref, request, ctx), ctx)
            node = await self._remote().connect(remote)
            from ryecore.remote.calls import call_tool  # noqa: PLC0415 - only for nodes

            done = await call_tool(
                node, ref, parameters, ctx, timeout_s=request.timeout_s,
                is_graph=partial(self._is_graph, ref, ctx),
            )  # fmt: skip
            if done is None:
                return await self._run_remote(_run_request(ref, request, ctx), ctx)
            return done
        except RyeError as error:
            error.during(str(ref))
            raise

    async def _call_ray(
        self, cluster: "Remote", ref: ItemRef, request: ExecuteRequest, ctx: CallContext
    ) -> ExecutionResult:
        """Run a tool on a Ray cluster. A wrong call is refused here, before anything is sent."""
        if request.pull:
            raise InputError(
                "pull is for nodes, which have copies of the project's files.",
                next_step="Leave it out: files that a tool changes there stay there.",
            )
        chain = await self._executor.chain(ref, evolve(ctx, event_sink=None))  # the worker's count
        if ctx.execution is not None:
            ctx.execution.item = chain.head.item
        if _limits_of(request) is not None:
            chain.check_takes_limits(str(ref))
        run, log = _run_request(ref, request, ctx), request.output_log
        if chain.is_own_process:
            return await self._remote().queued_graphs.run(
                run, ctx, trace=request.trace, output_log=log
            )
        return await self._remote().rays.call(
            cluster, run, ctx, trace=request.trace, output_log=log
        )

    async def _is_queued_graph(self, run: "RunRequest", ctx: CallContext) -> bool:
        """Return whether a run is a graph's, and its target a Ray cluster."""
        try:
            if self._remote().kind_of(run.target) != "ray":
                return False
            return (await self._executor.chain(run.ref, ctx)).is_own_process
        except RyeError as error:
            error.during(str(run.ref))
            raise

    async def _run_remote(self, run: "RunRequest", ctx: CallContext) -> ExecutionResult:
        """Run a tool, or a graph, on a node as a run at home, and wait for its result."""
        from ryecore.remote.tools import RemoteToolResult  # noqa: PLC0415 - only for nodes

        done: ExecutionResult = await self._threads().run(run, ctx)
        if isinstance(done, RemoteToolResult):
            done.raise_failure(ctx.cancellation)
        return done

    async def _is_graph(self, ref: ItemRef, ctx: CallContext, snapshot: str) -> bool:
        """Return whether a tool is known here as a graph. Only its node has to verify it.

        In one snapshot of the project and user space a tool stays what it is.
        """
        known = self._graphs.get((ref, snapshot))
        if known is None:
            try:
                known = (await self._executor.chain(ref, ctx)).is_own_process
            except RyeError:
                return False
            self._graphs[ref, snapshot] = known
        return known

    async def _fork(
        self, run: "RunRequest", ctx: CallContext, *, is_async: bool
    ) -> ExecutionResult:
        """Run a directive in a managed thread, here or in a process of its own."""
        try:
            if not is_async:
                return await self._threads().run(run, ctx)
            if self._threads().is_queued(run):
                return await self._threads().launch(run, ctx)
            if run.target != "local" or self._launch().can_rebuild_models:
                return await self._launch().fork(run, ctx)
            return await self._threads().launch(run, ctx)
        except RyeError as error:
            error.during(str(run.ref))
            raise

    async def _orchestrate(
        self, ref: ItemRef, parameters: Mapping[str, Any], ctx: CallContext
    ) -> ExecutionResult:
        """Serve the system bundle's orchestrator in this process; a replaced one runs as a tool.

        Source: decision 41. It reaches the caller's own threads.
        """
        began = time.perf_counter()
        chain = await self._executor.chain(ref, ctx)
        item = chain.head.item
        if item is None or item.source.space.name != "system":
            return await self._executor.execute(ref, parameters, ctx)
        if ctx.execution is not None:
            ctx.execution.item = item
        await ctx.begins()
        ctx = evolve(ctx, execution=None, intent=None)  # what it starts is an execute by itself
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

    async def start(self, request: ExecuteRequest, ctx: CallContext) -> "Thread":
        """Start a directive's thread; see `Rye.start`."""
        if self._executions is None:
            return await self._start(request, ctx)
        return await self._executions.run(
            str(request.item),
            ctx,
            partial(self._start, request),
            operation="start",
            target=str(request.target),
        )

    async def _start(self, request: ExecuteRequest, ctx: CallContext) -> "Thread":
        item = request.item
        try:
            ref = item if isinstance(item, ItemRef) else self._directive_ref(item)
            if ctx.execution is not None:
                ctx.execution.ref = str(ref)
            check_modes(request)
            check_cell(ref.kind, request.target, request.thread, async_=False)
            check_capability("execute", ref, ctx.capabilities)
            return await self._threads().start(_run_request(ref, request, ctx), ctx)
        except RyeError as error:
            error.during(str(item))
            raise

    async def inspect(self, item: str | ItemRef, ctx: CallContext) -> PreparedChain:
        """Prepare a tool's chain, and run nothing."""
        return await self._executor.inspect(self._allowed_tool(item, ctx), ctx)

    async def chain(self, item: str | ItemRef, ctx: CallContext) -> ValidChain:
        """Return a tool's verified chain, cached until something on disk changes. Nothing runs."""
        return await self._executor.chain(self._allowed_tool(item, ctx), ctx)

    async def plan(
        self,
        item: str | ItemRef,
        parameters: Mapping[str, Any],
        ctx: CallContext,
        timeout_s: float | None = None,
    ) -> "Planned":
        """Plan a call of a tool, if the caller may make it. Nothing runs."""
        ref = self._allowed_tool(item, ctx)
        chain, plan = await self._executor.plan(ref, check_mapping(parameters), ctx, timeout_s)
        from ryecore.runs.ports import Planned  # noqa: PLC0415 - only for threads and graphs

        return Planned(chain, plan, is_served_here=ref.id == ORCHESTRATOR)

    async def schema(self, item: str | ItemRef, ctx: CallContext) -> Mapping[str, Any] | None:
        """Return the JSON Schema of an item's parameters; None where a tool declares none."""
        ref = self._allowed(item, ctx)
        if ref.kind == "directive":
            need_loop()
            return await self._directives().schema(ref)
        return (await self._executor.inspect(ref, ctx)).chain.parameter_schema

    async def checker(
        self, item: str | ItemRef, ctx: CallContext
    ) -> "tuple[ItemRef, Callable[[Mapping[str, object]], Awaitable[object]]]":
        """Return an item's ref, and the check of inputs that a call of it makes. Nothing runs.

        The check raises InvalidInputs of a directive, InvalidParameters of a tool.
        """
        ref = self._allowed(item, ctx)
        if ref.kind == "directive":
            need_loop()
            return ref, await self._directives().checker(ref)
        schema = (await self._executor.inspect(ref, ctx)).chain.parameter_schema
        validator = None if schema is None else SchemaValidator(json.dumps(schema))
        return ref, partial(checked_parameters, ref.id, schema, validator)

    def _allowed(self, item: str | ItemRef, ctx: CallContext) -> ItemRef:
        """Return the ref of an item that the caller may execute."""
        try:
            ref = self._find_ref(item)
            check_cell(ref.kind, "local", "inline", async_=False)
            check_capability("execute", ref, ctx.capabilities)
        except RyeError as error:
            error.during(str(item))
            raise
        return ref

    def _allowed_tool(self, item: str | ItemRef, ctx: CallContext) -> ItemRef:
        ref = self._allowed(item, ctx)
        if ref.kind == "directive":
            raise InputError(
                "A directive has no chain.",
                next_step="Name a tool; a dry run of the directive shows its thread's plan.",
            ).during(str(ref))
        return ref

    def _directive_ref(self, text: str) -> ItemRef:
        is_bare = isinstance(text, str) and ":" not in text
        return ItemRef.parse(text, "directive") if is_bare else self._ref(text)

    def _find_ref(self, item: str | ItemRef) -> ItemRef:
        return item if isinstance(item, ItemRef) else self._ref(item)

    def _ref(self, text: str) -> ItemRef:
        if not isinstance(text, str) or not text:
            raise InvalidItemId("item_id is required.", next_step="Pass tool:ID or directive:ID.")
        return named(text, self._spaces)


def _run_request(ref: ItemRef, request: ExecuteRequest, ctx: CallContext) -> "RunRequest":
    """Return the request for a run of a directive, or of a tool in a process of its own."""
    # A process that runs one tool needs none of these.
    from ryecore.runs.request import (  # noqa: PLC0415
        RunRequest,
        ThreadOptions,
        parse_limits,
    )

    run = RunRequest(
        ref,
        check_mapping(request.parameters),
        parse_limits(request.limits),
        request.model,
        request.timeout_s,
        target=request.target,
        collect=request.pull,
    )
    if request.muted_hooks:
        run = evolve(run, thread=ThreadOptions(request.muted_hooks))
    return run.with_key(request.idempotency_key, ctx.capabilities, ctx.labels)


def _limits_of(request: ExecuteRequest) -> "Limits | None":
    """Return the limits that a caller sets, if any."""
    if request.limits is None:
        return None
    from ryecore.runs.request import parse_limits  # noqa: PLC0415 - only for limits

    limits = parse_limits(request.limits)
    return limits if limits.to_dict() else None


def _check_key(request: ExecuteRequest) -> None:
    """Refuse an idempotency key for a run that isn't registered."""
    key = request.idempotency_key
    if key is not None and (request.dry_run or not (request.async_ or request.thread == "fork")):
        raise InputError(
            "idempotency_key can be passed only for a tool with async and for a directive.",
            next_step="Pass async as well (--async), or leave it out.",
        )


def _check_options(kind: str, request: ExecuteRequest) -> None:
    foreign, why = _FOREIGN_OPTIONS[kind]
    for name in foreign:
        if getattr(request, name) is not None:
            raise InputError(f"{name} is {why}.", next_step="Leave it out.")
