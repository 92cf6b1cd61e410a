"""The runner of agents' nodes: their tools, events, account, timeouts, and providers' jobs.

Source: docs/design/agent-node.md#events; decisions 30, 39 to 41, 43, 55 and 59.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import evolve

from ryecore.agent.budgets import NodeBudget
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import (
    AgentEvent,
    AgentReasoning,
    AgentToken,
    AgentToolCall,
    AgentToolResult,
    CostUpdated,
)
from ryecore.agent.model import Agent, AgentNode
from ryecore.agent.node import NodeExecContext
from ryecore.agent.outcome import NodeOutcome
from ryecore.agent.runner import AgentNodeExecutor
from ryecore.agent.spending import Spending
from ryecore.errors import InputError, IntegrityError
from ryecore.frozen import frozen
from ryecore.graph.journal.journal import Journal
from ryecore.graph.model import AgentVertex, Graph
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext
from ryecore.policy.cancelling import is_cancelled
from ryecore.policy.limits import Limits
from ryecore.runs.host import guarded
from ryecore.runs.ports import Dispatcher
from ryecore.tools.definition import ToolDef
from ryecore.tools.items import ItemRunner, shape_of
from ryecore.tools.registry import ToolRegistry

__all__ = ["AgentTools", "AgentWork", "find_agent_tools"]

_ITEM: Final = "tool:"


@frozen
class AgentTools:
    """The host's dependencies with the tools of one run's agents, and their models' names."""

    deps: AgentRunnerDeps
    names: Mapping[str, str]

    def with_tools(self, vertex: AgentVertex) -> tuple[Agent, AgentNode]:
        """Return an agent and its vertex, with their tools by the models' names."""
        agent, node = vertex.agent, vertex.node
        if not self.names:
            return agent, node
        tools = None if node.tools is None else self._named(node.tools)
        return evolve(agent, tools=self._named(agent.tool_names)), evolve(node, tools=tools)

    def _named(self, tools: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.names.get(one, one) for one in tools)


async def find_agent_tools(
    graph: Graph, deps: AgentRunnerDeps, dispatcher: Dispatcher
) -> AgentTools:
    """Find the tools of a graph's agents, verified.

    An agent is offered the tools that the graph's signed file names. Each call is checked against
    the capabilities of the run; a function of the host's needs one too.
    """
    vertices = graph.agents
    if not vertices:
        return AgentTools(deps, {})
    wanted = dict.fromkeys(
        name
        for vertex in vertices
        for name in (*vertex.agent.tool_names, *(vertex.node.tools or ()))
        if name.startswith(_ITEM)
    )
    items = {name: await _item_tool(ItemRef.parse(name, "tool"), dispatcher) for name in wanted}
    hosts = [guarded(tool) for tool in deps.registry]
    try:
        registry = ToolRegistry([*hosts, *items.values()], limits=deps.registry.limits)
    except ValueError as problem:
        raise InputError(
            f"The agents of {graph.ref} can't be told their tools apart: {problem}",
            next_step="Rename the function, or the item.",
        ) from None
    told = None if deps.tools is None else (*deps.tools, *items.values())
    names = {name: tool.name for name, tool in items.items()}
    return AgentTools(evolve(deps, registry=registry, tools=told), names)


async def _item_tool(ref: ItemRef, dispatcher: Dispatcher) -> ToolDef:
    chain = await dispatcher.chain(ref)
    head = chain.head
    if head.item is not None and not head.item.is_verified:
        raise IntegrityError(f"{ref} is not verified, so it can't be offered to a model.")
    shape = shape_of(ref, chain)
    return ToolDef(
        name=shape.name,
        description=shape.description,
        parameters=shape.parameters,
        run=ItemRunner(dispatcher, ref, shape.name),
        timeout_s=ItemRunner.timeout_s,
        parallel_safe=shape.parallel_safe,
        read_only=shape.read_only,
        capability=shape.capability,
        origin="item" if shape.server is None else "mcp",
        source=str(ref),
    )


