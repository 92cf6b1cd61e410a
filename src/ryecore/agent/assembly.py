"""The assembly of an agent's turns. Nothing here asks a model or runs a tool.

Source: docs/design/agent-node.md#steps.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from attrs import evolve

from ryecore.agent.costs import CostMeter
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import Emit
from ryecore.agent.outcome import turn_error
from ryecore.agent.output import AnswerReader, typed_answer
from ryecore.agent.verdicts import TurnPolicy
from ryecore.frozen import frozen
from ryecore.llm.cost import AttemptCost, CostTracker
from ryecore.llm.fallback import FallbackChain
from ryecore.llm.fallback_rules import AttemptRecord, Backoff, ChainOptions, FallbackPlanEntry
from ryecore.llm.media import MediaStore
from ryecore.llm.request import LlmRequest, ResponseFormat, ToolSpec
from ryecore.policy.context import CallContext
from ryecore.tools.context import PresentResult, ToolContext
from ryecore.tools.definition import ToolDef, same_tool
from ryecore.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from ryecore.agent.model import Agent, AgentNode

__all__ = [
    "TurnSetup",
    "answer_reader",
    "build_plan",
    "build_setup",
    "chain_options",
    "cost_meter",
    "observed_run",
    "plan_entry",
    "system_text",
    "tool_context",
]


@frozen(slots=False)
class TurnSetup:
    """The setup of a conversation's turns; messages are added to the common `request`.

    `registry` has the tools that may be called, in at most `max_tool_turns` turns. Results of calls
    are emitted only where `emits_results`. Where `suspends`, a call that needs an approval ends the
    turns until a person has answered. `in_order` lets no calls of one answer run at the same time.
    """

    deps: AgentRunnerDeps
    registry: ToolRegistry
    max_tool_turns: int
    chain: FallbackChain
    tool_context: ToolContext
    request: LlmRequest
    node_id: str
    emit: Emit
    meter: CostMeter
    policy: TurnPolicy
    emits_results: bool = True
    suspends: bool = False
    in_order: bool = False

    def for_reply(self, call_id: str, deps: object) -> "TurnSetup":
        """Return the setup of one reply, whose calls of tools get ids of their own.

        `deps` are what its tools get; None keeps those that the setup has.
        """
        context = self.tool_context.as_call(call_id)
        if deps is not None:
            context = evolve(context, deps=deps)
        return evolve(self, tool_context=context)


def observed_run(
    deps: AgentRunnerDeps, node_id: str, agent: "Agent"
) -> AbstractContextManager[object]:
    """Return the observer's context manager around a run; an empty one without an observer."""
    return nullcontext() if deps.observer is None else deps.observer.run(node_id, agent)


def build_plan(
    deps: AgentRunnerDeps, agent: "Agent", call: CallContext, node: "AgentNode | None" = None
) -> tuple[FallbackPlanEntry, ...]:
    """Return the fallback plan. Only its first entry is retried.

    Source: docs/design/agent-node.md#plan; decision 50.
    """
    retry = (node.retry if node else None) or agent.retry
    tries, backoff = (retry.max, retry.backoff) if retry else (1, None)
    model = (node.model if node else None) or agent.model
    first = plan_entry(deps, call, agent.provider, model, tries, backoff)
    return (
        first,
        *(
            plan_entry(deps, call, one.provider, one.model, one.max_attempts)
            for one in agent.fallback_chain
        ),
    )


def plan_entry(
    deps: AgentRunnerDeps,
    call: CallContext,
    provider_id: str,
    model: str,
    attempts: int = 1,
    backoff: Backoff | None = None,
) -> FallbackPlanEntry:
    """Return one entry of a plan, with the host's own provider; refuse one that the host lacks."""
    provider = deps.provider_for(provider_id, call)
    if provider is None:
        raise turn_error(
            "internal",
            f"The host has no provider '{provider_id}'.",
            next_step="Let AgentRunnerDeps.resolve_provider return one for this id.",
        )
    if not callable(getattr(provider, "stream", None)):
        raise turn_error(
            "internal",
            f"resolve_provider returned {type(provider).__name__} for '{provider_id}', "
            "not an LlmProvider.",
            next_step="Return an LlmProvider or None, from a function that isn't async.",
        )
    return FallbackPlanEntry(provider, model, attempts, backoff or deps.limits.backoff)


