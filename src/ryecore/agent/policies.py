"""The policies of agent nodes and sessions for the turn core."""

import json
import re
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any, Final

from ryecore.agent.deps import Egress, PreEgress
from ryecore.agent.node import TurnBudget
from ryecore.agent.outcome import turn_error
from ryecore.agent.verdicts import (
    ACCEPT,
    GO,
    KEEP,
    RAISE,
    Accept,
    BeforeTurn,
    Fail,
    Feed,
    GoWithin,
    Nudge,
    OnError,
    OnResult,
    OnText,
    RetryTurn,
    TurnPolicy,
    TurnState,
    ladder_verdict,
)
from ryecore.errors import LlmError, ToolCallError, ToolExecutionError, ToolPolicyError
from ryecore.frozen import frozen
from ryecore.lillux.schema import SchemaValidator
from ryecore.llm.cost import TokenEstimate
from ryecore.llm.fallback_rules import AttemptVerdict, FallbackPlanEntry, Refuse
from ryecore.llm.parts import ToolCallPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult
from ryecore.strict_json import read_json
from ryecore.tools.results import ToolOutcome

__all__ = [
    "Misfit",
    "NodePolicy",
    "OutputSchema",
    "RequestGate",
    "SessionPolicy",
    "Spender",
    "ask_gate",
]

_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_MAX_FAILURES: Final = 20
_MAX_PATH_CHARS: Final = 200


@frozen
class Misfit:
    """The mismatch of an answer and its schema, in words for the model."""

    text: str


class OutputSchema:
    """The compiled schema of answers. Where it isn't valid, a ValueError says why."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(schema)
        except (TypeError, RecursionError) as problem:
            raise ValueError(f"it is not JSON: {problem}") from None
        self.schema = schema
        self._validator = SchemaValidator(text)

    async def read(self, answer: str) -> object:
        """Parse an answer, JSON alone or in the only fence, and check it against the schema."""
        fenced = _FENCED.fullmatch(answer)
        text = fenced[1] if fenced else answer
        try:
            value = read_json(text)
            failures = await self._validator.failures_async(text)
        except (ValueError, RecursionError) as problem:
            return Misfit(
                f"Your answer isn't JSON ({problem}). Answer with the JSON value alone, "
                "nothing before or after it."
            )
        if not failures:
            return value
        listed = "; ".join(
            f"{one.path[:_MAX_PATH_CHARS] or 'the value'}: {one.message}"
            for one in failures[:_MAX_FAILURES]
        )
        return Misfit(
            f"Your answer doesn't fit the schema: {listed}. Answer again with the whole JSON value."
        )


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

    budget: TurnBudget
    entry: FallbackPlanEntry
    wanted: int | None


class NodePolicy(TurnPolicy):
    """The policy of an agent node: the host's gate, and an answer that fits the node's schema.

    Source: docs/design/agent-node.md#failures.
    """

    def __init__(
        self,
        gate: PreEgress | None,
        node_id: str,
        output: OutputSchema | None,
        spender: Spender | None = None,
    ) -> None:
        self._gate = None if gate is None else RequestGate(gate, node_id)
        self._output = output
        self._spender = spender

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
        if self._spender is None:
            return GO
        return await self._spender.budget.before_attempt(entry, request, number)

    async def on_answer(self, state: TurnState, result: LlmResult) -> LlmResult:
        """Settle the cost of the answer, before its calls are dispatched."""
        if self._spender is not None:
            await self._spender.budget.settle()
        return result

    async def on_error(self, state: TurnState, error: LlmError) -> OnError:
        """Request a shorter answer, once, if the budget refused."""
        spender = self._spender
        if spender is not None:
            await spender.budget.settle()
        if spender is not None and error.kind == "refused" and spender.budget.asks_again():
            return RetryTurn()
        return RAISE

    async def on_text(self, state: TurnState, result: LlmResult) -> OnText:
        """Check the answer against the schema, in full. Source: decisions 53 and 54."""
        if self._output is None:
            return ACCEPT
        if result.stop_reason == "length":
            return Fail("validation", "The answer was cut at its longest, so it fits no schema.")
        value = await self._output.read(result.text)
        if isinstance(value, Misfit):
            return Nudge(value.text)
        return Accept(value)


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
