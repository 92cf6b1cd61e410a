"""Execute a tool through its verified chain."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from ryecore.chain.interpreters import Interpreters
from ryecore.chain.layout import SealedLayout, anchor_hint
from ryecore.chain.model import Chain, ExecutionPlan, ExecutionResult, ValidChain
from ryecore.chain.plan import check_pinned, checked_parameters
from ryecore.chain.prepared import ChainCache, PreparedChain, Preparer
from ryecore.chain.primitives import (
    PRIMITIVE_MAP,
    KeptProcesses,
    Outcome,
    OwnProcesses,
    process_spec,
    read_outcome,
)
from ryecore.chain.trace import Trace
from ryecore.errors import (
    CallCancelled,
    ConfigError,
    InputError,
    InterpreterNotFound,
    RyeError,
    SpawnFailed,
)
from ryecore.items.paths import find_on_path
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import ItemSource
from ryecore.items.verification import Verifier
from ryecore.lillux.event_loop import checkpoint, is_without_loop, need_loop, run_in_thread
from ryecore.lillux.processes import ProcessResult, WarmPool
from ryecore.lillux.witness import Evidence
from ryecore.policy.context import CALL_ID, CallContext, call_id_of, thread_variables

if TYPE_CHECKING:
    import anyio

    from ryecore.chain.channel_calls import ChannelCalls
    from ryecore.policy.limits import Limits
    from ryecore.policy.reports import Ask

__all__ = ["PrimitiveExecutor"]

_MAX_AUDITED_INLINE: Final = 4
"""How many files a dry run verifies where it is: a thread to do it takes as long as two of them."""

_FAILED_IMPORT: Final = re.compile(
    r"^(?:ModuleNotFoundError: No module named '([\w.]+)'|ImportError: [^\n]*)"
    r"(?:\Z|\n\nThe above exception was the direct cause of )",
    re.MULTILINE,
)
"""A failed import that ends a tool's error, or caused what ends it."""


