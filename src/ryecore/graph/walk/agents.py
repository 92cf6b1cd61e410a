"""What is around an agent's node: what it tells, its account, its time, the job that it may leave.

Source: docs/design/agent-node.md#events; decisions 39, 40, 55 and 59.
"""

import time
from collections.abc import Mapping
from typing import Final

from attrs import evolve

from ryecore.agent.events import AgentEvent, AgentToken, AgentToolCall, AgentToolResult, CostUpdated
from ryecore.agent.node import NodeExecContext
from ryecore.agent.outcome import NodeOutcome
from ryecore.agent.runner import AgentNodeExecutor
from ryecore.graph.journal.journal import Journal
from ryecore.graph.model import AgentVertex
from ryecore.graph.walk.budget import NodeBudget
from ryecore.graph.walk.offers import Offers
from ryecore.policy import CallContext
from ryecore.policy.cancelling import is_cancelled
from ryecore.runs.spending import Spending
from ryecore.runs.unwritten import Unwritten
from ryecore.state.model import Cost

__all__ = ["AgentWork"]

_POLL_S: Final = (1.0, 2.0, 5.0, 10.0)
"""How long to wait before each look after a provider's job; the last one stays."""


class AgentWork:
    """Runs the agents' nodes of one run.

    Args:
        executor: The one executor.
        offers: What the agents may call.
        journal: Told what the agents do.
        call: On whose behalf.
        spending: Holds and settles in the run's account.
        most_turns: How often models may be asked in the whole run; None for no bound.
    """

    def __init__(
        self,
        executor: AgentNodeExecutor,
        offers: Offers,
        journal: Journal,
        call: CallContext,
        spending: Spending,
        most_turns: int | None = None,
    ) -> None:
        self._executor = executor
        self._offers = offers
        self._journal = journal
        self._call = call
        self._spending = spending
        self._most_turns = most_turns

    @property
    def cost(self) -> Cost:
        """What the run's own agents have used."""
        return self._spending.cost

    def settle_unwritten(self) -> None:
        """Write the costs that the ledger doesn't have yet; see `Spending.settle_unwritten`."""
        self._spending.settle_unwritten()

    def unwritten(self) -> Unwritten:
        """The costs to write before the account is closed; see `Spending.unwritten`."""
        return self._spending.unwritten()

    async def run(
        self,
        vertex: AgentVertex,
        inputs: Mapping[str, object],
        context: Mapping[str, object],
        call: CallContext,
    ) -> NodeOutcome:
        """Run an agent's node to its end, a provider's job included.

        Args:
            vertex: The node.
            inputs: The run's inputs.
            context: What expressions see; its state is what prompts know as `run.outputs`.
            call: On whose behalf, as this visit of the node.
        """
        call = evolve(call, depth=call.depth + 1)
        if vertex.timeout_s is not None:
            until = time.monotonic() + vertex.timeout_s
            if call.deadline is None or until < call.deadline:
                call = evolve(call, deadline=until)
        state = context["state"]
        agent, node = self._offers.shown(vertex)
        ctx = NodeExecContext(
            vertex=node,
            resolved_agent=agent,
            inputs=inputs,
            ctx=context,
            outputs=state if isinstance(state, Mapping) else {},
            emit=self._emit,
            call=call,
            budget=NodeBudget(self._spending, self._most_turns),
            recorded=self._journal.synced if self._journal.is_durable else None,
        )
        self._journal.tell("node_started", {"node": vertex.id, "type": vertex.type})
        await self._journal.synced()
        try:
            outcome = await self._executor(ctx)
            if outcome.job_id is not None:
                outcome = await self._looked_after(outcome, ctx)
        finally:
            self._spending.settle_open()
        failure = outcome.failure
        if failure is not None and failure.code == "cancelled":
            ours = (self._call.cancellation,)
            if not is_cancelled(*ours, deadline=self._call.deadline):
                said = f"'{vertex.id}' took longer than its {vertex.timeout_s:g} s."
                return NodeOutcome.failed(
                    "tool_failed", said, tokens_used=outcome.tokens_used, effect_unknown=True
                )
        # Media stand in it by their handles: what comes of a node is JSON.
        return evolve(outcome, output=outcome.to_dict()["output"])

    async def _looked_after(self, outcome: NodeOutcome, ctx: NodeExecContext) -> NodeOutcome:
        """Look after a provider's job until it is done."""
        told = {"node": ctx.vertex.id, "job_id": outcome.job_id}
        self._journal.tell("node_pending", told)  # whoever finds a killed run can ask for it
        looked = 0
        while outcome.status == "pending" and outcome.job_id is not None:
            wait_s = _POLL_S[min(looked, len(_POLL_S) - 1)]
            if ctx.call.deadline is not None:
                wait_s = min(wait_s, max(ctx.call.deadline - time.monotonic(), 0))
            await self._journal.synced()
            await self._offers.deps.sleep(wait_s)
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
            journal.tell("tool_call_start", event.to_dict())
        elif isinstance(event, AgentToolResult):
            journal.append("tool_call_result", event.to_dict())
