"""The model loop of one thread: its first message, its turns on the turn core, its ending.

Source: docs/design/threads.md#turn-loop; docs/design/threads.md#states; decisions 42 to 49.
"""

from collections.abc import Callable, Mapping
from typing import Final, Self

from attrs import evolve, field

from ryecore.agent.assembly import (
    TurnSetup,
    chain_options,
    cost_meter,
    plan_entry,
    tool_context,
)
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.model import Agent
from ryecore.agent.outcome import failure_of
from ryecore.agent.spending import MAX_OUTPUT_TOKENS, Spending
from ryecore.agent.turns import TurnResult, run_turns
from ryecore.directives.inputs import render_returns
from ryecore.errors import LlmError, RyeError
from ryecore.frozen import frozen
from ryecore.llm.fallback import FallbackChain
from ryecore.llm.fallback_rules import FallbackPlanEntry
from ryecore.llm.parts import Message
from ryecore.llm.request import CacheLifetime, Capabilities, LlmRequest
from ryecore.policy import CallContext
from ryecore.policy.hooks import HookEvent
from ryecore.policy.limits import LimitHit
from ryecore.runs.hooks import HookOutcome, HookRunner
from ryecore.runs.host import RunHost
from ryecore.state.model import Status
from ryecore.state.store import ThreadStore
from ryecore.threads.calls.approvals import ThreadApprovals
from ryecore.threads.calls.returning import Returned
from ryecore.threads.calls.text_calls import as_text, render_tools
from ryecore.threads.compaction import compact_of, make_compactor, window_of
from ryecore.threads.events import ThreadRecorder
from ryecore.threads.harness import SafetyHarness
from ryecore.threads.media import ThreadMediaStore, replace_media
from ryecore.threads.planner.prompt import (
    continued_message,
    directive_context,
    first_message,
    opening_tag,
    system_text,
)
from ryecore.threads.records.messages import message_payload
from ryecore.threads.turn_policy import ThreadModel, ThreadPlan, ThreadPolicy

__all__ = [
    "ThreadEnding",
    "ThreadLoop",
    "ending_of_error",
    "ending_of_stop",
    "ending_of_turns",
]

_NO_TURNS: Final = 1_000_000


@frozen
class ThreadEnding:
    """The ending of a thread, whose status is `completed` until a handoff has succeeded.

    The code is that of the error; for a handoff, of the limit that caused it. The error ends with
    the next step, if there is one.
    """

    status: Status
    text: str = ""
    outputs: Mapping[str, object] = field(factory=dict)
    error: str | None = None
    code: str = ""
    hands_off: bool = False
    next_step: str = ""

    @classmethod
    def of_limit(cls, hit: LimitHit, text: str = "") -> Self:
        """Return the ending of a thread that met a limit."""
        return cls("error", text, error=hit.message, code=hit.code, next_step=hit.advice)


