"""The model of a state graph: frozen data that was read and checked.

Source: docs/design/runtimes.md#state-graphs; docs/design/graphs.md#the-walk.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from attrs import Factory, field

from ryecore.agent.model import Agent, AgentNode
from ryecore.display.picture import Shape
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.policy.conditions import Condition, describe_condition
from ryecore.policy.expressions import Template
from ryecore.policy.hooks import Hook

__all__ = [
    "AGENT_NODE_KEYS",
    "DEFAULT_MAX_CONCURRENCY",
    "DEFAULT_MAX_STEPS",
    "GRAPH_RUNTIME",
    "NODE_KINDS",
    "Action",
    "ActionForeach",
    "ActionVertex",
    "AgentForeach",
    "AgentVertex",
    "CallingVertex",
    "Edge",
    "ForeachVertex",
    "GateVertex",
    "Graph",
    "NodeKind",
    "OnError",
    "ReturnVertex",
    "Tries",
    "VertexOfGraph",
]

GRAPH_RUNTIME: Final = "rye/core/runtimes/state-graph/runtime"
"""The executor that marks a tool as a graph."""

DEFAULT_MAX_STEPS: Final = 100
DEFAULT_MAX_CONCURRENCY: Final = 10

OnError = Literal["fail", "continue"]


@frozen
class Edge:
    """An edge to the next node, taken where `when` holds; None is always."""

    to: str
    when: Condition | None = None

    def label(self, *, is_last_of_several: bool) -> str:
        """Return the text of the edge for readers: its condition, or `else` behind other edges."""
        if self.when is None:
            return "else" if is_last_of_several else ""
        return describe_condition(self.when)


@frozen
class Tries:
    """The attempts of a node: `max` in all, and the bounds of the waits between them.

    The first wait is at most `base_s`, each later one twice as long, none above `cap_s`.

    Source: decision 51.
    """

    max: int = 1
    base_s: float = 0.25
    cap_s: float = 8.0


@frozen
class Action:
    """The action of a node: one item to execute.

    `params` may contain `${...}`; those that become None are left out. A `fork` of a directive has
    a model, else the directive's own, and limits; `inline` gets the directive's directions. A tool
    that is a graph has limits.
    `remote` is the name of the node that executes it; None for this machine.
    """

    ref: ItemRef
    params: Template
    thread: Literal["inline", "fork"] = "inline"
    model: str | None = None
    limits: Mapping[str, float] = Factory(dict)
    remote: str | None = None


@frozen(kw_only=True)
class _Vertex:
    """The common attributes of all nodes.

    Attributes:
        id: Its name in the graph.
        line: Its line in the file, from 1.
        next: Its edges, in order: the first whose condition holds is taken; without one the graph
            ends.
        on_error: The node to continue with if this one fails; None for the graph's policy.
        assign: The values that it sets in the state, by key; skipped if it failed.
        env_requires: The environment variables that it needs.
        timeout_s: The timeout of one attempt, in seconds; None for no bound.
        description: For people.
    """

    type: str = field(init=False)
    id: str
    line: int = 0
    next: tuple[Edge, ...] = ()
    on_error: str | None = None
    assign: Mapping[str, Template] = Factory(dict)
    env_requires: tuple[str, ...] = ()
    timeout_s: float | None = None
    description: str = ""

    @property
    def kind(self) -> "NodeKind":
        """The traits of the node's kind."""
        return NODE_KINDS[self.type]


@frozen(kw_only=True)
class ActionVertex(_Vertex):
    """A node that executes an item. A cached result is found by everything that it depends on."""

    type: Literal["action"] = field(default="action", init=False)
    action: Action
    tries: Tries = Tries()
    cache_result: bool = False


@frozen(kw_only=True)
class GateVertex(_Vertex):
    """A node that only assigns values and chooses an edge."""

    type: Literal["gate"] = field(default="gate", init=False)


@frozen(kw_only=True)
class ForeachVertex(_Vertex):
    """A node that does something for each member of a list, which is named `as_` there.

    `collect` is the key of the state for the results, in the list's order. `max_concurrency` is the
    graph's bound by default.
    """

    type: Literal["foreach"] = field(default="foreach", init=False)
    over: Template
    as_: str = "item"
    collect: str | None = None
    parallel: bool = False
    max_concurrency: int | None = None


@frozen(kw_only=True)
class ActionForeach(ForeachVertex):
    """A foreach that executes an item for each member. `tries` are those of each one.

    A map's foreach, whose results are read from the journal, doesn't repeat them: it
    `returns_items` not.
    """

    action: Action
    tries: Tries = Tries()
    cache_result: bool = False
    returns_items: bool = True

    @property
    def body(self) -> str:
        """What it does for each member, in words."""
        return str(self.action.ref)

    @property
    def body_document(self) -> "dict[str, object]":
        """The same as a JSON-ready object."""
        return {"item_id": str(self.action.ref)}


