"""The seam to a run loop: what it asks of a vertex's executor."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from attrs import Factory, field, frozen

from ryecore.agent.events import AgentEvent, Emit
from ryecore.agent.model import Agent
from ryecore.agent.outcome import NodeOutcome
from ryecore.llm.checks import of, plain_function
from ryecore.llm.cost import AttemptCost
from ryecore.llm.options import AttemptVerdict
from ryecore.llm.plan import AttemptRecord, FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.policy.context import CallContext, CancelToken

__all__ = ["NodeExecContext", "NodeExecutor", "TurnBudget", "Vertex"]


class TurnBudget(Protocol):
    """A run loop's account, as one run of an agent's vertex draws on it.

    Source: docs/design/agent-node.md#events; decisions 39 and 40.
    """

    async def begin_turn(self, turn: int, entry: FallbackPlanEntry, wanted: int | None) -> int:
        """Begin a turn. Asking again after an error is the same one.

        Args:
            turn: The vertex's turn, from 1.
            entry: Who is asked first.
            wanted: How long the answer may be; None where nobody says.

        Returns:
            How long it may be within what is left.

        Raises:
            AgentTurnError: `budget_exceeded`: nothing more may be asked.
        """
        ...

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Hold what a try may cost at most; it is refused where that is too much."""
        ...

    async def before_media(self, provider: str, model: str, input_tokens: int) -> AttemptVerdict:
        """Return the same for media, which are made at an endpoint of their own.

        Args:
            provider: Who is asked.
            model: The model.
            input_tokens: How much is about to be read, roughly.
        """
        ...

    def asks_again(self) -> bool:
        """Whether what was refused is to be asked once more, for as short an answer as is left."""
        ...

    async def settle(self) -> None:
        """Settle the tries that were made, so that what follows knows of a stop."""
        ...

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Count what a try has cost."""
        ...


_NONE: Final = type(None)


class Vertex(Protocol):
    """A vertex of a graph, of whichever type."""

    @property
    def id(self) -> str:
        """What events call it."""
        ...

    @property
    def type(self) -> str:
        """Which handler runs it."""
        ...


def _drop(event: AgentEvent) -> None:
    """Where nobody listens."""


@frozen(kw_only=True)
class NodeExecContext:
    """What a vertex runs with.

    Attributes:
        vertex: The vertex.
        resolved_agent: The agent that it refers to, where it is an agent's.
        inputs: The run's inputs.
        ctx: What the run loop shares with its vertices.
        outputs: What the vertices before have said, by their ids; in a graph, its state. None of
            it is trusted.
        emit: Told each event as it happens.
        signal: Cancels the vertex.
        call: On whose behalf the vertex's tools run, and within what.
        budget: What its tries are held and settled in; None where nothing bounds what they cost.
        recorded: Awaited before a tool runs, so that the record of its call is kept by then.

    Raises:
        ConfigError: A field is of the wrong type.
    """

    vertex: Vertex
    resolved_agent: Agent | None = field(default=None, validator=of("an Agent", Agent, _NONE))
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
    """Runs vertices, and never raises for what a model, a tool or an author did wrong."""

    def __call__(self, ctx: NodeExecContext, /) -> Awaitable[NodeOutcome]:
        """Run a vertex to its outcome."""
        ...
