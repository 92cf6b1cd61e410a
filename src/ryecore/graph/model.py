"""A state graph, read and checked. Nothing in it runs by itself.

Source: docs/design/runtimes.md#state-graphs; docs/design/graphs.md#the-walk.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from attrs import Factory, field, frozen

from ryecore.agent.model import Agent, AgentNode
from ryecore.display.picture import Shape
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
    "ActionVertex",
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
"""The executor that makes a tool a graph."""

DEFAULT_MAX_STEPS: Final = 100
DEFAULT_MAX_CONCURRENCY: Final = 10

OnError = Literal["fail", "continue"]


@frozen
class Edge:
    """An edge: the node to continue with.

    Attributes:
        to: The next node's id.
        when: Under which condition; always where None.
    """

    to: str
    when: Condition | None = None

    def label(self, *, is_last_of_several: bool) -> str:
        """Return what a reader is shown on the edge: its condition, or that it is the rest.

        Args:
            is_last_of_several: Whether other edges of its node are tried before it.
        """
        if self.when is None:
            return "else" if is_last_of_several else ""
        return describe_condition(self.when)


@frozen
class Tries:
    """How often a node is tried.

    Attributes:
        max: How often in all, at least 1.
        base_s: The bound of the first wait, in seconds; each next one is twice as long.
        cap_s: The bound of any wait, in seconds.

    Source: decision 51.
    """

    max: int = 1
    base_s: float = 0.25
    cap_s: float = 8.0


@frozen
class Action:
    """What a node has done: one item, executed.

    Attributes:
        ref: A tool or a directive.
        params: Its parameters, with `${...}` in them; those that become None are left out.
        thread: `fork` runs a directive in a managed thread; `inline` gets its directions.
        model: The model of a fork; as the directive says where None.
        limits: The limits of a fork.
    """

    ref: ItemRef
    params: Template
    thread: Literal["inline", "fork"] = "inline"
    model: str | None = None
    limits: Mapping[str, float] = Factory(dict)


@frozen(kw_only=True)
class _Vertex:
    """What every node has.

    Attributes:
        id: Its name in the graph.
        line: Where it stands in the file, counted from 1.
        next: Its edges, in order: the first that holds is taken; where none does, the graph ends.
        on_error: The node to continue with where this one fails; by the policy where None.
        assign: What it sets in the state, by key; skipped where it failed.
        env_requires: The environment variables without which it can't run.
        timeout_s: How long one try may take, in seconds; unbounded where None.
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
        """The traits of its kind."""
        return NODE_KINDS[self.type]


@frozen(kw_only=True)
class ActionVertex(_Vertex):
    """A node that executes an item.

    Attributes:
        action: The item.
        tries: How often.
        cache_result: Whether the result is remembered by all that it depends on.
    """

    type: Literal["action"] = field(default="action", init=False)
    action: Action
    tries: Tries = Tries()
    cache_result: bool = False


@frozen(kw_only=True)
class GateVertex(_Vertex):
    """A node that does nothing but assign and choose an edge."""

    type: Literal["gate"] = field(default="gate", init=False)


@frozen(kw_only=True)
class ForeachVertex(_Vertex):
    """A node that executes an item for each member of a list.

    Attributes:
        over: The list.
        as_: What each member is called in the action's parameters.
        action: The item.
        collect: The key of the state that gets the results, in the list's order; none where None.
        parallel: Whether several run at once.
        max_concurrency: How many at most; the graph's where None.
        tries: How often each is tried.
        cache_result: Whether results are remembered.
    """

    type: Literal["foreach"] = field(default="foreach", init=False)
    over: Template
    action: Action
    as_: str = "item"
    collect: str | None = None
    parallel: bool = False
    max_concurrency: int | None = None
    tries: Tries = Tries()
    cache_result: bool = False


@frozen(kw_only=True)
class AgentVertex(_Vertex):
    """A node that runs an agent.

    Attributes:
        node: The agent's vertex, as the one executor takes it. Its `retry` feeds the first entry
            of the agent's fallback plan, and nothing else.
        agent: The agent that it refers to.

    Source: docs/design/agent-node.md; decision 50.
    """

    type: Literal["agent"] = field(default="agent", init=False)
    node: AgentNode
    agent: Agent


@frozen(kw_only=True)
class ReturnVertex(_Vertex):
    """A node that ends the graph.

    Attributes:
        output: What the run gives.
    """

    type: Literal["return"] = field(default="return", init=False)
    output: Template


VertexOfGraph: TypeAlias = ActionVertex | GateVertex | ForeachVertex | AgentVertex | ReturnVertex


CallingVertex: TypeAlias = ActionVertex | ForeachVertex
"""The nodes that execute an item."""


@frozen
class NodeKind:
    """What the code that is not a kind's own has to know of it.

    Attributes:
        keys: The keys that a file may write.
        shape: How pictures draw it.
        acts: Whether it does anything that can fail, repeat or cost.
        has_result: Whether `${result}` has a value behind it.
        has_members: Whether its result tells of several.
    """

    keys: tuple[str, ...]
    shape: Shape = "box"
    acts: bool = True
    has_result: bool = True
    has_members: bool = False


_ALWAYS: Final = ("type", "description", "comment")
_FLOW: Final = ("next", "assign")
_DOING: Final = ("on_error", "env_requires", "timeout_s", "retry")
_ACTION: Final = ("action", "cache_result")
AGENT_NODE_KEYS: Final = (
    "prompt_template", "system_prompt_append", "model", "tools", "output_schema", "output_media",
)  # fmt: skip
"""The fields of an agent's node that a file may set, besides `retry`."""

NODE_KINDS: Final[Mapping[str, NodeKind]] = {
    "action": NodeKind((*_ALWAYS, *_ACTION, *_FLOW, *_DOING)),
    "gate": NodeKind((*_ALWAYS, *_FLOW), "diamond", acts=False, has_result=False),
    "foreach": NodeKind(
        (*_ALWAYS, "over", "as", *_ACTION, "collect", "parallel", "max_concurrency", *_FLOW,
         *_DOING),
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
        max_steps: How many nodes a run may execute; no parameter raises it.
        max_concurrency: How many members of a foreach run at once at most.
        on_error: What a failed node without `on_error` does to the run.
        state: What the state begins as.
        env_requires: The environment variables without which no run begins.
        permissions: What its actions may do at most: capabilities.
        hooks: Its own hooks.
        input_schema: The JSON Schema of its inputs; None where it takes anything.
        state_schema: The JSON Schema of its state; None where it declares none.
        uses_time: Whether it asks for `state._now` or `state._timestamp` anywhere.
        version: The author's.
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

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - for notebooks alone
        from ryecore.graph.picture import graph_picture  # noqa: PLC0415

        return to_html(graph_picture(self))