@frozen(kw_only=True)
class AgentVertex(_Vertex):
    """A node that runs an agent.

    The `retry` of `node` applies to the first entry of the agent's fallback plan only.

    Source: docs/design/agent-node.md; decision 50.
    """

    type: Literal["agent"] = field(default="agent", init=False)
    node: AgentNode
    agent: Agent


@frozen(kw_only=True)
class AgentForeach(ForeachVertex):
    """A foreach that runs an agent for each member, in a run of its own."""

    agent: AgentVertex

    @property
    def body(self) -> str:
        """What it does for each member, in words."""
        return f"agent {self.agent.agent.name}"

    @property
    def body_document(self) -> "dict[str, object]":
        """The same as a JSON-ready object."""
        return {"agent": self.agent.agent.name}


@frozen(kw_only=True)
class ReturnVertex(_Vertex):
    """A node that ends the graph, with the run's output."""

    type: Literal["return"] = field(default="return", init=False)
    output: Template


VertexOfGraph: TypeAlias = (
    ActionVertex | GateVertex | ActionForeach | AgentForeach | AgentVertex | ReturnVertex
)


CallingVertex: TypeAlias = ActionVertex | ActionForeach
"""The nodes that execute an item."""


@frozen
class NodeKind:
    """The traits of a kind of node, for code that handles all kinds.

    `keys` are those that a file may contain. What `acts` performs a call, which can fail, be
    retried or cost money. `has_result` tells whether `${result}` has a value after it.
    """

    keys: tuple[str, ...]
    shape: Shape = "box"
    acts: bool = True
    has_result: bool = True
    has_members: bool = False


_ALWAYS: Final = ("type", "description", "comment")
_FLOW: Final = ("next", "assign")
_DOING: Final = ("on_error", "env_requires", "timeout_s", "retry")
_ACTION: Final = ("action", "remote", "cache_result")
AGENT_NODE_KEYS: Final = (
    "prompt_template", "system_prompt_append", "model", "tools", "output_schema", "output_media",
)  # fmt: skip
"""The fields of an agent's node that a file may set, besides `retry`."""

NODE_KINDS: Final[Mapping[str, NodeKind]] = {
    "action": NodeKind((*_ALWAYS, *_ACTION, *_FLOW, *_DOING)),
    "gate": NodeKind((*_ALWAYS, *_FLOW), "diamond", acts=False, has_result=False),
    "foreach": NodeKind(
        (*_ALWAYS, "over", "as", *_ACTION, "agent_ref", *AGENT_NODE_KEYS, "collect", "parallel",
         "max_concurrency", *_FLOW, *_DOING),
        "stack",
        has_members=True,
    ),
    "agent": NodeKind((*_ALWAYS, "agent_ref", *AGENT_NODE_KEYS, *_FLOW, *_DOING)),
    "return": NodeKind((*_ALWAYS, "output"), "round", acts=False),
}  # fmt: skip
"""The kinds of nodes. A new one is a row here, a vertex class above, a reader in
`validation/nodes.py` and a handler in `walk/vertices.py`."""


@frozen(kw_only=True)
class Graph:
    """A state graph.

    Attributes:
        ref: Its item.
        digest: SHA-256 (hex) of its verified file.
        path: The author's file.
        start: The id of the first node.
        nodes: Its nodes by their ids, in the file's order.
        max_steps: The most nodes that a run may execute; no parameter raises it.
        max_concurrency: The most members of a foreach that run at once.
        on_error: The policy for a failed node without `on_error`.
        state: The initial state.
        env_requires: The environment variables that a run needs.
        permissions: The capabilities that bound its actions.
        hooks: Its own hooks.
        input_schema: The JSON Schema of its inputs; None where it takes anything.
        state_schema: The JSON Schema of its state; None where it declares none.
        uses_time: Whether it uses `state._now` or `state._timestamp` anywhere.
        version: The author's version.
        description: For people.
    """

    ref: ItemRef
    digest: str
    path: Path
    start: str
    nodes: Mapping[str, VertexOfGraph]
    max_steps: int = DEFAULT_MAX_STEPS
    max_concurrency: int = DEFAULT_MAX_CONCURRENCY
    on_error: OnError = "fail"
    state: Mapping[str, object] = Factory(dict)
    env_requires: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    input_schema: Mapping[str, object] | None = None
    state_schema: Mapping[str, object] | None = None
    uses_time: bool = False
    version: str | None = None
    description: str = ""

    @property
    def agents(self) -> "tuple[AgentVertex, ...]":
        """The nodes that run agents, those within a foreach included."""
        found = (one.agent if isinstance(one, AgentForeach) else one for one in self.nodes.values())
        return tuple(one for one in found if isinstance(one, AgentVertex))

    def __str__(self) -> str:
        from ryecore.graph.rendering import render_graph  # noqa: PLC0415 - only to be shown

        return render_graph(self).plain()

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - only for notebooks
        from ryecore.graph.picture import graph_picture  # noqa: PLC0415

        return to_html(graph_picture(self))
