"""The reader of one node of a graph's file."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from attrs import evolve

from ryecore.agent.model import Agent
from ryecore.convert.lines import quoted
from ryecore.frozen import frozen
from ryecore.graph.model import (
    AGENT_NODE_KEYS,
    NODE_KINDS,
    ActionForeach,
    ActionVertex,
    AgentForeach,
    AgentVertex,
    Edge,
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
from ryecore.graph.validation.fields import Count, Fields, Seconds, Text, Variable
from ryecore.policy.conditions import AnyOf, Condition, read_condition
from ryecore.policy.expressions import Template

__all__ = ["NodeReader"]

_TAKEN_NAMES: Final = ("inputs", "state", "result")


_NodeType = Literal["action", "gate", "foreach", "agent", "return"]


@frozen
class NodeReader:
    """The reader of nodes, whose agents by name are None where they can't be read."""

    agents: Mapping[str, Agent | None]
    lines: Mapping[str, int]

    def read(self, name: str, node: Fields) -> Draft:
        """Read a node."""
        is_plain = "type" not in node.declared
        type_ = "action" if is_plain else node.read(node.declared["type"], _NodeType, "", "type")
        if not type_:
            return Draft(id=name, type="action", place=node.place, edges=_edges(node))
        node = _known(node, type_)
        edges, assign = _edges(node), _assign(node)
        on_error = node.value("on_error", Text, None)
        draft = Draft(
            id=name,
            type=type_,
            place=node.place,
            edges=edges,
            on_error=on_error,
            assign=assign,
            slots=tuple(Slot(one, node.at("assign", key), "assign") for key, one in assign.items()),
        )
        common: dict[str, Any] = {
            "id": name,
            "line": self.lines.get(name, 0),
            "description": node.value("description", Text, ""),
            "next": tuple(one.edge for one in edges),
            "assign": assign,
            "on_error": on_error,
            "env_requires": node.texts("env_requires", Variable),
            "timeout_s": node.value("timeout_s", Seconds, None),
        }
        match type_:
            case "gate":
                return evolve(draft, vertex=GateVertex(**common))
            case "return":
                output = node.template("output")
                slot = Slot(output, node.at("output"), "output")
                return evolve(draft, slots=(slot,), vertex=ReturnVertex(**common, output=output))
            case "agent":
                return self._agent(draft, node, common)
        if type_ == "foreach":
            return self._foreach(draft, node, common)
        return _calling(draft, node, common)

    def _foreach(self, draft: Draft, node: Fields, common: Mapping[str, Any]) -> Draft:
        """Read a foreach of an item or of an agent."""
        if not node.has("agent_ref"):
            for key in AGENT_NODE_KEYS:
                if node.has(key):
                    node.error(key, f"{quoted(key)} is for a foreach that has an 'agent_ref'.")
            draft, body = _read_call(draft, node)
            made: Callable[..., ActionForeach | AgentForeach] = ActionForeach
        else:
            for key in ("action", "remote", "cache_result"):
                if node.has(key):
                    node.error(key, f"A foreach with an 'agent_ref' has no {quoted(key)}.")
            # What the agent's node shares with others belongs to the foreach.
            draft = self._agent(draft, node, {"id": draft.id, "timeout_s": common["timeout_s"]})
            body = None if draft.agent is None else {"agent": draft.agent}
            made = AgentForeach
        draft, given = _over(draft, node)
        vertex = None if body is None else made(**common, **body, **given)
        return evolve(draft, vertex=vertex)

    def _agent(self, draft: Draft, node: Fields, common: Mapping[str, Any]) -> Draft:
        agent_ref = node.required("agent_ref")
        if agent_ref and agent_ref not in self.agents:
            guess = node.problems.guess(agent_ref, self.agents)
            node.error("agent_ref", f"There is no agent {quoted(agent_ref)}.{guess}")
        agent = self.agents.get(agent_ref) if agent_ref else None
        made = read_agent_node(draft.id, node, agent_ref)
        vertex = None
        if agent is not None:
            check_narrowed(node, agent)
            if made is not None:
                vertex = AgentVertex(**common, node=made, agent=agent)
        return evolve(draft, agent_ref=agent_ref, vertex=vertex)