class PrimitiveExecutor:
    """Builds, verifies, validates, plans and runs.

    Args:
        keeper: Makes what keeps processes for the next call, when one is first to be kept;
            without it, each ends with its call.
        warm_memory_bytes: What templates, and what they have forked ahead, may take; with 0 every
            process starts cold.
        ask: Answers the questions of tools, where their caller doesn't.
    """

    def __init__(
        self,
        preparer: Preparer,
        interpreters: Interpreters,
        auditor: Verifier,
        project: str,
        keeper: Callable[[], KeptProcesses] | None = None,
        own: Callable[[], OwnProcesses] | None = None,
        warm_memory_bytes: int = 0,
        ask: "Ask | None" = None,
    ) -> None:
        self._preparer = preparer
        self._interpreters = interpreters
        self._auditor = auditor
        self._project = project
        self._keeper = keeper
        self._own = own
        self._kept: KeptProcesses | None = None
        self._warm_memory_bytes = warm_memory_bytes
        self._pool: WarmPool | None = None
        self._ask = ask
        self._channels: ChannelCalls | None = None
        self._cache = ChainCache()
        self._making: dict[ItemRef, anyio.Lock] = {}
        self._unremembered: set[ItemRef] = set()

    async def execute(
        self,
        ref: ItemRef,
        parameters: Mapping[str, Any],
        ctx: CallContext,
        *,
        timeout_s: float | None = None,
        dry_run: bool = False,
        trace: bool = False,
        output_log: str | None = None,
        limits: "Limits | None" = None,
    ) -> ExecutionResult:
        """Execute a tool, or show what would be executed. A tool that ran and failed has a result.

        Args:
            dry_run: Stop before anything runs, with every signature checked anew.
            limits: The caller's limits, where the tool is a graph.

        Raises:
            RyeError: Nothing ran: the tool can't be found, verified, planned or started.
        """
        started = time.perf_counter()
        log = Trace(ctx.event_sink)
        is_traced = trace or ctx.event_sink is not None
        prepared: PreparedChain | None = None
        try:
            # Who asks for the events gets those of this very call, so nothing is remembered.
            prepared = await self._prepared(ref, log, fresh=is_traced)
            if ctx.execution is not None:
                ctx.execution.item = prepared.chain.head.item
            if limits is not None:
                prepared.chain.check_takes_limits(str(ref))
            if dry_run:
                await self._audit(prepared, ref, log)
            plan = await self._plan(prepared, ref, parameters, ctx, timeout_s, log)
            if output_log is not None or limits is not None:
                plan = evolve(plan, output_log=output_log, limits=limits)
            done = None if dry_run else await self._run(plan, prepared, ref, ctx, log)
        except RyeError as error:
            _explain(error, ref, prepared)
            error.during(
                str(ref),
                chain=() if prepared is None else prepared.chain.ids,
                trace=log.events if trace else (),
                duration_ms=_since(started),
            )
            raise
        if done is None:
            return ExecutionResult(
                "validation_passed", str(ref), None, None, prepared.chain, _since(started),
                trace=log.events if trace else None, plan=plan,
            )  # fmt: skip
        outcome = _read_outcome(done, plan, prepared, ctx)
        if is_traced:
            log.add("execute", **_execute_event(ref, plan, done, outcome))
        return ExecutionResult(
            "success" if outcome.success else "error",
            str(ref),
            outcome.data,
            outcome.error,
            prepared.chain,
            _since(started),
            _metadata(outcome, plan, prepared),
            log.events if trace else None,
            effect_unknown=outcome.effect_unknown,
        )

    async def inspect(self, ref: ItemRef, ctx: CallContext) -> PreparedChain:
        """Make a tool's chain ready, and run nothing."""
        log = Trace(ctx.event_sink)
        try:
            return await self._prepared(ref, log, fresh=True)
        except RyeError as error:
            error.item_id = str(ref)
            error.during(str(ref), trace=log.events)
            raise

    async def plan(
        self,
        ref: ItemRef,
        parameters: Mapping[str, Any],
        ctx: CallContext,
        timeout_s: float | None = None,
    ) -> tuple[ValidChain, ExecutionPlan]:
        """Return what an execution would run; its chain is cached as for the execution."""
        try:
            prepared = await self._prepared(ref, Trace(ctx.event_sink))
            plan = await self._plan(prepared, ref, parameters, ctx, timeout_s, Trace(None))
        except RyeError as error:
            error.item_id = str(ref)
            raise
        return prepared.chain, plan

    async def chain(self, ref: ItemRef, ctx: CallContext) -> ValidChain:
        """Return a tool's chain, verified, and remembered while nothing on disk has changed."""
        try:
            return (await self._prepared(ref, Trace(ctx.event_sink))).chain
        except RyeError as error:
            error.item_id = str(ref)
            raise

    async def _prepared(self, ref: ItemRef, log: Trace, *, fresh: bool = False) -> PreparedChain:
        if fresh:
            return await self._prepare(ref, log)
        found = self._cache.get(ref)
        if found is not None:
            return found
        if is_without_loop():
            return await self._prepare(ref, log)
        from anyio import Lock  # noqa: PLC0415 - where a loop runs

        # Of many calls at once, one makes the chain ready and the others take it from there.
        lock = self._making.setdefault(ref, Lock())
        try:
            async with lock:
                found = self._cache.get(ref)
                if found is not None:
                    return found
                if ref not in self._unremembered:
                    return await self._prepare(ref, log)
        finally:
            if not lock.statistics().locked:
                self._making.pop(ref, None)
        return await self._prepare(ref, log)  # each makes its own, all at the same time

    async def _prepare(self, ref: ItemRef, log: Trace) -> PreparedChain:
        # Reading, verifying and sealing can take a while, so the event loop keeps running.
        prepared = await run_in_thread(self._preparer.prepare, ref, log)
        self._cache.put(ref, prepared)
        if prepared.witness is None:
            self._unremembered.add(ref)
        else:
            self._unremembered.discard(ref)
        return prepared

    async def _audit(self, prepared: PreparedChain, ref: ItemRef, log: Trace) -> None:
        elements = prepared.chain.all_elements
        sources = [element.item.source for element in elements if element.item is not None]
        sources += prepared.layout.dependencies
        with log.failing("verify_integrity", item_id=ref.id, verified=False):
            if len(sources) <= _MAX_AUDITED_INLINE:
                self._audit_all(sources)
                await checkpoint()
            else:
                await run_in_thread(self._audit_all, sources)

    def _audit_all(self, sources: Iterable[ItemSource]) -> None:
        for source in sources:
            self._auditor.verify(source)

    async def _plan(
        self,
        prepared: PreparedChain,
        ref: ItemRef,
        parameters: Mapping[str, Any],
        ctx: CallContext,
        timeout_s: float | None,
        log: Trace,
    ) -> ExecutionPlan:
        head = prepared.chain.head
        with log.failing("check_parameters", item_id=head.item_id):
            checked = await checked_parameters(
                head.item_id, head.spec.config_schema, prepared.schema, parameters
            )
            timeout_s = _bounded_timeout(timeout_s, prepared.timeout_s)
            check_pinned(prepared.chain, is_for_model=ctx.capabilities is not None)
        unknown: set[str] = set()
        with log.failing("plan", item_id=head.item_id):
            call_env = self._call_env(ref, parameters, ctx)
            plan = prepared.planner.plan(checked, timeout_s, unknown, call_env)
            plan = _within_deadline(self._with_program(plan, prepared.layout), ctx)
        if unknown:
            log.add("template", item_id=head.item_id, unknown=sorted(unknown))
        log.add("plan", command=plan.command, cwd=plan.cwd, timeout_s=plan.timeout_s)
        return plan

    def _call_env(
        self, ref: ItemRef, parameters: Mapping[str, Any], ctx: CallContext
    ) -> dict[str, str]:
        """Return the variables that identify a tool's call, and the run that it is part of."""
        identity = {CALL_ID: call_id_of(ctx.call_id, str(ref), parameters)}
        if ctx.budget_account is not None:
            identity |= thread_variables(self._project, ctx.budget_account)
        return identity

    def _with_program(self, plan: ExecutionPlan, layout: SealedLayout) -> ExecutionPlan:
        """Return the plan with its command as a path that may run."""
        if self._interpreters.may_run_again(plan.command):
            return plan
        refused: list[str] = []
        for program in find_on_path(plan.command, plan.env.get("PATH", "")):
            if self._interpreters.may_run(program, Evidence()) or layout.holds(program):
                return plan if program == plan.command else evolve(plan, command=program)
            refused.append(program)
        if refused:
            raise InterpreterNotFound(
                f"{refused[0]} lies inside the project, which is not trusted.",
                next_step="If you trust this project's own programs: rye trust-project",
                tried=tuple(refused),
            )
        if layout.holds(plan.command) and os.path.isfile(plan.command):
            raise InterpreterNotFound(
                f"{layout.as_authored(plan.command)} is not a program: it is neither a binary nor "
                "a script that begins with #!.",
                next_step="Put the program itself there and sign it.",
                tried=(plan.command,),
            )
        raise InterpreterNotFound(
            f"{plan.command} is not a program"
            + ("." if plan.command.startswith("/") else " on the PATH."),
            next_step="Install it, or correct the runtime's command and sign it again.",
            tried=(plan.command,),
        )

    async def aclose(self) -> None:
        """End the processes that are kept or forked ahead, and wait until none is left."""
        try:
            if self._kept is not None:
                await self._kept.aclose()
        finally:
            if self._channels is not None:
                self._channels.close()
            if self._pool is not None:
                await _close(self._pool)

    async def _carry_out(
        self, plan: ExecutionPlan, chain: Chain, ref: ItemRef, ctx: CallContext
    ) -> ProcessResult:
        if chain.is_own_process:
            need_loop()
            if self._own is None:
                raise ConfigError("This executor starts no process of ryecore's own.")
            await ctx.begins()
            return await self._own().run(plan, ref, ctx)
        if plan.keep is None or self._keeper is None:
            pool = self._warm_pool() if plan.warm is not None else None
            primitive = PRIMITIVE_MAP[chain.elements[-1].item_id](pool)
            if chain.head.spec.has_channel:
                need_loop()
                return await self._channel_calls().run(primitive.run, plan, chain, ref, ctx)
            await ctx.begins()
            return await primitive.run(plan)
        need_loop()
        if self._kept is None:
            self._kept = self._keeper()
        await ctx.begins()
        from ryecore.policy.reports import ToolCaller  # noqa: PLC0415 - only for kept processes

        caller = ToolCaller(ref.id, ctx, ctx.ask or self._ask)
        return await self._kept.run(process_spec(plan), plan.keep, caller)

    def _channel_calls(self) -> "ChannelCalls":
        if self._channels is None:
            from ryecore.chain.channel_calls import ChannelCalls  # noqa: PLC0415 - with anyio

            self._channels = ChannelCalls(self._ask)
        return self._channels

    def _warm_pool(self) -> WarmPool | None:
        if self._pool is None and self._warm_memory_bytes:
            self._pool = WarmPool(self._warm_memory_bytes)
        return self._pool

    async def _run(
        self,
        plan: ExecutionPlan,
        prepared: PreparedChain,
        ref: ItemRef,
        ctx: CallContext,
        log: Trace,
    ) -> ProcessResult:
        with log.failing("execute", item_id=ref.id):
            try:
                if ctx.cancellation is None:
                    return await self._carry_out(plan, prepared.chain, ref, ctx)
                from ryecore.policy.cancelling import cancelled_by  # noqa: PLC0415 - with anyio

                with cancelled_by(ctx.cancellation):
                    return await self._carry_out(plan, prepared.chain, ref, ctx)
            except SpawnFailed:
                self._cache.forget(ref)  # an interpreter may have gone; look again next time
                raise
            raise CallCancelled(f"{ref} was cancelled by its caller.")


