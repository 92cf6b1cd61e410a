"""The assembly of an agent's turns. Nothing here asks a model or runs a tool.

Source: docs/design/agent-node.md#steps.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import CostMeter, Emit
from ryecore.agent.model import Agent, AgentNode, RetrySpec
from ryecore.agent.outcome import turn_error
from ryecore.agent.policies import OutputSchema
from ryecore.agent.verdicts import TurnPolicy
from ryecore.frozen import frozen
from ryecore.llm.cost import AttemptCost, CostTracker
from ryecore.llm.fallback import FallbackChain
from ryecore.llm.fallback_rules import AttemptRecord, Backoff, ChainOptions, FallbackPlanEntry
from ryecore.llm.request import LlmRequest, ResponseFormat, ToolSpec
from ryecore.policy.context import CallContext
from ryecore.tools.context import PresentResult, ToolContext
from ryecore.tools.registry import ToolRegistry

__all__ = [
    "TurnSetup",
    "build_plan",
    "build_setup",
    "chain_options",
    "cost_meter",
    "granted_tools",
    "observed_run",
    "output_schema",
    "plan_entry",
    "system_text",
    "tool_context",
]


@frozen(slots=False)
class TurnSetup:
    """The setup of a conversation's turns; messages are added to the common `request`.

    `registry` has the tools that may be called, in at most `max_tool_turns` turns. Results of calls
    are emitted only where `emits_results`.
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


def observed_run(
    deps: AgentRunnerDeps, node_id: str, agent: Agent
) -> AbstractContextManager[object]:
    """Return the observer's context manager around a run; an empty one without an observer."""
    return nullcontext() if deps.observer is None else deps.observer.run(node_id, agent)


def build_plan(
    deps: AgentRunnerDeps, agent: Agent, node: AgentNode | None = None
) -> tuple[FallbackPlanEntry, ...]:
    """Return the fallback plan. Only its first entry is retried.

    Source: docs/design/agent-node.md#plan; decision 50.
    """
    retry = (node.retry if node else None) or agent.retry or RetrySpec()
    model = (node.model if node else None) or agent.model
    first = plan_entry(deps, agent.provider, model, retry.max, retry.backoff)
    return (
        first,
        *(
            plan_entry(deps, one.provider, one.model, one.max_attempts)
            for one in agent.fallback_chain
        ),
    )


def plan_entry(
    deps: AgentRunnerDeps,
    provider_id: str,
    model: str,
    attempts: int = 1,
    backoff: Backoff | None = None,
) -> FallbackPlanEntry:
    """Return one entry of a plan, with the host's own provider; refuse one that the host lacks."""
    provider = deps.resolve_provider(provider_id)
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


def granted_tools(agent: Agent, node: AgentNode | None = None) -> tuple[str, ...]:
    """Return the names of the tools that may be called; a node narrows its agent's grant.

    Source: docs/design/agent-node.md#tools.
    """
    if node is None or node.tools is None:
        return agent.tools
    wider = [name for name in node.tools if name not in agent.tools]
    if wider:
        raise turn_error(
            "validation",
            f"Node '{node.id}' grants {', '.join(wider)}, which agent '{agent.name}' may not call.",
            next_step="Take it out of the node, or grant it to the agent.",
        )
    return node.tools


def system_text(agent: Agent, node: AgentNode | None = None) -> str:
    """Return the system prompt: the authors' texts, verbatim, and nothing else.

    Source: docs/design/agent-node.md#messages.
    """
    texts = (agent.system_prompt, node.system_prompt_append if node else "")
    return "\n\n".join(text for text in texts if text)


def output_schema(owner: str, schema: Mapping[str, Any] | None) -> OutputSchema | None:
    """Return the validator of a structured answer; None if the answer is text."""
    if schema is None:
        return None
    try:
        return OutputSchema(schema)
    except ValueError as problem:
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
    agent: Agent,
    plan: Sequence[FallbackPlanEntry],
    *,
    node: AgentNode | None = None,
    output: OutputSchema | None,
    node_id: str,
    emit: Emit,
    call: CallContext,
    policy: TurnPolicy,
    meter: CostMeter,
) -> TurnSetup:
    """Return the setup of a run's turns. Each tool must be granted, and exist."""
    names = granted_tools(agent, node)
    request = LlmRequest(
        model=plan[0].model,
        messages=(),
        system=system_text(agent, node),
        tools=_specs(deps, names),
        max_output_tokens=agent.max_output_tokens or deps.limits.max_output_tokens,
        temperature=agent.temperature,
        response_format=ResponseFormat(output.schema) if output else None,
        reasoning=agent.reasoning,
    )
    return TurnSetup(
        deps=deps,
        registry=deps.registry,
        max_tool_turns=deps.limits.max_tool_turns,
        chain=FallbackChain(plan, chain_options(deps, meter, policy)),
        tool_context=tool_context(deps, frozenset(names), call),
        request=request,
        node_id=node_id,
        emit=emit,
        meter=meter,
        policy=policy,
    )


def chain_options(
    deps: AgentRunnerDeps, meter: CostMeter, policy: TurnPolicy | None = None
) -> ChainOptions:
    """Return the options of a run's calls to models. Without a policy, each try may go ahead."""
    return ChainOptions(
        key_for=deps.key_for,
        sleep=deps.sleep,
        now=deps.now,
        on_auth_error=deps.on_auth_error,
        on_attempt=meter.on_attempt,
        before_attempt=None if policy is None else policy.before_attempt,
        media=deps.media,
        stall_s=deps.limits.stall_s,
        cooldown_s=deps.limits.cooldown_s,
    )


def _specs(deps: AgentRunnerDeps, names: Sequence[str]) -> tuple[ToolSpec, ...]:
    shown = deps.registry if deps.tools is None else {tool.name: tool for tool in deps.tools}
    specs: list[ToolSpec] = []
    for name in names:
        tool = shown.get(name)
        if tool is None or name not in deps.registry:
            raise turn_error(
                "internal",
                f"The host has no tool '{name}'.",
                next_step="Register it: AgentRunnerDeps(registry=ToolRegistry([...])).",
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
        media=deps.media,
        present=present,
        recorded=recorded,
    )