def granted_tools(agent: "Agent", node: "AgentNode | None" = None) -> tuple[str, ...]:
    """Return the names of the tools that may be called; a node narrows its agent's grant.

    Source: docs/design/agent-node.md#tools.
    """
    if node is None or node.tools is None:
        return agent.tool_names
    wider = [name for name in node.tools if name not in agent.tool_names]
    if wider:
        raise turn_error(
            "validation",
            f"Node '{node.id}' grants {', '.join(wider)}, which agent '{agent.name}' may not call.",
            next_step="Take it out of the node, or grant it to the agent.",
        )
    return node.tools


def system_text(agent: "Agent", node: "AgentNode | None" = None) -> str:
    """Return the system prompt: the authors' texts, verbatim, and nothing else.

    Source: docs/design/agent-node.md#messages.
    """
    texts = (agent.system_prompt, node.system_prompt_append if node else "")
    return "\n\n".join(text for text in texts if text)


def answer_reader(agent: "Agent", node: "AgentNode | None" = None) -> AnswerReader | None:
    """Return the reader of an agent's answers; None if each text is one.

    A node's schema replaces all that the agent declares of its output.
    """
    own = node is not None and node.output_schema is not None
    schema = node.output_schema if node is not None and own else agent.output_schema
    typed = None if own or agent.output_type is None else typed_answer(agent.output_type)
    check = None if own else agent.output_check
    if schema is None and typed is None and check is None:
        return None
    try:
        if typed is not None:
            return AnswerReader(typed.schema, typed.convert, check)
        return AnswerReader(schema, None, check)
    except ValueError as problem:
        owner = node.id if node else agent.name
        raise turn_error(
            "validation", f"The output_schema of '{owner}' isn't a JSON Schema: {problem}."
        ) from None


def cost_meter(
    deps: AgentRunnerDeps,
    emit: Emit | None,
    node_id: str,
    on_cost: Callable[[AttemptRecord, AttemptCost], None] | None = None,
) -> CostMeter:
    """Return the cost meter of one run, which shares its tracker with no other."""
    return CostMeter(CostTracker(deps.price_of), emit, node_id, deps.observer, on_cost)


def build_setup(
    deps: AgentRunnerDeps,
    agent: "Agent",
    plan: Sequence[FallbackPlanEntry],
    *,
    node: "AgentNode | None" = None,
    answer: AnswerReader | None,
    node_id: str,
    emit: Emit,
    call: CallContext,
    policy: TurnPolicy,
    meter: CostMeter,
    suspends: bool = False,
    media: MediaStore | None = None,
    tool_deps: object = None,
    recorded: Callable[[], Awaitable[None]] | None = None,
) -> TurnSetup:
    """Return the setup of a run's turns. Each tool must be granted, and exist.

    `media` serves where the host has no store of media. `tool_deps` replaces the host's. `recorded`
    is awaited before each call of a tool.
    """
    names = granted_tools(agent, node)
    registry = registry_of(deps, agent)
    request = LlmRequest(
        model=plan[0].model,
        messages=(),
        system=system_text(agent, node),
        tools=_specs(deps, registry, names),
        max_output_tokens=agent.max_output_tokens or deps.limits.max_output_tokens,
        temperature=agent.temperature,
        response_format=ResponseFormat(answer.schema) if answer and answer.schema else None,
        reasoning=agent.reasoning,
        cache=agent.cache,
    )
    return TurnSetup(
        deps=deps,
        registry=registry,
        max_tool_turns=deps.limits.max_tool_turns,
        chain=FallbackChain(plan, chain_options(deps, call, meter, policy, media)),
        tool_context=tool_context(
            deps,
            frozenset(names),
            call.called_by(f"agent:{agent.name}"),
            recorded=recorded,
            media=media,
            tool_deps=tool_deps,
        ),
        request=request,
        node_id=node_id,
        emit=emit,
        meter=meter,
        policy=policy,
        suspends=suspends,
    )


