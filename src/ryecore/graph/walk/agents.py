"""What is around an agent's node: what it tells, its time, and the job that it may leave."""

import time
from collections.abc import Mapping
from typing import Final

import anyio
from attrs import evolve

from ryecore.agent.events import AgentEvent, AgentToolCall, AgentToolResult, CostUpdated
from ryecore.agent.node import NodeExecContext
from ryecore.agent.outcome import NodeOutcome
from ryecore.agent.runner import AgentNodeExecutor
from ryecore.graph.journal.journal import Journal
from ryecore.graph.model import AgentVertex
from ryecore.policy import CallContext
from ryecore.policy.cancelling import is_cancelled

__all__ = ["AgentWork"]

_POLL_S: Final = (1.0, 2.0, 5.0, 10.0)
"""How long to wait before each look after a provider's job; the last one stays."""


class AgentWork:
    """Runs the agents' nodes of one run.

    Args:
        executor: The one executor.
        journal: Told what the agents do.
        call: On whose behalf.
    """

    def __init__(self, executor: AgentNodeExecutor, journal: Journal, call: CallContext) -> None:
        self._executor = executor
        self._journal = journal
        self._call = call

    async def run(
        self, vertex: AgentVertex, inputs: Mapping[str, object], context: Mapping[str, object]
    ) -> NodeOutcome:
        """Run an agent's node to its end, a provider's job included.

        Args:
            vertex: The node.
            inputs: The run's inputs.
            context: What expressions see; its state is what prompts know as `run.outputs`.
        """
        call = self._call
        if vertex.timeout_s is not None:
            until = time.monotonic() + vertex.timeout_s
            if call.deadline is None or until < call.deadline:
                call = evolve(call, deadline=until)
        state = context["state"]
        ctx = NodeExecContext(
            vertex=vertex.node,
            resolved_agent=vertex.agent,
            inputs=inputs,
            ctx=context,
            outputs=state if isinstance(state, Mapping) else {},
            emit=self._emit,
            call=call,
        )
        self._journal.tell("node_started", {"node": vertex.id, "type": vertex.type})
        outcome = await self._executor(ctx)
        looked = 0
        while outcome.status == "pending" and outcome.job_id is not None:
            await anyio.sleep(_POLL_S[min(looked, len(_POLL_S) - 1)])
            looked += 1
            outcome = await self._executor.poll(outcome.job_id, ctx)
        failure = outcome.failure
        if failure is not None and failure.code == "cancelled":
            ours = (self._call.cancellation,)
            if not is_cancelled(*ours, deadline=self._call.deadline):
                said = f"'{vertex.id}' took longer than its {vertex.timeout_s:g} s."
                return NodeOutcome.failed("tool_failed", said, tokens_used=outcome.tokens_used)
        return outcome

    def _emit(self, event: AgentEvent) -> None:
        if isinstance(event, CostUpdated):
            self._journal.append("cost", event.to_dict())
        elif isinstance(event, AgentToolCall):
            self._journal.tell("tool_call_start", event.to_dict())
        elif isinstance(event, AgentToolResult):
            self._journal.append("tool_call_result", event.to_dict())
