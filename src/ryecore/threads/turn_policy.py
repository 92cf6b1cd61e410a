"""The policy of a thread: its verdicts at each point of the turn core.

Source: docs/design/threads.md#turn-loop; decisions 40 to 45 and 49.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from random import random
from typing import Any, Final, Literal, TypeAlias

from attrs import evolve, field

from ryecore.agent.compaction import Compaction, ContextUse
from ryecore.agent.compactor import Compactor
from ryecore.agent.deps import PreEgress
from ryecore.agent.policies import RequestGate
from ryecore.agent.spending import Spending
from ryecore.agent.verdicts import (
    ACCEPT,
    CONTINUE,
    DISPATCH,
    GO,
    KEEP,
    RAISE,
    AfterTurn,
    BeforeTurn,
    Fail,
    Feed,
    Finish,
    GoWithin,
    HandOff,
    Nudge,
    OnCall,
    OnError,
    OnResult,
    OnText,
    Refuse,
    Replace,
    RetryTurn,
    Stop,
    TurnPolicy,
    TurnState,
    ladder_verdict,
)
from ryecore.errors import LlmError, ToolCallError, ToolExecutionError, ToolPolicyError
from ryecore.frozen import frozen
from ryecore.llm.fallback_rules import AttemptVerdict, FallbackPlanEntry
from ryecore.llm.parts import Message, ToolCallPart, ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult
from ryecore.policy.cancelling import run_to_end
from ryecore.policy.limits import LimitHit
from ryecore.runs.hooks import HookOutcome, HookRunner
from ryecore.runs.resume import Continuation
from ryecore.threads.calls.guard import ResultGuard
from ryecore.threads.calls.palette import Palette
from ryecore.threads.calls.returning import (
    RETURN_NAMES,
    RETURN_TOOL,
    Rejected,
    Returned,
    check_outputs,
)
from ryecore.threads.calls.text_calls import as_text, extract_tool_calls
from ryecore.threads.events import ThreadRecorder
from ryecore.threads.harness import SafetyHarness
from ryecore.threads.planner.classification import RetryIn, classify, on_error_plan
from ryecore.threads.planner.planning import Composed, LoadedDirective, ThreadSettings
from ryecore.threads.records.messages import answer_payload, message_payload, result_payload
from ryecore.tools.definition import ToolDef
from ryecore.tools.results import ToolOutcome

__all__ = ["ResolvedDirective", "ThreadModel", "ThreadPlan", "ThreadPolicy"]

_USE_TOOLS: Final = "Use the tools that you have been given to do this, rather than describe it."
_RETURN: Final = (
    "You have not handed over the outputs yet. Call rye_directive_return with them; if you can't "
    'go on, call it with status "error" and say why in error_detail.'
)


_Written: TypeAlias = Literal["now", "soon", "with_turn"]
"""When the records around the calls of an answer are written."""


@frozen
class ResolvedDirective:
    """A directive with checked inputs, its models as `provider/model`, and the configuration."""

    loaded: LoadedDirective
    inputs: Mapping[str, object] = field(repr=False)
    model: str
    fallback: str | None
    settings: ThreadSettings


@frozen
class ThreadPlan:
    """The plan of a thread's loop."""

    thread_id: str
    directive: ResolvedDirective
    composed: Composed
    palette: Palette
    guard: ResultGuard
    continues: Continuation | None


@frozen
class ThreadModel:
    """The model that a thread's turns ask first, with the tokens of its context and of an answer.

    Without native tool calls, calls are read from its text.
    """

    provider: str
    name: str
    is_native: bool
    context_tokens: int
    output_tokens: int


