"""The executor of a run loop, which runs an agent node end to end.

Source: docs/design/agent-node.md; decisions 49 to 60.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from attrs import evolve

from ryecore.agent.assembly import answer_reader, build_plan, build_setup, cost_meter, observed_run
from ryecore.agent.called import summarizer
from ryecore.agent.compactor import Compactor, compaction_event, window_tokens
from ryecore.agent.costs import CostMeter
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.media import MediaFork
from ryecore.agent.model import Agent, AgentNode
from ryecore.agent.node import NodeExecContext, NodeExecutor
from ryecore.agent.outcome import NodeOutcome, OutputT_co, failure_of, turn_error
from ryecore.agent.policies import NodePolicy, Spender
from ryecore.agent.prompts import ReadFileMissing, TemplateMiss, file_reader
from ryecore.agent.turns import TurnResult, run_turns
from ryecore.agent.verdicts import THE_TEXT
from ryecore.llm.fallback_rules import FallbackPlanEntry
from ryecore.llm.parts import MediaPart, Message
from ryecore.policy.cancelling import bounded_by, is_cancelled

__all__ = ["AgentNodeExecutor", "create_agent_node_executor"]

_AGENT: Final = "agent"


def create_agent_node_executor(
    deps: AgentRunnerDeps, *, handlers: Mapping[str, NodeExecutor] | None = None
) -> "AgentNodeExecutor":
    """Make the executor of a run loop.

    Args:
        deps: The host's dependencies. One executor serves any number of concurrent runs.
        handlers: The handlers of nodes of other types, by type.

    Returns:
        The executor.

    Raises:
        ValueError: There is a handler for agents, which the executor runs itself.

    Source: docs/design/agent-node.md#layers.
    """
    handlers = dict(handlers or {})
    if _AGENT in handlers:
        raise ValueError("a handler for 'agent' is given: the executor runs those itself")
    return AgentNodeExecutor(deps, handlers)


class AgentNodeExecutor:
    """Runs the nodes of a run loop; make one with `create_agent_node_executor`.

    Args:
        deps: The host's dependencies.
        handlers: The handlers of nodes of other types, by type.
    """

    def __init__(self, deps: AgentRunnerDeps, handlers: Mapping[str, NodeExecutor]) -> None:
        self._deps = deps
        self._handlers = handlers

    async def __call__(self, ctx: NodeExecContext[OutputT_co], /) -> NodeOutcome[OutputT_co]:
        """Run a node to its outcome.

        Failures of models, tools, providers and authors are failed outcomes, and so is a
        cancellation by the context's signal. A cancellation of the task propagates.
        """
        kind = ctx.vertex.type
        if kind == _AGENT:
            run = _AgentRun(self._deps, ctx)
            return await _to_outcome(ctx, run.meter, run.run)
        handler = self._handlers.get(kind)
        if handler is None:
            unknown: NodeOutcome[Any] = NodeOutcome.failed(
                "internal",
                f"No handler runs a vertex of the type '{kind}'. Pass one to "
                f"create_agent_node_executor(handlers={{{kind!r}: ...}}).",
            )
            return unknown
        return cast("NodeOutcome[OutputT_co]", await handler(ctx))

    async def poll(self, job_id: str, ctx: NodeExecContext) -> NodeOutcome:
        """Check the job of a pending outcome.

        Args:
            job_id: The id from the outcome; opaque.
            ctx: The context, as for the run of the node.

        Returns:
            The outcome: still pending with the same id, completed, or failed.
        """
        meter = _meter(self._deps, ctx)
        fork = MediaFork(self._deps, ctx.call, ctx.vertex.id, meter, ctx.budget)
        return await _to_outcome(ctx, meter, partial(fork.poll, job_id))


async def _to_outcome(
    ctx: NodeExecContext, meter: CostMeter, run: Callable[[], Awaitable[NodeOutcome]]
) -> NodeOutcome[Any]:
    """Run a function, and return its failures as outcomes. Cancellation takes precedence."""
    tokens, deadline = (ctx.signal, ctx.call.cancellation), ctx.call.deadline
    outcome: NodeOutcome | None = None
    try:
        with bounded_by(*tokens, deadline=deadline):
            if not is_cancelled(*tokens):
                outcome = await run()
    except Exception as error:
        if not is_cancelled(*tokens, deadline=deadline):
            return NodeOutcome("failed", None, meter.tokens_used, failure_of(error))
    if outcome is not None and not is_cancelled(*tokens):
        return outcome
    why = "by its signal" if is_cancelled(*tokens) else "because its deadline has passed"
    return NodeOutcome.failed(
        "cancelled", f"'{ctx.vertex.id}' was cancelled {why}.", tokens_used=meter.tokens_used
    )


class _AgentRun:
    """One run of an agent node, in six steps.

    Source: docs/design/agent-node.md#steps.
    """

    def __init__(self, deps: AgentRunnerDeps, ctx: NodeExecContext) -> None:
        self._deps = deps
        self._ctx = ctx
        self.meter = _meter(deps, ctx)

    async def run(self) -> NodeOutcome:
        """Take the six steps."""
        node = self._ctx.vertex
        if not isinstance(node, AgentNode):
            raise turn_error("validation", f"'{node.id}' is of the type 'agent', but no AgentNode.")
        agent = self._resolved(node)
        with observed_run(self._deps, node.id, agent):
            plan = build_plan(self._deps, agent, self._ctx.call, node)
            prompt = await self._prompt(node)
            surface = self._deps.resolve_media_surface
            if surface is not None and surface(plan[0].model) == "generative":
                fork = MediaFork(self._deps, self._ctx.call, node.id, self.meter, self._ctx.budget)
                return await fork.generate(agent.provider, plan[0], prompt, node.output_media)
            return await self._turns(agent, node, plan, prompt)

    def _resolved(self, node: AgentNode) -> Agent:
        agent = self._ctx.resolved_agent
        if agent is None:
            raise turn_error(
                "validation",
                f"Node '{node.id}' refers to the agent '{node.agent_ref}', which isn't there.",
                next_step="Pass it as NodeExecContext.resolved_agent, or correct agent_ref.",
            )
        return agent

    async def _prompt(self, node: AgentNode) -> str:
        """Return the prompt. Its values are untrusted, so it is only used as a user message."""
        ctx = self._ctx
        scope = {"inputs": ctx.inputs, "ctx": ctx.ctx, "run": {"outputs": ctx.outputs}}
        try:
            prompt = await node.prompt_template.render(scope, file_reader(self._deps))
        except TemplateMiss as miss:
            raise turn_error(
                "validation", f"The prompt of '{node.id}' can't be filled in: {miss}"
            ) from None
        except ReadFileMissing:
            raise turn_error(
                "internal",
                f"The prompt of '{node.id}' needs read_file, which the host doesn't offer.",
                next_step="Pass resolver_capabilities=ResolverCapabilities(folder) to the deps.",
            ) from None
        if not prompt.strip():
            raise turn_error("validation", f"The prompt of '{node.id}' is empty.")
        return prompt

    async def _turns(
        self, agent: Agent, node: AgentNode, plan: "tuple[FallbackPlanEntry, ...]", prompt: str
    ) -> NodeOutcome:
        ctx = self._ctx
        answer = answer_reader(agent, node)
        wanted = agent.max_output_tokens or self._deps.limits.max_output_tokens
        spender = None if ctx.budget is None else Spender(ctx.budget, plan[0], wanted)
        setup = build_setup(
            self._deps,
            agent,
            plan,
            node=node,
            answer=answer,
            node_id=node.id,
            emit=ctx.emit,
            call=ctx.call,
            policy=NodePolicy(
                self._deps.pre_egress, node.id, answer, spender, self._compactor(agent, plan[0])
            ),
            meter=self.meter,
            recorded=ctx.recorded,
        )
        return _completed(await run_turns(setup, [Message.user(prompt)]), self.meter)

    def _compactor(self, agent: Agent, entry: FallbackPlanEntry) -> Compactor | None:
        """Return what shortens the node's conversation, where the host wants that."""
        deps, ctx = self._deps, self._ctx
        if deps.compact is None:
            return None
        asked = evolve(agent, model=entry.model)
        return Compactor(
            deps.compact,
            window_tokens(deps.compact, entry),
            summarizer(deps.compact, asked, deps, ctx.call),
            lambda outcome: ctx.emit(compaction_event(ctx.vertex.id, outcome)),
        )


def _meter(deps: AgentRunnerDeps, ctx: NodeExecContext) -> CostMeter:
    on_cost = None if ctx.budget is None else ctx.budget.on_cost
    return cost_meter(deps, ctx.emit, ctx.vertex.id, on_cost)


def _completed(result: TurnResult, meter: CostMeter) -> NodeOutcome:
    last = result.last
    output = result.output
    if output is THE_TEXT:
        parts = last.parts if last else ()
        made = [part for part in parts if isinstance(part, MediaPart)]
        text = last.text if last else ""
        output = {"text": text, "media": made} if made else text
    return NodeOutcome(
        "completed",
        output,
        meter.tokens_used,
        stop_reason=last.stop_reason if last else None,
    )