def _explain(error: RyeError, ref: ItemRef, prepared: PreparedChain | None) -> None:
    """Let an error name what was asked for, the author's own files, and what a `.env` explains."""
    error.item_id = str(ref)  # not the element that failed
    if prepared is None:
        return
    error.message = prepared.layout.as_authored(error.message)
    hint = prepared.dotenv.hint(error.message, is_refusal=True)
    error.next_step = f"{prepared.layout.as_authored(error.next_step)} {hint}".strip()


def _read_outcome(
    done: ProcessResult, plan: ExecutionPlan, prepared: PreparedChain, ctx: CallContext
) -> Outcome:
    # What was left of a deadline is a number that nobody has written.
    timeout_s = None if _is_past(ctx.deadline) else plan.timeout_s
    outcome = read_outcome(done, timeout_s, prepared.layout.as_authored)
    if outcome.success:
        return outcome
    if prepared.layout.anchor_path is None:
        hint = anchor_hint(prepared.chain, outcome.error)
        if hint:  # the module is the author's own: no package is to be installed in its place
            return evolve(outcome, error=f"{outcome.error}\n{hint}")
    return _with_interpreter(outcome, plan.command)


def _with_interpreter(outcome: Outcome, command: str) -> Outcome:
    """Name the interpreter on which an import of a Python tool failed."""
    failed = _FAILED_IMPORT.search((outcome.error or "").rstrip())
    if failed is None or not command.rpartition("/")[2].startswith("python"):
        return outcome
    notes, module = {**outcome.notes, "interpreter": command}, failed[1]
    if module is None:
        hint = f"{command} ran this tool: what it imports has to be installed there."
    else:
        notes["missing_module"] = module
        package, _, inner = module.partition(".")
        hint = f"{command} ran this tool and has no module {module}. " + (
            f"Another version of {package} may have it."
            if inner
            else f"If a package has it, install that there: {command} -m pip install {module}"
        )
    return evolve(outcome, error=f"{outcome.error}\n{hint}", notes=notes)