_POLL_S: Final = (1.0, 2.0, 5.0, 10.0)
"""How long to wait before each look after a provider's job; the last one stays."""


class AgentWork:
    """The runner of one run's agent nodes, with at most `most_turns` turns in all."""

    def __init__(
        self,
        executor: AgentNodeExecutor,
        tools: AgentTools,
        journal: Journal,
        call: CallContext,
        spending: Spending,
        most_turns: int | None = None,
    ) -> None:
        self._executor = executor
        self._tools = tools
        self._journal = journal
        self._call = call
        self._spending = spending
        self._most_turns = most_turns

    async def run(
        self,
        vertex: AgentVertex,
        inputs: Mapping[str, object],
        context: Mapping[str, object],
        call: CallContext,
    ) -> NodeOutcome:
        """Run an agent's node to its end, a provider's job included.

        Prompts know the state of `context`, that of expressions, as `run.outputs`. `call` is the
        context of this visit of the node.
        """
        call = evolve(call, depth=call.depth + 1)
        if vertex.timeout_s is not None:
            until = time.monotonic() + vertex.timeout_s
            if call.deadline is None or until < call.deadline:
                call = evolve(call, deadline=until)
        state = context["state"]
        agent, node = self._tools.with_tools(vertex)
        ctx = NodeExecContext(
            vertex=node,
            resolved_agent=agent,
            inputs=inputs,
            ctx=context,
            outputs=state if isinstance(state, Mapping) else {},
            emit=self._emit,
            call=evolve(call, budget=self._spending),
            budget=NodeBudget(self._spending, Limits(turns=self._most_turns)),
            recorded=self._journal.commit,
        )
        self._journal.append("node_started", {"node": vertex.id, "type": vertex.type})
        await self._journal.commit()
        try:
            outcome = await self._executor(ctx)
            if outcome.job_id is not None:
                outcome = await self._looked_after(outcome, ctx)
        finally:
            self._spending.assume_open()
            await self._spending.settle_unwritten()
        failure = outcome.failure
        if failure is not None and failure.code == "cancelled":
            ours = (self._call.cancellation,)
            if not is_cancelled(*ours, deadline=self._call.deadline):
                said = f"'{vertex.id}' took longer than its {vertex.timeout_s:g} s."
                return NodeOutcome.failed(
                    "tool_failed", said, tokens_used=outcome.tokens_used, effect_unknown=True
                )
        # The value holds media by their handles, as results are JSON.
        return evolve(outcome, output=outcome.to_dict()["output"])

    async def _looked_after(self, outcome: NodeOutcome, ctx: NodeExecContext) -> NodeOutcome:
        """Poll a provider's job until it is done."""
        told = {"node": ctx.vertex.id, "job_id": outcome.job_id}
        # so that the job of a killed run can be found
        self._journal.append("node_pending", told)
        await self._journal.commit()
        looked = 0
        while outcome.status == "pending" and outcome.job_id is not None:
            wait_s = _POLL_S[min(looked, len(_POLL_S) - 1)]
            if ctx.call.deadline is not None:
                wait_s = min(wait_s, max(ctx.call.deadline - time.monotonic(), 0))
            await self._tools.deps.sleep(wait_s)
            looked += 1
            outcome = await self._executor.poll(outcome.job_id, ctx)
        return outcome

    def _emit(self, event: AgentEvent) -> None:
        journal = self._journal
        if type(event) is AgentToken:
            if journal.is_listened_to:
                journal.show("token_delta", {"node": event.node_id, "text": event.token})
        elif type(event) is AgentReasoning:
            if journal.is_listened_to:
                journal.show("reasoning_delta", {"node": event.node_id, "text": event.text})
        elif isinstance(event, CostUpdated):
            total = self._spending.cost.spend_microcents
            journal.append("cost", evolve(event, cumulative_cost_microcents=total).to_dict())
        elif isinstance(event, AgentToolCall):
            journal.append("tool_call_start", event.to_dict())
        elif isinstance(event, AgentToolResult):
            journal.append("tool_call_result", event.to_dict())
