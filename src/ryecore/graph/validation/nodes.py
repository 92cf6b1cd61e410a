"""One node of a graph's file, read into its vertex."""

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from ryecore.agent.model import Agent
from ryecore.convert.lines import Place
from ryecore.graph.model import (
    NODE_KINDS,
    Action,
    ActionVertex,
    AgentVertex,
    Edge,
    ForeachVertex,
    GateVertex,
    ReturnVertex,
)
from ryecore.graph.validation.actions import (
    check_narrowed,
    read_action,
    read_agent_node,
    read_tries,
)
from ryecore.graph.validation.drafts import Draft, DraftEdge, Slot
from ryecore.graph.validation.fields import Fields, kind_of
from ryecore.policy.conditions import AnyOf, Condition, read_condition
from ryecore.policy.expressions import Template

__all__ = ["NodeReader"]

_TAKEN_NAMES: Final = ("inputs", "state", "result")


@frozen
class NodeReader:
    """Reads nodes.

    Attributes:
        agents: The graph's agents by name; None for one that can't be read.
        lines: The nodes' lines in the file, where they are known.
    """

    agents: Mapping[str, Agent | None]
    lines: Mapping[str, int]

    def read(self, name: str, node: Fields) -> Draft:
        """Read a node."""
        is_plain = "type" not in node.declared
        type_ = "action" if is_plain else node.choice("type", tuple(NODE_KINDS), "")
        if not type_:
            return Draft(id=name, type="action", place=node.place, edges=_edges(node))
        _check_keys(node, type_)
        match type_:
            case "gate":
                return self._gate(name, node)
            case "foreach":
                return self._foreach(name, node)
            case "agent":
                return self._agent(name, node)
            case "return":
                return self._return(name, node)
        return self._action(name, node)

    def _line(self, name: str) -> int:
        return self.lines.get(name, 0)

    def _action(self, name: str, node: Fields) -> Draft:
        action, tries, cached = read_action(node), read_tries(node), _cached(node)
        edges, assign = _edges(node), _assign(node)
        on_error, variables, timeout_s = _doing(node)
        vertex = (
            None
            if action is None
            else ActionVertex(
                id=name,
                line=self._line(name),
                description=_description(node),
                next=_taken(edges),
                assign=assign,
                on_error=on_error,
                env_requires=variables,
                timeout_s=timeout_s,
                action=action,
                tries=tries,
                cache_result=cached,
            )
        )
        return Draft(
            id=name,
            type="action",
            place=node.place,
            edges=edges,
            on_error=on_error,
            assign=assign,
            slots=(*_params(node, action), *_assigned(node, assign)),
            item=None if action is None else action.ref,
            vertex=vertex,
        )

    def _gate(self, name: str, node: Fields) -> Draft:
        edges, assign = _edges(node), _assign(node)
        return Draft(
            id=name,
            type="gate",
            place=node.place,
            edges=edges,
            assign=assign,
            slots=_assigned(node, assign),
            vertex=GateVertex(
                id=name,
                line=self._line(name),
                description=_description(node),
                next=_taken(edges),
                assign=assign,
            ),
        )

    def _foreach(self, name: str, node: Fields) -> Draft:
        action, tries, cached = read_action(node), read_tries(node), _cached(node)
        edges, assign, over = _edges(node), _assign(node), node.template("over")
        on_error, variables, timeout_s = _doing(node)
        if not node.has("over"):
            node.problems.error(node.place, "over is missing: the list that it goes through.")
        as_ = node.text("as") or "item"
        if as_ in _TAKEN_NAMES:
            node.error("as", f"as is {as_!r}, which is taken; choose another name.")
        elif not as_.isidentifier():
            node.error("as", f"as is {as_!r}; it has to be a name.")
        collect, parallel = node.text("collect"), node.flag("parallel")
        at_once = node.whole("max_concurrency", None)
        vertex = (
            None
            if action is None
            else ForeachVertex(
                id=name,
                line=self._line(name),
                description=_description(node),
                next=_taken(edges),
                assign=assign,
                on_error=on_error,
                env_requires=variables,
                timeout_s=timeout_s,
                over=over,
                as_=as_,
                action=action,
                collect=collect,
                parallel=parallel,
                max_concurrency=at_once,
                tries=tries,
                cache_result=cached,
            )
        )
        return Draft(
            id=name,
            type="foreach",
            place=node.place,
            edges=edges,
            on_error=on_error,
            assign=assign,
            collect=collect,
            as_=as_,
            slots=(
                Slot(over, node.at("over"), "over"),
                *_params(node, action),
                *_assigned(node, assign),
            ),
            item=None if action is None else action.ref,
            vertex=vertex,
        )

    def _agent(self, name: str, node: Fields) -> Draft:
        agent_ref = node.text("agent_ref", required=True)
        if agent_ref and agent_ref not in self.agents:
            guess = node.problems.guess(agent_ref, self.agents)
            node.error("agent_ref", f"There is no agent {agent_ref!r}.{guess}")
        agent = self.agents.get(agent_ref) if agent_ref else None
        made = read_agent_node(name, node, agent_ref)
        edges, assign = _edges(node), _assign(node)
        on_error, variables, timeout_s = _doing(node)
        vertex = None
        if agent is not None:
            check_narrowed(node, agent)
        if agent is not None and made is not None:
            vertex = AgentVertex(
                id=name,
                line=self._line(name),
                description=_description(node),
                next=_taken(edges),
                assign=assign,
                on_error=on_error,
                env_requires=variables,
                timeout_s=timeout_s,
                node=made,
                agent=agent,
            )
        return Draft(
            id=name,
            type="agent",
            place=node.place,
            edges=edges,
            on_error=on_error,
            assign=assign,
            slots=_assigned(node, assign),
            agent_ref=agent_ref,
            vertex=vertex,
        )

    def _return(self, name: str, node: Fields) -> Draft:
        output = node.template("output")
        return Draft(
            id=name,
            type="return",
            place=node.place,
            slots=(Slot(output, node.at("output"), "output"),),
            vertex=ReturnVertex(
                id=name, line=self._line(name), description=_description(node), output=output
            ),
        )


