"""The policies of the turn core's two callers here."""

from inspect import isawaitable

from ryecore.agent.deps import Egress, PreEgress
from ryecore.agent.outcome import turn_error
from ryecore.agent.output import Misfit, OutputSchema
from ryecore.agent.verdicts import (
    ACCEPT,
    GO,
    KEEP,
    Accept,
    Fail,
    Feed,
    Nudge,
    OnResult,
    OnText,
    TurnPolicy,
    TurnState,
    ladder_verdict,
)
from ryecore.errors import ToolCallError, ToolExecutionError, ToolPolicyError
from ryecore.llm.estimate import estimated_tokens
from ryecore.llm.options import AttemptVerdict, Refuse
from ryecore.llm.parts import ToolCallPart
from ryecore.llm.plan import FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult
from ryecore.tools.outcome import ToolOutcome

__all__ = ["NodePolicy", "SessionPolicy", "ask_before", "ask_gate"]


async def ask_gate(gate: PreEgress, egress: Egress) -> Refuse | None:
    """Ask the host's gate. What it says besides `Refuse` and None lets nothing pass.

    Raises:
        AgentTurnError: `internal`: its word can't be understood, such as False.
    """
    said = gate(egress)
    if isawaitable(said):
        said = await said
    if said is None or isinstance(said, Refuse):
        return said
    raise turn_error(
        "internal",
        f"The host's pre_egress gave {type(said).__name__}, which is no answer.",
        next_step="Let it return None to let the request pass, or Refuse(code, message).",
    )


async def ask_before(
    gate: PreEgress, node_id: str, entry: FallbackPlanEntry, request: LlmRequest, number: int
) -> AttemptVerdict:
    """Ask the host's gate about one try; see `ask_gate`.

    Args:
        gate: The gate.
        node_id: What it is told of the run.
        entry: Whom the try would go to.
        request: What would be sent.
        number: Which try of this call it is, from 1.
    """
    egress = Egress(
        node_id,
        entry.provider.provider_id,
        entry.model,
        request,
        estimated_tokens(request),
        request.max_output_tokens,
        number,
    )
    return await ask_gate(gate, egress) or GO


class NodePolicy(TurnPolicy):
    """An agent node's: the host's gate, the seed's ladder, an answer that fits the node's schema.

    Args:
        gate: Asked before each try; None where the host has none.
        node_id: What the gate is told of the run.
        output: The schema of the answer; None for text.
    """

    def __init__(self, gate: PreEgress | None, node_id: str, output: OutputSchema | None) -> None:
        self._gate = gate
        self._node_id = node_id
        self._output = output

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Ask the host's gate."""
        if self._gate is None:
            return GO
        return await ask_before(self._gate, self._node_id, entry, request, number)

    async def on_text(self, state: TurnState, result: LlmResult) -> OnText:
        """Check the answer against the schema, in full. Source: decisions 53 and 54."""
        if self._output is None:
            return ACCEPT
        if result.stop_reason == "length":
            return Fail("validation", "The answer was cut at its longest, so it fits no schema.")
        value = self._output.read(result.text)
        if isinstance(value, Misfit):
            return Nudge(value.text)
        return Accept(value)


class SessionPolicy(NodePolicy):
    """A session's: a person is there, so a tool that fails or is denied is told to the model.

    It counts against the correction budget all the same.
    """

    async def on_result(
        self, state: TurnState, call: ToolCallPart, came: ToolOutcome | ToolCallError
    ) -> OnResult:
        """Tell the model what went wrong."""
        if isinstance(came, ToolExecutionError | ToolPolicyError):
            return Feed(str(came))
        if isinstance(came, ToolCallError):
            return ladder_verdict(came)
        return KEEP