def chain_options(
    deps: AgentRunnerDeps,
    call: CallContext,
    meter: CostMeter,
    policy: TurnPolicy | None = None,
    media: MediaStore | None = None,
) -> ChainOptions:
    """Return the options of a run's calls to models. Without a policy, each try may go ahead.

    `media` serves where the host has no store.
    """
    return ChainOptions(
        key_for=deps.keys_of(call),
        sleep=deps.sleep,
        now=deps.now,
        on_auth_error=deps.on_auth_error,
        on_attempt=meter.on_attempt,
        before_attempt=None if policy is None else policy.before_attempt,
        media=deps.media or media,
        stall_s=deps.limits.stall_s,
        cooldown_s=deps.limits.cooldown_s,
        rate_limits=deps.rate_limits,
    )


def registry_of(deps: AgentRunnerDeps, agent: "Agent") -> ToolRegistry:
    """Return the host's tools with those that the agent has itself; refuse two of one name."""
    own = [tool for tool in agent.tools if not isinstance(tool, str)]
    if not own:
        return deps.registry
    registry = ToolRegistry(deps.registry, limits=deps.registry.limits)
    for tool in own:
        there = registry.get(tool.name)
        if there is None:
            registry.add(tool)
        elif not same_tool(there, tool):
            raise turn_error(
                "internal",
                f"The agent '{agent.name}' and the host have different tools of the name "
                f"'{tool.name}'.",
                next_step=f"Rename one of them, or name the host's: Agent(tools=[{tool.name!r}]).",
            )
    return registry


def _specs(
    deps: AgentRunnerDeps, registry: ToolRegistry, names: Sequence[str]
) -> tuple[ToolSpec, ...]:
    shown: ToolRegistry | dict[str, ToolDef] = registry
    if deps.tools is not None:
        of_agent = [tool for tool in registry if tool.name not in deps.registry]
        shown = {tool.name: tool for tool in (*deps.tools, *of_agent)}
    specs: list[ToolSpec] = []
    for name in names:
        tool = shown.get(name)
        if tool is None or name not in registry:
            raise turn_error(
                "internal",
                f"The host has no tool '{name}'.",
                next_step="Pass the tool itself, Agent(tools=[...]), or register it: "
                "AgentRunnerDeps(registry=ToolRegistry([...])).",
            )
        specs.append(tool.spec)
    return tuple(specs)


def tool_context(
    deps: AgentRunnerDeps,
    grant: frozenset[str] | None,
    call: CallContext,
    *,
    present: PresentResult | None = None,
    recorded: Callable[[], Awaitable[None]] | None = None,
    recorded_soon: Callable[[], Awaitable[None]] | None = None,
    media: MediaStore | None = None,
    tool_deps: object = None,
) -> ToolContext:
    """Return the context of a run's calls of tools; see `ToolContext`."""
    resolver = deps.resolver_capabilities
    return ToolContext(
        call=call,
        grant=grant,
        fs_scope=deps.fs_scope,
        fs_root=resolver.root(deps.fs_scope) if resolver else None,
        capabilities=deps.host_capabilities,
        approve=deps.approve,
        results=deps.results,
        media=deps.media or media,
        present=present,
        recorded=recorded,
        recorded_soon=recorded_soon,
        deps=deps.tool_deps if tool_deps is None else tool_deps,
        agent_deps=deps,
    )
