"""The interface between a run loop and the executors of its nodes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, Protocol

from attrs import Factory, field

from ryecore.agent.events import AgentEvent, Emit
from ryecore.agent.model import Agent
from ryecore.agent.outcome import NodeOutcome, OutputT_co
from ryecore.frozen import frozen
from ryecore.llm.checks import of, plain_function
from ryecore.llm.cost import AttemptCost
from ryecore.llm.fallback_rules import AttemptRecord, AttemptVerdict, FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.policy.context import CallContext, CancelToken

__all__ = ["NodeExecContext", "NodeExecutor", "TurnBudget", "Vertex"]


class TurnBudget(Protocol):
    """The budget that a run loop gives to one run of an agent node.

    Source: docs/design/agent-node.md#events; decisions 39 and 40.
    """

    async def begin_turn(self, turn: int, entry: FallbackPlanEntry, wanted: int | None) -> int:
        """Begin a turn. A retry after an error belongs to the same turn.

        Args:
            turn: The turn of the node, from 1.
            entry: The first entry of the plan.
            wanted: The wanted bound of the answer; None for none.

        Returns:
            The bound of the answer within the rest of the budget.

        Raises:
            AgentTurnError: `budget_exceeded`: the budget is used up.
        """
        ...

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Hold the most that a try may cost; refuse it if that is too much."""
        ...

    async def before_media(self, provider: str, model: str, input_tokens: int) -> AttemptVerdict:
        """Hold the most that media may cost, made at an endpoint of their own.

        Args:
            provider: The provider's id.
            model: The model.
            input_tokens: The input tokens, roughly.
        """
        ...

    def asks_again(self) -> bool:
        """Return whether to repeat a refused request, for an answer that the budget allows."""
        ...

    async def settle(self) -> None:
        """Settle the tries that were made, so that a stop is known before the next step."""
        ...

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Count the cost of a try."""
        ...


_NONE: Final = type(None)


class Vertex(Protocol):
    """A node of a graph, of any type."""

    @property
    def id(self) -> str:
        """Its id in events."""
        ...

    @property
    def type(self) -> str:
        """The type, which selects its handler."""
        ...


def _drop(event: AgentEvent) -> None:
    """Drop an event without a listener."""


@frozen(kw_only=True)
class NodeExecContext(Generic[OutputT_co]):
    """The context in which a node runs.

    Attributes:
        vertex: The node.
        resolved_agent: The agent that it refers to, if it is an agent node.
        inputs: The run's inputs.
        ctx: Values that the run loop shares with its nodes.
        outputs: The untrusted outputs of earlier nodes, by id; in a graph, its state.
        emit: Called with each event.
        signal: Cancels the node.
        call: The caller and the bounds of the node's tool calls.
        budget: The budget of its tries; None for none.
        recorded: Awaited before a tool runs, so that the record of its call is stored first.

    Raises:
        ConfigError: A field is of the wrong type.
    """

    vertex: Vertex
    resolved_agent: Agent[OutputT_co] | None = field(
        default=None, validator=of("an Agent", Agent, _NONE)
    )
    inputs: Mapping[str, object] = Factory(dict)
    ctx: Mapping[str, object] = Factory(dict)
    outputs: Mapping[str, object] = Factory(dict)
    emit: Emit = field(default=_drop, validator=plain_function)
    signal: CancelToken | None = field(
        default=None, validator=of("a CancelToken", CancelToken, _NONE)
    )
    call: CallContext = field(factory=CallContext, validator=of("a CallContext", CallContext))
    budget: TurnBudget | None = None
    recorded: Callable[[], Awaitable[None]] | None = None


class NodeExecutor(Protocol):
    """Runs nodes. Failures of models, tools and authors are outcomes, not exceptions."""

    def __call__(self, ctx: NodeExecContext, /) -> Awaitable[NodeOutcome]:
        """Run a node to its outcome."""
        ...