class ThreadLoop:
    """The loop of turns of one thread, with its conversation and spending."""

    def __init__(
        self,
        host: RunHost,
        store: ThreadStore,
        thread: ThreadPlan,
        harness: SafetyHarness,
        hooks: HookRunner,
        recorder: ThreadRecorder,
        call: CallContext,
    ) -> None:
        self._host = host
        self._store = store
        ledger = store.ledger
        self._thread = thread
        self._directive = thread.directive
        self._harness = harness
        self._hooks = hooks
        self._recorder = recorder
        self._call = call
        self._deps = host.deps_within(self._directive.settings.loop.rate_limits)
        self.spending = Spending(
            thread.thread_id,
            ledger,
            harness.limits,
            self._deps,
            recorder,
            harness.cancellation,
            waits=host.budget_waits.of(thread.thread_id, ledger),
            hands_off=True,
        )
        self.messages: list[Message] = []
        self._policy: ThreadPolicy | None = None
        self._media: ThreadMediaStore | None = None
        self._wants_handoff = False

    @property
    def most_handed_on(self) -> int:
        """The most tokens of the conversation that a handoff passes on."""
        most, policy = self._directive.settings.loop.resume_ceiling_tokens, self._policy
        return most if policy is None else min(most, policy.model.context_tokens // 2)

    def want_handoff(self) -> None:
        """Request a handoff to another thread at the next turn."""
        self._wants_handoff = True
        if self._policy is not None:
            self._policy.handoff_wanted = True

    async def run(self) -> ThreadEnding:
        """Run turns until the thread ends."""
        plan = self._plan()
        compact = compact_of(self._deps, self._directive.settings.loop)
        policy = ThreadPolicy(
            self._thread,
            _model_of(plan[0], window_of(plan[0], compact)),
            self._harness,
            self.spending,
            self._hooks,
            self._recorder,
            self._deps.pre_egress,
        )
        policy.handoff_wanted = self._wants_handoff
        self._policy = policy
        if self._deps.media is None:
            self._media = ThreadMediaStore(self._store, self._thread.thread_id, _takes_all_of(plan))
        system = await self._begin(policy)
        setup = self._setup(system, plan, policy)
        if compact is not None and policy.model.is_native:
            policy.compactor = make_compactor(
                compact,
                policy.model.context_tokens,
                self._agent(plan, policy, system),
                self._deps,
                setup.tool_context.call,
                self._recorder,
                opening_tag(self._directive.loaded.directive),
            )
        observer = self._deps.observer
        if observer is None:
            result = await run_turns(setup, self.messages)
        else:
            with observer.run(self._thread.thread_id, self._agent(plan, policy, system)):
                result = await run_turns(setup, self.messages)
        return ending_of_turns(result, policy.returned, policy.limit)

    async def tell_time_is_up(self, hit: LimitHit) -> None:
        """Record the duration limit, if no turn has, and run the hooks for it."""
        policy = self._policy
        if policy is None:
            await self._recorder.tell("limit_reached", hit.to_dict())
        elif policy.limit is None or policy.limit.code != hit.code:
            await policy.tell_limit(hit, self._hooks.past_the_end())

    def _plan(self) -> tuple[FallbackPlanEntry, ...]:
        entries = []
        for named in dict.fromkeys((self._directive.model, self._directive.fallback)):
            if named is not None:
                provider, _, model = named.partition("/")
                entries.append(plan_entry(self._deps, self._call, provider, model))
        return tuple(entries)

    async def _begin(self, policy: ThreadPolicy) -> str:
        """Record the first messages, and return the system prompt.

        Only hooks and the directive's own context supply it.

        Source: docs/design/threads.md#first-message.
        """
        thread, continues, native = self._thread, self._thread.continues, policy.model.is_native
        resolved, directive = self._directive, self._directive.loaded.directive
        event: HookEvent = "thread_continued" if continues else "thread_started"
        outcome = HookOutcome()
        if self._hooks.listens(event):
            context = {
                "directive": resolved.loaded.id,
                "directive_body": directive.body,
                "model": resolved.model,
                "limits": self._harness.limits.to_dict(),
                "inputs": dict(resolved.inputs),
                "thread_id": thread.thread_id,
            }
            if continues is not None:
                context["previous_thread_id"] = continues.previous_id
            outcome = await self._hooks.run(event, context)
        if outcome.control != "handoff":  # nothing has been done that could be handed off
            policy.steer(outcome)
        own = await directive_context(thread.composed.context, self._host.dispatcher, self._call)
        blocks = (*own, *outcome.blocks)
        if blocks:
            self._recorder.append(
                "context_injected", {"event": event, "blocks": [one.to_dict() for one in blocks]}
            )
        if continues is None:
            returns = render_returns(directive.outputs)
            text = first_message(blocks, directive, resolved.inputs, returns)
        else:
            earlier = self._readable(continues.messages)
            self.messages.extend(earlier if native else as_text(earlier))
            text = continued_message(blocks, directive, resolved.inputs, continues)
        if not native:
            text = f"{text}\n\n{render_tools(tool.spec for tool in thread.palette.tools)}"
        self.messages.append(Message.user(text))
        self._recorder.append("cognition_in", message_payload(0, self.messages[-1]))
        await self._recorder.close_turn(0, soon=True)
        return system_text(blocks)

    def _agent(
        self, plan: tuple[FallbackPlanEntry, ...], policy: ThreadPolicy, system: str
    ) -> Agent:
        return Agent(
            name=self._directive.loaded.id,
            provider=plan[0].provider.provider_id,
            model=plan[0].model,
            system_prompt=system,
            tools=tuple(tool.name for tool in self._thread.palette.tools),
            max_output_tokens=policy.model.output_tokens,
        )

    def _asking(self) -> AgentRunnerDeps:
        """Return the dependencies with approvals that any process can answer."""
        ask = ThreadApprovals(self._host, self._thread.thread_id, self._recorder)
        return evolve(self._deps, approve=ask)

    def _setup(
        self,
        system: str,
        plan: tuple[FallbackPlanEntry, ...],
        policy: ThreadPolicy,
    ) -> TurnSetup:
        deps, recorder, palette = self._deps, self._recorder, self._thread.palette
        thread_id, is_native = self._thread.thread_id, policy.model.is_native
        recorder.read_only = frozenset(one.name for one in palette.registry if one.read_only)
        meter = cost_meter(deps, None, thread_id, self.spending.on_cost)
        call = evolve(self._call, budget=self.spending)
        media = self._media
        return TurnSetup(
            deps=deps,
            registry=palette.registry,
            max_tool_turns=self._harness.limits.turns or _NO_TURNS,
            chain=FallbackChain(plan, chain_options(deps, self._call, meter, policy, media)),
            tool_context=tool_context(
                deps if deps.approve is not None else self._asking(),
                None,
                call,
                present=self._thread.guard,
                recorded=recorder.commit,
                recorded_soon=recorder.write_soon,
                media=media,
            ),
            request=LlmRequest(
                model=policy.model.name,
                messages=(),
                system=system,
                tools=tuple(tool.spec for tool in palette.tools) if is_native else (),
                max_output_tokens=policy.model.output_tokens,
                cache=self._cache(),
            ),
            node_id=thread_id,
            emit=recorder.emit,
            meter=meter,
            policy=policy,
            emits_results=False,  # the policy records them as the model gets them
            in_order=self._is_in_order(),
        )

    def _readable(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return messages of an earlier thread without media that this one's model can't take."""
        media = self._media
        if media is None:  # the host decides what its store holds
            return messages
        return replace_media(messages, lambda part: media.takes(part.media_type))

    def _is_in_order(self) -> bool:
        """Return whether the directive wants calls of tools one after the other."""
        declared = self._directive.loaded.directive.model
        return declared is not None and declared.parallel is False

    def _cache(self) -> CacheLifetime | None:
        """Return how long providers should keep the conversation, as the directive says."""
        declared = self._directive.loaded.directive.model
        wanted = declared.cache if declared is not None else None
        cache = wanted or self._directive.settings.loop.cache
        return None if cache == "none" else cache


def _takes_all_of(plan: tuple[FallbackPlanEntry, ...]) -> Callable[[str], bool]:
    """Return whether all models of a plan take media of a type."""
    able = [_capabilities(entry) for entry in plan]
    return lambda media_type: all(can.takes(media_type) for can in able)


def _capabilities(entry: FallbackPlanEntry) -> Capabilities:
    try:
        return entry.provider.capabilities(entry.model)
    except Exception:  # an unknown ability is assumed: the first attempt shows whether it exists
        return Capabilities()


def _model_of(entry: FallbackPlanEntry, window: int) -> ThreadModel:
    provider = entry.provider
    can = _capabilities(entry)
    return ThreadModel(
        provider.provider_id,
        entry.model,
        can.tools,
        window,
        min(can.max_output_tokens or MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS),
    )


_CANCELLED: Final = "It was asked to stop."


def ending_of_turns(
    result: TurnResult, returned: Returned | None, limit: LimitHit | None
) -> ThreadEnding:
    """Return the ending of a thread from that of its turns."""
    text = result.last.text if result.last else ""
    if result.ended == "handed_off" or (result.ended, result.reason) == ("stopped", "handoff"):
        return ThreadEnding("completed", text, code=limit.code if limit else "", hands_off=True)
    if returned is not None and result.ended == "finished":
        if returned.status == "error":
            error = returned.error_detail or "The model says that it can't continue."
            return ThreadEnding("error", text, returned.outputs, error, "returned_error")
        return ThreadEnding("completed", text, returned.outputs)
    if result.ended == "stopped":
        if result.reason == "cancelled":
            return ThreadEnding("cancelled", text, error=_CANCELLED, code="cancelled")
        if limit is not None:
            return ThreadEnding.of_limit(limit, text)
        error = f"It was stopped by {result.reason}."
        return ThreadEnding("error", text, error=error, code="stopped")
    return ThreadEnding("completed", text)


def ending_of_error(error: Exception) -> ThreadEnding:
    """Return the ending of a thread that failed."""
    next_step = error.next_step if isinstance(error, RyeError) else ""
    if isinstance(error, LlmError) or not isinstance(error, RyeError):
        failure = failure_of(error)
        said, code = failure.message, str(failure.code)
    else:
        said, code = str(error), str(error.facts.get("code") or error.error_type)
    return ThreadEnding("error", error=said, code=code, next_step=next_step)


def ending_of_stop(*, killed: bool) -> ThreadEnding:
    """Return the ending of a thread that was asked to stop."""
    if killed:
        return ThreadEnding("killed", error="It was killed.", code="killed")
    return ThreadEnding("cancelled", error=_CANCELLED, code="cancelled")
