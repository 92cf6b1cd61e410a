"""The turns of a session's replies: their setup, and the making of one within its bounds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ryecore.agent.approvals import PendingApproval
from ryecore.agent.assembly import (
    answer_reader,
    build_plan,
    build_setup,
    cost_meter,
    observed_run,
)
from ryecore.agent.budgets import SessionBudget
from ryecore.agent.compaction import Compact, Compaction, NotCompacted, Summarize
from ryecore.agent.compactor import Compactor, compaction_event, window_tokens
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import Emit
from ryecore.agent.outcome import NodeFailure, failure_of
from ryecore.agent.policies import SessionPolicy, Spender
from ryecore.agent.saved import Asked
from ryecore.agent.turns import TurnResult, run_turns
from ryecore.errors import AgentTurnError
from ryecore.llm.media import MediaStore
from ryecore.llm.parts import Message
from ryecore.policy.cancelling import bounded_by, is_cancelled
from ryecore.policy.context import CallContext, CancelToken, place_id

if TYPE_CHECKING:
    from ryecore.agent.model import Agent

__all__ = ["SessionTurns"]


class SessionTurns:
    """Runs the turns of a session's replies, within its budget and its caller's bounds.

    Args:
        agent: The agent.
        deps: The host's dependencies.
        session_id: The id of the session in events.
        emit: Called with each event.
        call: The caller of the tools.
        budget: The budget of the session.
        media: The store of media where the host has none.
        tool_deps: What tools get as `ToolContext.deps`; None for the host's.
        compact: When the conversation is shortened; None for never.
        summarize: Makes the summary.
    """

    def __init__(
        self,
        agent: "Agent[Any]",
        deps: AgentRunnerDeps,
        *,
        session_id: str,
        emit: Emit,
        call: CallContext,
        budget: SessionBudget,
        media: MediaStore,
        tool_deps: object,
        compact: Compact | None,
        summarize: Summarize | None,
    ) -> None:
        answer = answer_reader(agent)
        meter = cost_meter(deps, emit, session_id, budget.on_cost)
        budget.count_with(meter)
        plan = build_plan(deps, agent, call)
        wanted = agent.max_output_tokens or deps.limits.max_output_tokens
        spender = None if budget.turns is None else Spender(budget.turns, plan[0], wanted)
        self._agent = agent
        self._budget = budget
        self._replies = 0
        self._asked: Asked | None = None
        self._compactor: Compactor | None = None
        if compact is not None and summarize is not None:
            self._compactor = Compactor(
                compact, window_tokens(compact, plan[0]), summarize, self._tell_compaction
            )
        self.setup = build_setup(
            deps,
            agent,
            plan,
            answer=answer,
            node_id=session_id,
            emit=emit,
            call=call,
            policy=SessionPolicy(deps.pre_egress, session_id, answer, spender, self._compactor),
            meter=meter,
            suspends=deps.approve is None,
            media=media,
            tool_deps=tool_deps,
        )

    async def run(
        self,
        asked: Asked,
        messages: list[Message],
        pending: Sequence[PendingApproval],
        cancellation: CancelToken | None,
        deps: object,
    ) -> TurnResult:
        """Run the turns of a reply. What fails or is cancelled is an AgentTurnError.

        The conversation grows as `run_turns` says, and may be shortened. `deps` are those of tools
        in this reply.
        """
        call, budget = self.setup.tool_context.call, self._budget
        self._replies += 1
        # The turns of each reply count from 1, so its own id tells equal calls of tools apart.
        own_id = place_id(call.call_id, self._replies, len(messages))
        setup = self.setup.for_reply(own_id, deps)
        tokens = (cancellation, call.cancellation)
        deadline = budget.begin_reply(call.deadline)
        self._asked = asked
        result: TurnResult | None = None
        failed = NodeFailure("cancelled", "The reply was cancelled.", retryable=False)
        try:
            with bounded_by(*tokens, deadline=deadline):
                if not is_cancelled(*tokens, deadline=deadline):
                    with observed_run(setup.deps, setup.node_id, self._agent):
                        await self._begin(asked, messages)
                        result = await run_turns(setup, messages, pending)
        except Exception as error:
            if not is_cancelled(*tokens, deadline=deadline):
                failed = failure_of(error)
        finally:
            await budget.end_reply()
        hit = budget.out_of_time
        if hit is not None and not is_cancelled(*tokens, deadline=call.deadline):
            failed = NodeFailure("budget_exceeded", hit.message)
        if result is not None and (result.pending or not is_cancelled(*tokens)):
            return result
        raise AgentTurnError(failed.message, code=failed.code, retryable=failed.retryable)

    async def _begin(self, asked: Asked, messages: list[Message]) -> None:
        """Append the message to a conversation that leaves room for it."""
        if self._compactor is not None:
            self._compactor.use.request = self.setup.request
            added = () if asked.message is None else (asked.message,)
            shorter = await self._compactor.fitting(messages, *added)
            if shorter is not None:
                messages[:] = shorter
        asked.begin(messages)

    def _tell_compaction(self, outcome: Compaction | NotCompacted) -> None:
        self.setup.emit(compaction_event(self.setup.node_id, outcome))
        if self._asked is not None and isinstance(outcome, Compaction):
            self._asked.compacted(outcome.replaced)