def _check_keys(node: Fields, type_: str) -> None:
    if not set(node.declared) <= set(NODE_KINDS[type_].keys):
        node.check(f"{_a(type_)} node", NODE_KINDS[type_].keys, _why_not(type_))


def _why_not(type_: str) -> dict[str, str]:
    """Return what to say of keys that other nodes have."""
    why = {
        key: f"{key!r} is a key of {_a(owner)} node, and this is {_a(type_)} node."
        for owner, kind in NODE_KINDS.items()
        for key in kind.keys
    }
    if type_ == "return":
        why["next"] = "A return node ends the graph, and has no 'next'."
    if type_ == "gate":
        why["on_error"] = "Nothing in a gate can fail, so it has no 'on_error'."
    if type_ == "agent":
        why["cache_result"] = "What a model answers is not remembered: leave 'cache_result' out."
    for key in ("remote", "target"):
        why[key] = f"Nodes can't run elsewhere: this is not available yet. Leave {key!r} out."
    return why


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _description(node: Fields) -> str:
    return node.text("description") or ""


def _doing(node: Fields) -> tuple[str | None, tuple[str, ...], float | None]:
    """Return what every node has that does something: on_error, env_requires and timeout_s."""
    return (
        node.text("on_error"),
        node.variables("env_requires"),
        node.seconds("timeout_s", None),
    )


def _cached(node: Fields) -> bool:
    cached, action = node.flag("cache_result"), node.declared.get("action")
    action = action if isinstance(action, Mapping) else {}
    kinds = (action.get("item_type"), str(action.get("item_id")).partition(":")[0])
    if cached and "directive" in kinds:
        node.error(
            "cache_result",
            "Only the results of tools are remembered: what follows a directive may answer "
            "differently each time.",
        )
    return cached


def _params(node: Fields, action: Action | None) -> tuple[Slot, ...]:
    if action is None:
        return ()
    return (Slot(action.params, (*node.at("action"), "params"), "params"),)


def _assign(node: Fields) -> Mapping[str, Template]:
    return {
        name: node.template_of(value, (*node.at("assign"), name))
        for name, value in node.mapping("assign").items()
    }


def _assigned(node: Fields, assign: Mapping[str, Template]) -> tuple[Slot, ...]:
    return tuple(
        Slot(template, (*node.at("assign"), name), "assign") for name, template in assign.items()
    )


def _taken(edges: tuple[DraftEdge, ...]) -> tuple[Edge, ...]:
    return tuple(one.edge for one in edges)


def _edges(node: Fields) -> tuple[DraftEdge, ...]:
    declared = node.declared.get("next")
    if declared is None:
        return ()
    if isinstance(declared, str):
        return (DraftEdge(Edge(declared), node.at("next")),)
    if not isinstance(declared, list):
        node.error("next", f"next is {kind_of(declared)}; it is a node's id, or a list of edges.")
        return ()
    edges: list[DraftEdge] = []
    for index, one in enumerate(declared):
        place: Place = (*node.at("next"), index)
        fields = Fields.of(one, place, node.problems, "An edge in a list")
        if fields is None:
            continue
        fields.check("an edge", ("to", "when"))
        to, when = fields.text("to", required=True), _when(fields)
        if to is not None:
            edges.append(DraftEdge(Edge(to, when), (*place, "to")))
    return tuple(edges)


def _when(edge: Fields) -> Condition | None:
    if "when" not in edge.declared:
        return None
    try:
        return read_condition(edge.declared["when"])
    except ValueError as problem:
        edge.error("when", f"{str(problem).rstrip('.')}.")
        return AnyOf(())  # which is not none: the edges behind it may be taken
