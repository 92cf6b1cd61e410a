"""What was read of a node, whole or not: what the checks that follow look at."""

from collections.abc import Mapping

from attrs import Factory, frozen

from ryecore.graph.model import Edge, VertexOfGraph
from ryecore.graph.validation.problems import Place
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import Template

__all__ = ["Draft", "DraftEdge", "Slot"]


@frozen
class DraftEdge:
    """An edge, and where the file names its target."""

    edge: Edge
    place: Place


@frozen
class Slot:
    """A value with expressions.

    Attributes:
        template: The value.
        place: Where it stands.
        what: What it is for: `params`, `over`, `assign` or `output`.
    """

    template: Template
    place: Place
    what: str


@frozen(kw_only=True)
class Draft:
    """A node as far as it could be read.

    Attributes:
        id: Its id.
        type: Its type.
        place: Where it stands.
        edges: Its edges, in order.
        on_error: The node that it goes on with where it fails.
        assign: What it sets in the state.
        collect: The key of the state that a foreach sets.
        as_: What a foreach calls each member.
        slots: Its values with expressions.
        item: What its action executes.
        agent_ref: Its agent.
        vertex: What it comes to; None where it has problems that leave that open.
    """

    id: str
    type: str
    place: Place
    edges: tuple[DraftEdge, ...] = ()
    on_error: str | None = None
    assign: Mapping[str, Template] = Factory(dict)
    collect: str | None = None
    as_: str | None = None
    slots: tuple[Slot, ...] = ()
    item: ItemRef | None = None
    agent_ref: str | None = None
    vertex: VertexOfGraph | None = None

    def at(self, *rest: str | int) -> Place:
        """A place in the node."""
        return (*self.place, *rest)