def _calling(draft: Draft, node: Fields, common: Mapping[str, Any]) -> Draft:
    """Read an action."""
    draft, call = _read_call(draft, node)
    return evolve(draft, vertex=None if call is None else ActionVertex(**common, **call))


def _read_call(draft: Draft, node: Fields) -> tuple[Draft, dict[str, Any] | None]:
    """Read the call of an action or a foreach; None where its item is unknown."""
    action, tries, cached = read_action(node), read_tries(node), _cached(node)
    if action is None:
        return draft, None
    slot = Slot(action.params, node.at("action", "params"), "params")
    draft = evolve(draft, item=action.ref, slots=(slot, *draft.slots))
    return draft, {"action": action, "tries": tries, "cache_result": cached}


def _over(draft: Draft, node: Fields) -> tuple[Draft, dict[str, Any]]:
    """Read the list of a foreach, and what becomes of the results."""
    over, as_ = node.template("over"), node.value("as", Text, "item")
    if not node.has("over"):
        node.problems.error(node.place, "over is missing: the list that the foreach runs through.")
    if as_ in _TAKEN_NAMES:
        node.error("as", f"as is {quoted(as_)}, which is taken; choose another name.")
    elif not as_.isidentifier():
        node.error("as", f"as must be a name, not {quoted(as_)}.")
    collect: str | None = node.value("collect", Text, None)
    given = {
        "over": over,
        "as_": as_,
        "collect": collect,
        "max_concurrency": node.value("max_concurrency", Count, None),
        "parallel": node.flag("parallel"),
    }
    slots = (Slot(over, node.at("over"), "over"), *draft.slots)
    return evolve(draft, collect=collect, as_=as_, slots=slots), given


def _known(node: Fields, type_: str) -> Fields:
    """Return the fields that a node of its type has; others are reported."""
    keys = NODE_KINDS[type_].keys
    if set(node.declared) <= set(keys):
        return node
    node.check(f"{_a(type_)} node", keys, _why_not(type_))
    return evolve(node, declared={key: one for key, one in node.declared.items() if key in keys})


def _why_not(type_: str) -> dict[str, str]:
    """Return the messages for keys that only other types of nodes have."""
    why = {
        key: f"{quoted(key)} is a key of {_a(owner)} node, and this is {_a(type_)} node."
        for owner, kind in NODE_KINDS.items()
        for key in kind.keys
    }
    if type_ == "return":
        why["next"] = "A return node ends the graph, and has no 'next'."
    if type_ == "gate":
        why["on_error"] = "Nothing in a gate can fail, so it has no 'on_error'."
    if type_ == "agent":
        why["cache_result"] = "A model's answer is not cached: leave 'cache_result' out."
    why["target"] = "Write 'remote: NAME' for an action or a foreach that a remote executes."
    return why


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _cached(node: Fields) -> bool:
    cached, action = node.flag("cache_result"), node.declared.get("action")
    action = action if isinstance(action, Mapping) else {}
    kinds = (action.get("item_type"), str(action.get("item_id")).partition(":")[0])
    if cached and "directive" in kinds:
        node.error(
            "cache_result",
            "Only the results of tools are cached: a directive may answer differently each time.",
        )
    return cached


def _assign(node: Fields) -> Mapping[str, Template]:
    return {
        name: node.template_of(value, node.at("assign", name))
        for name, value in node.mapping("assign").items()
    }


def _edges(node: Fields) -> tuple[DraftEdge, ...]:
    declared = node.declared.get("next")
    if declared is None:
        return ()
    if isinstance(declared, str):
        return (DraftEdge(Edge(declared), node.at("next")),)
    if not isinstance(declared, list):
        node.error("next", f"next must be a node's id or a list of edges, not {quoted(declared)}.")
        return ()
    edges: list[DraftEdge] = []
    for index, one in enumerate(declared):
        edge = node.inner(one, "next", index)
        if edge is None:
            continue
        edge.check("an edge", ("to", "when"))
        to, when = edge.required("to"), _when(edge)
        if to is not None:
            edges.append(DraftEdge(Edge(to, when), edge.at("to")))
    return tuple(edges)


def _when(edge: Fields) -> Condition | None:
    if "when" not in edge.declared:
        return None
    try:
        return read_condition(edge.declared["when"])
    except ValueError as problem:
        edge.error("when", f"{str(problem).rstrip('.')}.")
        return AnyOf(())  # not None, so that later edges may still be taken
