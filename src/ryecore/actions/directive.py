"""The inline execution of directives: verify one, check its inputs, return its directions.

No model is needed. A dry run shows the plan of its thread.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio.to_thread
from attrs import field

from ryecore.actions.request import ExecuteRequest
from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.chain.rendering import render_directive
from ryecore.chain.trace import Trace
from ryecore.directives.inputs import Declared, fill, input_schema, resolve_inputs
from ryecore.directives.model import Directive
from ryecore.display.text import StyledText
from ryecore.errors import CallCancelled, InputError, RyeError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.runs.programs import ChainLookup, check_actions, check_hook
from ryecore.runs.request import RunRequest
from ryecore.threads.planner.planning import DirectivePlan, DirectivePlanner, check_body

__all__ = ["DirectiveAction", "DirectiveResult"]

_MAX_REPR: Final = 60


@frozen(repr=False)
class DirectiveResult(ExecutionResult):
    """The result of a directive: its directions, or a dry run's plan. It has no chain.

    Attributes:
        inputs: The inputs, defaults applied, each of its declared type.
        directive_plan: The plan of its thread; None except after a dry run.
    """

    inputs: Mapping[str, object] = field(factory=dict)
    directive_plan: DirectivePlan | None = None

    @property
    def your_directions(self) -> str:
        """The instructions to follow, with the inputs put in; empty after a dry run."""
        return self.data if isinstance(self.data, str) else ""

    def to_dict(self) -> dict[str, object]:
        """Return the response object for models and MCP clients.

        Source: docs/design/execute.md#in-thread-response; decision 33.
        """
        result: dict[str, object] = {"status": self.status}
        plan = self.directive_plan
        if plan is not None:
            result["message"] = "Directive validation passed (dry run)"
        result |= {"type": "directive", "item_id": self.item_id}
        if plan is None:
            result["your_directions"] = self.your_directions
        else:
            result |= {
                "data": plan.directive.to_dict(),
                "inputs": dict(self.inputs),
                **plan.to_dict(),
            }
        result["metadata"] = {"duration_ms": round(self.duration_ms), **self.metadata}
        if self.trace is not None:
            result["trace"] = [dict(event) for event in self.trace]
        return result

    def render(self) -> StyledText:
        """Render the result for a terminal or a notebook."""
        return render_directive(self.to_dict())

    def __repr__(self) -> str:
        first = self.your_directions.partition("\n")[0][:_MAX_REPR]
        return f"DirectiveResult({self.status}, {self.item_id!r}, {first!r})"


class DirectiveAction:
    """The action that executes directives inline."""

    def __init__(self, planner: DirectivePlanner, chain: ChainLookup) -> None:
        self._planner = planner
        self._chain = chain

    async def execute(
        self,
        run: RunRequest,
        request: ExecuteRequest,
        ctx: CallContext,
    ) -> DirectiveResult:
        """Execute a directive, or plan its thread in a dry run."""
        started, ref = time.perf_counter(), run.ref
        log = Trace(ctx.event_sink)
        try:
            _check_wanted(ref, ctx)
            done, directive = await anyio.to_thread.run_sync(
                self._execute, run, request, ctx, log, started
            )
            await self._check_programs(ref, directive, done.directive_plan)
        except RyeError as error:
            error.item_id = str(ref)  # the requested item, not the ancestor that failed
            error.during(
                str(ref), trace=log.events if request.trace else (), duration_ms=_since(started)
            )
            raise
        return done

    async def schema(self, ref: ItemRef) -> dict[str, object]:
        """Return the JSON Schema of a directive's inputs."""
        return input_schema(await self._inputs(ref))

    async def checker(
        self, ref: ItemRef
    ) -> Callable[[Mapping[str, object]], Awaitable[Mapping[str, object]]]:
        """Return the check of inputs that a start of a directive makes."""
        declared = await self._inputs(ref)

        async def check(inputs: Mapping[str, object]) -> Mapping[str, object]:
            return resolve_inputs(declared, inputs)

        return check

    async def _inputs(self, ref: ItemRef) -> tuple[Declared, ...]:
        try:
            loaded = await anyio.to_thread.run_sync(self._planner.load, ref, Trace())
        except RyeError as error:
            error.during(str(ref))
            raise
        return loaded.directive.inputs

    async def _check_programs(
        self, ref: ItemRef, directive: Directive, plan: DirectivePlan | None
    ) -> None:
        """Refuse a value within a program of an action or a hook, as the thread would."""
        for hook in () if plan is None else plan.hooks:
            await check_hook(hook, self._chain)
        await check_actions(ref, directive, self._chain)

    def _execute(
        self,
        run: RunRequest,
        request: ExecuteRequest,
        ctx: CallContext,
        log: Trace,
        started: float,
    ) -> tuple[DirectiveResult, Directive]:
        planner, ref = self._planner, run.ref
        loaded = planner.load(ref, log)
        if ctx.execution is not None:
            ctx.execution.item = loaded.item
        inputs = planner.inputs(loaded, run.inputs, log)
        model = None if run.model is None else planner.model(run.model, log)
        metadata: dict[str, object] = {}
        if not loaded.item.is_verified:
            metadata["integrity"] = loaded.item.integrity
        plan = None
        if request.dry_run:
            plan = planner.plan(
                loaded, inputs, model=model, overrides=run.limits, held=ctx.capabilities, log=log
            )
        else:
            check_body(loaded)
            metadata |= {"model": model} if model else {}
            metadata |= {"limits": run.limits.to_dict()} if request.limits else {}
        result = DirectiveResult(
            status="validation_passed" if request.dry_run else "success",
            item_id=str(ref),
            data=None if request.dry_run else fill(loaded.directive.body, inputs),
            error=None,
            chain=ValidChain(()),
            duration_ms=_since(started),
            metadata=metadata,
            trace=log.events if request.trace else None,
            inputs=inputs,
            directive_plan=plan,
        )
        return result, loaded.directive


def _check_wanted(ref: ItemRef, ctx: CallContext) -> None:
    if ctx.cancellation is not None and ctx.cancellation.cancelled:
        raise CallCancelled(f"{ref} was cancelled by its caller.")
    if ctx.deadline is not None and ctx.deadline <= time.monotonic():
        raise InputError("The caller's deadline has passed.", next_step="Give it more time.")


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
