"""The runner of agents' nodes: their events, their account, their timeouts, and providers' jobs.

Source: docs/design/agent-node.md#events; decisions 39, 40, 55 and 59.
"""

import time
from collections.abc import Mapping
from typing import Final

from attrs import evolve

from ryecore.agent.events import AgentEvent, AgentToken, AgentToolCall, AgentToolResult, CostUpdated
from ryecore.agent.node import NodeExecContext
from ryecore.agent.outcome import NodeOutcome, turn_error
from ryecore.agent.runner import AgentNodeExecutor
from ryecore.graph.journal.journal import Journal
from ryecore.graph.model import AgentVertex
from ryecore.graph.walk.agent_tools import AgentTools
from ryecore.llm.cost import AttemptCost
from ryecore.llm.plan import AttemptRecord, AttemptVerdict, FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.policy import CallContext
from ryecore.policy.cancelling import is_cancelled
from ryecore.runs.limit_hit import LimitHit
from ryecore.runs.spending import MAX_OUTPUT_TOKENS, Spending

__all__ = ["AgentWork"]

_POLL_S: Final = (1.0, 2.0, 5.0, 10.0)
"""How long to wait before each look after a provider's job; the last one stays."""


class NodeBudget:
    """The budget of one run of an agent's node: the `TurnBudget` of a graph's run.

    The ledger identifies each attempt by its turn, so turns are counted over all nodes of the run,
    at most `most_turns`.
    """

    def __init__(self, spending: Spending, most_turns: int | None) -> None:
        self._spending = spending
        self._most_turns = most_turns
        self._before = spending.turn

    async def begin_turn(self, turn: int, entry: FallbackPlanEntry, wanted: int | None) -> int:
        """Count a turn, if one is left, and bound its answer by the balance."""
        spending = self._spending
        number = self._before + turn
        if spending.stopped:
            raise turn_error("budget_exceeded", spending.overspent_hit().message)
        most, used = self._most_turns, spending.cost.turns
        if most is not None and used >= most and number != spending.turn:
            raise turn_error("budget_exceeded", LimitHit("turns_exceeded", used, most).message)
        spending.begin_turn(number)
        most_tokens = _longest(entry) if wanted is None else wanted
        provider_id = entry.provider.provider_id
        return await spending.output_bound(most_tokens, 0, provider_id, entry.model)

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Hold the highest cost of an attempt."""
        return await self._spending.before_attempt(entry, request, number)

    async def before_media(self, provider: str, model: str, input_tokens: int) -> AttemptVerdict:
        """Hold the highest cost of a medium."""
        return await self._spending.before_media(provider, model, input_tokens)

    def asks_again(self) -> bool:
        """Whether to repeat a refused request, for as short an answer as the balance allows."""
        return self._spending.asks_again()

    async def settle(self) -> None:
        """Settle the attempts so far, so that a stop takes effect on the next one."""
        await self._spending.settle_unwritten()

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Count the cost of an attempt."""
        self._spending.on_cost(record, cost)


def _longest(entry: FallbackPlanEntry) -> int:
    """Return the most tokens of an answer where no limit is set."""
    try:
        most = entry.provider.capabilities(entry.model).max_output_tokens
    except Exception:  # an unknown ability is assumed: the attempt shows whether it exists
        most = None
    return min(most or MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)


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
            call=call,
            budget=NodeBudget(self._spending, self._most_turns),
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
        elif isinstance(event, CostUpdated):
            total = self._spending.cost.spend_microcents
            journal.append("cost", evolve(event, cumulative_cost_microcents=total).to_dict())
        elif isinstance(event, AgentToolCall):
            journal.append("tool_call_start", event.to_dict())
        elif isinstance(event, AgentToolResult):
            journal.append("tool_call_result", event.to_dict())