class ThreadPolicy(TurnPolicy):
    """The verdicts of a thread. `gate` is the host's, called before each attempt."""

    def __init__(
        self,
        thread: ThreadPlan,
        model: ThreadModel,
        harness: SafetyHarness,
        spending: Spending,
        hooks: HookRunner,
        recorder: ThreadRecorder,
        gate: PreEgress | None,
    ) -> None:
        self.model = model
        self._thread = thread
        self._config = thread.directive.settings.loop
        self._outputs = thread.directive.loaded.directive.outputs
        self._kind = thread.continues.kind if thread.continues else None
        self._harness = harness
        self._spending = spending
        self._hooks = hooks
        self._recorder = recorder
        self._classification = thread.directive.settings.classification
        self._gate = None if gate is None else RequestGate(gate, thread.thread_id)
        self._nudged = 0
        self._use = ContextUse()
        self._text_calls = 0
        self._text_problem = ""
        self._has_answered = False
        self._written: _Written = "now"
        self._stopped_by = ""
        self._under_pressure = False
        self.limit: LimitHit | None = None
        self.returned: Returned | None = None
        self.handoff_wanted = False
        self.compactor: Compactor | None = None

    # Before the model

    async def before_turn(self, state: TurnState) -> BeforeTurn:
        """Check limits and requests to stop, and bound the answer by the balance."""
        if self._harness.is_cancelled:
            return Stop("cancelled")
        if self._stopped_by:
            return Stop(f"the hook {self._stopped_by}")
        if self._spending.stopped:
            return await self._limited(self._spending.overspent_hit())
        if state.errors:
            hit = self._harness.check_duration()
        else:
            hit = self._harness.check_limits(self._spending.cost)
        if hit is not None:
            return await self._limited(hit)
        if self.handoff_wanted or self._spending.handoff_requested:
            return Stop("handoff")
        self._spending.begin_turn(state.turn)
        self._recorder.turn = state.turn
        model = self.model
        used = self._context.of(state.messages) if self._has_answered else 0
        bound = await self._spending.output_bound(
            model.output_tokens, used, model.provider, model.name
        )
        return GO if bound == model.output_tokens else GoWithin(bound)

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Ask the host's gate, then hold the highest cost of the attempt."""
        if self._gate is not None:
            said = await self._gate.ask(entry, request, number)
            if isinstance(said, Refuse):
                return said
        self._context.request = request
        return await self._spending.before_attempt(entry, request, number)

    async def _limited(self, hit: LimitHit) -> Stop:
        if hit.code != "duration_exceeded":
            return await self.tell_limit(hit, self._hooks)
        # The deadline cancels this very task.
        return await run_to_end(partial(self.tell_limit, hit, self._hooks.past_the_end()))

    async def tell_limit(self, hit: LimitHit, hooks: HookRunner) -> Stop:
        """Record a limit that is met, and run the hooks for it."""
        self.limit = hit
        await self._recorder.tell("limit_reached", hit.to_dict())
        outcome = await hooks.run("limit", {**hit.to_dict(), "cost": self._cost(), **self._who()})
        # A continuation would have no more turns, and the same deadline.
        is_final = hit.code in ("turns_exceeded", "duration_exceeded")
        if outcome.control == "handoff" and self._may_hand_off and not is_final:
            self.handoff_wanted = True
            return Stop("handoff")
        return Stop("limit")

    @property
    def _may_hand_off(self) -> bool:
        """Return whether a handoff is allowed: not without progress since the last one."""
        is_moving = self._has_answered or self._kind != "handoff"
        return is_moving and not self._spending.stopped

    # The answer

    async def on_answer(self, state: TurnState, result: LlmResult) -> LlmResult:
        """Record the whole answer, and read calls from its text for a model without native ones.

        Its cost is settled before a call leaves this process or a person is asked about it; else
        with the next hold.
        """
        asked = result
        problem = ""
        if not self.model.is_native and not result.tool_calls:
            tools = (tool.spec for tool in self._thread.palette.tools)
            found = extract_tool_calls(result.text, start=self._text_calls + 1, tools=tools)
            problem = found.problem
            if found.calls:
                self._text_calls += len(found.calls)
                asked = evolve(result, parts=(*result.parts, *found.calls))
        self._text_problem = problem
        self._has_answered = True
        if self.compactor is None:
            self._use.note(asked, len(state.messages))
        else:
            self.compactor.note(asked, len(state.messages))
        palette, spending, calls = self._thread.palette, self._spending, asked.tool_calls
        leaves = any(call.name not in palette.functions for call in calls)
        if leaves or any(map(self._may_ask, calls)) or spending.has_overspent:
            await spending.settle_unwritten()
        self._recorder.append("cognition_out", answer_payload(state.turn, asked))
        self._written = self._when_written(calls, leaves=leaves)
        if not calls:  # its turn is signed next
            await self._recorder.write_soon()
        elif self._written == "now":
            await self._recorder.flush()
        return asked

    def _when_written(self, calls: Sequence[ToolCallPart], *, leaves: bool) -> _Written:
        """Return when the records around calls are written.

        Where nobody is asked about them, those of a single function are written with its intent
        and with the checkpoint of the turn, and those of read-only tools soon.

        Source: ADR 054.
        """
        if self._hooks.listens("after_step") or any(map(self._may_ask, calls)):
            return "now"
        if len(calls) == 1 and not leaves:
            return "with_turn"
        read_only = self._recorder.read_only
        return "soon" if all(call.name in read_only for call in calls) else "now"

    def _may_ask(self, call: ToolCallPart) -> bool:
        """Return whether a person may be asked about a call, who may answer in hours."""
        tool = self._thread.palette.registry.get(call.name)
        return tool is None or tool.needs_approval or bool(tool.policy.arguments)

    @property
    def _context(self) -> ContextUse:
        return self._use if self.compactor is None else self.compactor.use

    async def on_call(self, state: TurnState, call: ToolCallPart, tool: ToolDef | None) -> OnCall:
        """Handle `rye_directive_return` before anything is dispatched.

        Source: docs/design/threads.md#turn-loop; decision 44.
        """
        if call.name not in RETURN_NAMES:
            return DISPATCH
        if self.returned is not None:
            return Feed("not run: a call before it has handed over the outputs")
        checked = check_outputs(self._outputs, call.arguments_json)
        if isinstance(checked, Rejected):
            return Feed(checked.text)
        self.returned = checked
        await self._recorder.tell("directive_return", {"outputs": dict(checked.outputs)})
        outcome = await self._hooks.run(
            "directive_return",
            {"outputs": dict(checked.outputs), "cost": self._cost(), **self._who()},
        )
        if outcome.control in ("fail", "abort"):
            return Fail("validation", f"The hook {outcome.by} refuses the outputs.")
        return Finish(dict(checked.outputs))

    async def on_result(
        self, state: TurnState, call: ToolCallPart, came: ToolOutcome | ToolCallError
    ) -> OnResult:
        """Shorten a result for the model, or report a failure or denial, and record exactly that.

        Source: docs/design/threads.md#turn-loop; decision 43.
        """
        verdict: OnResult
        if isinstance(came, ToolOutcome):
            verdict = KEEP
        else:
            verdict = ladder_verdict(came)
            if isinstance(came, ToolExecutionError | ToolPolicyError):
                # A failure is a result that a model can work with; a denial is a correction.
                verdict = Feed(str(came), is_correction=isinstance(came, ToolPolicyError))
            outcome = await self._tell_error(call, came)
            if outcome.control in ("fail", "abort"):
                verdict = Fail("tool_failed", f"{came} The hook {outcome.by} ends the thread.")
            else:
                self.steer(outcome)
        return verdict

    async def _tell_error(self, call: ToolCallPart, error: ToolCallError) -> HookOutcome:
        await self._recorder.flush()
        return await self._hooks.run(
            "error",
            {
                "error": {"type": error.error_type, "message": error.message, "tool": call.name},
                "classification": {
                    "category": classify(error, self._classification),
                    "retryable": False,
                },
                "cost": self._cost(),
                **self._who(),
            },
        )

    async def on_final_result(self, state: TurnState, part: ToolResultPart) -> None:
        """Record the result of a call for the model, as soon as it is certain."""
        self._recorder.append("tool_call_result", result_payload(state.turn, part))
        if part.is_error or self._written == "now":
            await self._recorder.flush()
        elif self._written == "soon":
            await self._recorder.write_soon()

    async def on_text(self, state: TurnState, result: LlmResult) -> OnText:
        """Accept a text, after reminders to use tools and to return outputs.

        Source: docs/design/threads.md#turn-loop; decision 44.
        """
        if self._text_problem:
            return await self._close_with(Nudge(self._text_problem))
        required = [one.name for one in self._outputs if one.required]
        if self._outputs and self._nudged < self._config.nudges:
            self._nudged += 1
            return await self._close_with(Nudge(_RETURN, is_correction=False))
        if required:
            return Fail(
                "validation",
                f"The model ended without the outputs that are required: {', '.join(required)}.",
            )
        may_nudge = state.turn == 1 and self._kind is None and self.model.is_native
        if may_nudge and self._has_tools and self._config.nudges:
            return await self._close_with(Nudge(_USE_TOOLS, is_correction=False))
        return ACCEPT

    @property
    def _has_tools(self) -> bool:
        """Whether the model has any tool besides the one that ends the thread."""
        return any(tool.name != RETURN_TOOL for tool in self._thread.palette.tools)

    async def _close_with(self, nudge: Nudge) -> Nudge:
        """Close a turn after which the model gets a reminder."""
        self._recorder.append(
            "cognition_in", message_payload(self._recorder.turn, Message.user(nudge.text))
        )
        await self._after_step()
        await self._recorder.close_turn(self._recorder.turn)
        return nudge

    async def _after_step(self) -> None:
        if self._hooks.listens("after_step"):
            outcome = await self._hooks.run("after_step", {"cost": self._cost(), **self._who()})
            self.steer(outcome)

    def steer(self, outcome: HookOutcome) -> None:
        """Apply a hook's control result at the next turn: end the thread, or hand it off."""
        if outcome.control in ("fail", "abort"):
            self._stopped_by = self._stopped_by or outcome.by
        elif outcome.control == "handoff":
            self.handoff_wanted = True

    # After it

    async def on_error(self, state: TurnState, error: LlmError) -> OnError:
        """Classify an error, run the hooks, and decide whether to retry."""
        spending = self._spending
        await spending.settle_unwritten()
        if error.kind == "refused":
            if spending.asks_again() or spending.handoff_requested:
                return RetryTurn()
            return RAISE if spending.limit is None else await self._limited(spending.limit)
        if self._harness.is_cancelled:
            return Stop("cancelled")
        if error.kind == "context_length" and self.compactor is not None:
            done = await self.compactor.when_refused(state.messages)
            if isinstance(done, Compaction):
                return self._replaced(done)
        if error.kind == "context_length" and state.turn > 1:
            await self._tell_context_full(state, 1.0)
            return Stop(f"the hook {self._stopped_by}" if self._stopped_by else "handoff")
        planned = on_error_plan(error, state.errors, None, self._classification)
        outcome = await self._hooks.run(
            "error",
            {
                "error": {"type": error.kind, "message": error.message, "status": error.status},
                "classification": planned.to_dict(),
                "cost": self._cost(),
                **self._who(),
            },
        )
        planned = on_error_plan(
            error,
            state.errors,
            outcome.control,
            self._classification,
            jitter=random(),  # noqa: S311 - no secret
        )
        if outcome.control == "handoff" and self._may_hand_off:
            self.handoff_wanted = True
            return Stop("handoff")
        if not isinstance(planned, RetryIn) or self._harness.ends_within(planned.seconds):
            return RAISE
        return RetryTurn(planned.seconds)

    async def after_turn(self, state: TurnState, result: LlmResult) -> AfterTurn:
        """Run the hooks after a step, close the turn in the transcript, and check the context."""
        config = self._config
        await self._after_step()
        await self._recorder.close_turn(state.turn, soon=True)
        if self._stopped_by or self.handoff_wanted:
            return CONTINUE  # the next turn begins with that
        is_over = self._harness.check_limits(self._spending.cost) is not None
        if self.compactor is not None and not is_over:
            done = await self.compactor.when_due(state.messages)
            if isinstance(done, Compaction):
                return self._replaced(done)
        used = self._context.of(state.messages) / self.model.context_tokens
        self._thread.guard.context_share = used
        if used >= config.handoff_at:
            await self._tell_context_full(state, used)
            return CONTINUE if is_over or self._stopped_by else HandOff({"reason": "context"})
        if used >= config.pressure_at and not self._under_pressure:
            self._under_pressure = True
            self.steer(
                await self._hooks.run("context_window_pressure", {"used": used, **self._who()})
            )
        if not self.model.is_native:
            return Replace(as_text(state.messages))
        return CONTINUE

    def _replaced(self, done: Compaction) -> Replace:
        """Continue with a summary in place of the conversation's beginning."""
        self._thread.guard.context_share = done.tokens_after / done.window_tokens
        self._under_pressure = False
        return Replace(done.messages)

    async def _tell_context_full(self, state: TurnState, used: float) -> None:
        await self._recorder.tell(
            "context_limit_reached",
            {
                "tokens": self._context.of(state.messages),
                "window": self.model.context_tokens,
            },
        )
        self.steer(await self._hooks.run("context_limit_reached", {"used": used, **self._who()}))
        self.handoff_wanted = not self._stopped_by

    def _who(self) -> dict[str, Any]:
        return {"thread_id": self._thread.thread_id, "directive": self._thread.directive.loaded.id}

    def _cost(self) -> Mapping[str, object]:
        return self._spending.cost.to_dict()