async def _close(pool: WarmPool) -> None:
    try:
        await run_in_thread(pool.close)
    except RuntimeError:  # no thread can be started any more while the interpreter ends
        pool.close()


def _bounded_timeout(callers: float | None, configured: float | None) -> float | None:
    if callers is None:
        return configured
    is_number = isinstance(callers, int | float) and not isinstance(callers, bool)
    if not is_number or not callers > 0 or callers == float("inf"):
        raise InputError(
            f"A timeout of {callers!r} s can't be kept.", next_step="Pass a positive number."
        )
    return float(callers)


def _within_deadline(plan: ExecutionPlan, ctx: CallContext) -> ExecutionPlan:
    if ctx.deadline is None:
        return plan
    left_s = ctx.deadline - time.monotonic()
    if left_s <= 0:
        raise InputError("The caller's deadline has passed.", next_step="Give it more time.")
    return evolve(plan, timeout_s=min(plan.timeout_s, left_s))


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _execute_event(
    ref: ItemRef, plan: ExecutionPlan, done: ProcessResult, outcome: Outcome
) -> dict[str, object]:
    event: dict[str, object] = {
        "item_id": ref.id,
        "status": done.status,
        "exit_code": done.exit_code,
        "duration_ms": round(done.duration_ms, 3),
    }
    if plan.keep is None:  # one that is kept was not started for this call
        event["start"] = "warm" if done.warm else "cold"
        if done.why_cold:
            event["why_cold"] = done.why_cold
    return event if outcome.success else event | {"failed": True, "error": outcome.error}


def _metadata(outcome: Outcome, plan: ExecutionPlan, prepared: PreparedChain) -> dict[str, object]:
    chain = prepared.chain
    metadata = dict(outcome.notes)
    hint = "" if outcome.success else prepared.dotenv.hint(f"{outcome.error} {outcome.data}")
    if hint:
        metadata["hint"] = hint
    if plan.deps == "unverified":
        metadata["deps"] = plan.deps
    if not chain.is_verified:
        metadata["integrity"] = "unverified"
    if chain.is_pinned is not None:
        metadata["pinned"] = chain.is_pinned
    return metadata


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
