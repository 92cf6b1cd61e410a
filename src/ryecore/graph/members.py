"""The graph of one member of a foreach that runs an agent: made in memory, run as a child.

Each member is a run with an account and a journal of its own, so that members may run at once, and
each one's cost is known.

Source: ADR 040.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from attrs import evolve

from ryecore.agent.prompts import PromptTemplate
from ryecore.errors import InvalidItemId
from ryecore.frozen import frozen
from ryecore.graph.model import AgentForeach, Edge, Graph, ReturnVertex
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import read_template

__all__ = ["MEMBER", "member_graph", "member_ref", "read_parts"]

MEMBER: Final = "_member"
"""The key of a member's state that holds the member itself."""

_ANSWER: Final = "_answer"
_TAKEN: Final = read_template("${result}")
_GIVEN: Final = read_template(f"${{state.{_ANSWER}}}")


def member_ref(graph: Graph, vertex: AgentForeach) -> ItemRef:
    """Return the id of the runs of a foreach's members: that of the graph, with the node's name."""
    try:
        return ItemRef("tool", f"{graph.ref.id}/{vertex.id}")
    except InvalidItemId:  # a node's name may be any text
        return graph.ref


def member_graph(graph: Graph, vertex: AgentForeach) -> Graph:
    """Return the graph that runs a foreach's agent for one member, and returns its answer."""
    agent = evolve(
        vertex.agent,
        assign={_ANSWER: _TAKEN},
        next=(Edge(_ANSWER),),
        on_error=None,
        env_requires=(),
    )
    answer = ReturnVertex(id=_ANSWER, output=_GIVEN)
    digest = hashlib.sha256(f"{graph.digest} {vertex.id}".encode()).hexdigest()
    return evolve(
        graph,
        ref=member_ref(graph, vertex),
        digest=digest,
        start=agent.id,
        nodes={agent.id: agent, _ANSWER: answer},
        on_error="fail",
        state={},
        env_requires=(),
        hooks=(),
        input_schema=None,
        state_schema=None,
    )


@frozen
class ReadParts:
    """The inputs and the keys of the state that a prompt reads; others aren't copied to members."""

    inputs: Mapping[str, object]
    state: Mapping[str, object]


def read_parts(
    prompt: PromptTemplate, inputs: Mapping[str, object], state: Mapping[str, object]
) -> ReadParts:
    """Return what a prompt reads of a graph's inputs and its state."""
    read: dict[object, set[object]] = {"inputs": set(), "state": set()}
    for path, _ in prompt.paths:
        if path[0] == "ctx":
            path = path[1:]  # noqa: PLW2901 - the same path, as expressions write it
        elif path[:2] == ("run", "outputs"):
            path = ("state", *path[2:])  # noqa: PLW2901
        for root in read if not path else path[:1]:
            read.get(root, set()).add(path[1] if len(path) > 1 else ...)

    def part(root: str, whole: Mapping[str, object]) -> dict[str, object]:
        names = read[root]  # `...` for all
        return {name: one for name, one in whole.items() if ... in names or name in names}

    return ReadParts(part("inputs", inputs), part("state", state))
