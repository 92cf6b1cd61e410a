"""The seam to a run loop: what it asks of a vertex's executor."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from attrs import Factory, field, frozen

from ryecore.agent.budget import TurnBudget
from ryecore.agent.events import AgentEvent, Emit
from ryecore.agent.model import Agent
from ryecore.agent.outcome import NodeOutcome
from ryecore.llm.checks import of, plain_function
from ryecore.policy.context import CallContext, CancelToken

__all__ = ["NodeExecContext", "NodeExecutor", "Vertex"]


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
