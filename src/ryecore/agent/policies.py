"""The policies of agent nodes and sessions for the turn core."""

from inspect import isawaitable
from typing import TYPE_CHECKING

from ryecore.agent.compaction import NotCompacted
from ryecore.agent.compactor import Compactor
from ryecore.agent.deps import Egress, PreEgress
from ryecore.agent.outcome import turn_error
from ryecore.agent.output import AnswerReader
from ryecore.agent.verdicts import (
    ACCEPT,
    CONTINUE,
    GO,
    KEEP,
    RAISE,
    AfterTurn,
    BeforeTurn,
    Feed,
    GoWithin,
    OnError,
    OnResult,
    OnText,
    Replace,
    RetryTurn,
    TurnPolicy,
    TurnState,
    ladder_verdict,
)
from ryecore.errors import LlmError, ToolCallError, ToolExecutionError, ToolPolicyError
from ryecore.frozen import frozen
from ryecore.llm.fallback_rules import AttemptVerdict, FallbackPlanEntry, Refuse
from ryecore.llm.parts import ToolCallPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult
from ryecore.llm.token_estimates import TokenEstimate
from ryecore.tools.results import ToolOutcome

if TYPE_CHECKING:
    from ryecore.agent.node import TurnBudget

__all__ = [
    "NodePolicy",
    "RequestGate",
    "SessionPolicy",
    "Spender",
    "ask_gate",
]


async def ask_gate(gate: PreEgress, egress: Egress) -> Refuse | None:
    """Ask the host's gate. Only None lets a request pass; False, for one, is an error."""
    said = gate(egress)
    if isawaitable(said):
        said = await said
    if said is None or isinstance(said, Refuse):
        return said
    raise turn_error(
        "internal",
        f"The host's pre_egress returned {type(said).__name__}, not Refuse or None.",
        next_step="Let it return None to let the request pass, or Refuse(code, message).",
    )


class RequestGate:
    """The host's gate, asked about each request of one conversation; see `ask_gate`."""

    def __init__(self, gate: PreEgress, node_id: str) -> None:
        self._gate = gate
        self._node_id = node_id
        self._estimate = TokenEstimate()

    async def ask(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Ask about one try of a call, numbered from 1."""
        egress = Egress(
            self._node_id,
            entry.provider.provider_id,
            entry.model,
            request,
            self._estimate.of(request),
            request.max_output_tokens,
            number,
        )
        return await ask_gate(self._gate, egress) or GO


@frozen
class Spender:
    """A run's budget, with the first entry of its plan and the wanted bound of an answer."""

    budget: "TurnBudget"
    entry: FallbackPlanEntry
    wanted: int | None


class NodePolicy(TurnPolicy):
    """The policy of an agent node: the host's gate, and an answer that fits the agent's output.

    Source: docs/design/agent-node.md#failures.
    """

    def __init__(
        self,
        gate: PreEgress | None,
        node_id: str,
        answer: AnswerReader | None,
        spender: Spender | None = None,
        compactor: Compactor | None = None,
    ) -> None:
        self._gate = None if gate is None else RequestGate(gate, node_id)
        self._answer = answer
        self._spender = spender
        self._compactor = compactor

    async def before_turn(self, state: TurnState) -> BeforeTurn:
        """Bound the answer by the rest of the budget."""
        spender = self._spender
        if spender is None:
            return GO
        bound = await spender.budget.begin_turn(state.turn, spender.entry, spender.wanted)
        return GO if bound == spender.wanted else GoWithin(bound)

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Ask the host's gate, then hold the possible cost of the try."""
        if self._gate is not None:
            said = await self._gate.ask(entry, request, number)
            if isinstance(said, Refuse):
                return said
        if self._compactor is not None:
            self._compactor.use.request = request
        if self._spender is None:
            return GO
        return await self._spender.budget.before_attempt(entry, request, number)

    async def on_answer(self, state: TurnState, result: LlmResult) -> LlmResult:
        """Settle the cost of the answer, before its calls are dispatched."""
        if self._spender is not None:
            await self._spender.budget.settle()
        if self._compactor is not None:
            self._compactor.note(result, len(state.messages))
        return result

    async def on_error(self, state: TurnState, error: LlmError) -> OnError:
        """Request a shorter answer, once, if the budget refused; or shorten the conversation."""
        spender = self._spender
        if spender is not None:
            await spender.budget.settle()
        if spender is not None and error.kind == "refused" and spender.budget.asks_again():
            return RetryTurn()
        if self._compactor is not None and error.kind == "context_length":
            done = await self._compactor.when_refused(state.messages)
            if isinstance(done, NotCompacted):
                raise self._compactor.refuse(done)
            return Replace(done.messages)
        return RAISE

    async def on_text(self, state: TurnState, result: LlmResult) -> OnText:
        """Read the answer by its schema, type and check. Source: decisions 53 and 54."""
        return ACCEPT if self._answer is None else await self._answer.read(result)

    async def after_turn(self, state: TurnState, result: LlmResult) -> AfterTurn:
        """Shorten a long conversation."""
        shorter = None if self._compactor is None else await self._compactor.fitting(state.messages)
        return CONTINUE if shorter is None else Replace(shorter)


class SessionPolicy(NodePolicy):
    """The policy of a session: the model is told about tools that fail or are denied.

    Each counts against the correction budget.
    """

    async def on_result(
        self, state: TurnState, call: ToolCallPart, came: ToolOutcome | ToolCallError
    ) -> OnResult:
        """Tell the model about a failed call."""
        if isinstance(came, ToolExecutionError | ToolPolicyError):
            return Feed(str(came))
        if isinstance(came, ToolCallError):
            return ladder_verdict(came)
        return KEEP
