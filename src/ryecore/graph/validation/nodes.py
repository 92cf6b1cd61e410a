"""One node of a graph's file, read into its vertex."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from attrs import frozen

from ryecore.agent.model import Agent, AgentNode, RetrySpec
from ryecore.errors import ConfigError, InvalidItemId
from ryecore.graph.model import (
    Action,
    ActionVertex,
    AgentVertex,
    Edge,
    ForeachVertex,
    GateVertex,
    ReturnVertex,
    Tries,
    VertexOfGraph,
)
from ryecore.graph.validation.fields import Fields, brief, kind_of
from ryecore.graph.validation.problems import Place, did_you_mean, listed
from ryecore.items.refs import ItemRef
from ryecore.llm.plan import Backoff
from ryecore.policy.conditions import read_condition
from ryecore.policy.expressions import Template
from ryecore.policy.limits import LIMIT_NAMES

__all__ = ["NodeReader"]

_ALWAYS: Final = ("type", "description", "comment")
_FLOW: Final = ("next", "assign")
_DOING: Final = ("on_error", "env_requires", "timeout_s", "retry")
_ACTION: Final = ("action", "cache_result")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "action": (*_ALWAYS, *_ACTION, *_FLOW, *_DOING),
    "gate": (*_ALWAYS, *_FLOW),
    "foreach": (
        *_ALWAYS, "over", "as", *_ACTION, "collect", "parallel", "max_concurrency", *_FLOW, *_DOING,
    ),
    "agent": (
        *_ALWAYS, "agent_ref", "prompt_template", "system_prompt_append", "model", "tools",
        "output_schema", "output_media", *_FLOW, *_DOING,
    ),
    "return": (*_ALWAYS, "output"),
}  # fmt: skip
_ACTION_KEYS: Final = ("item_id", "item_type", "params", "thread", "model", "limits", "target")
_SHADOWED: Final = ("inputs", "state", "result")
_NODE_FIELDS: Final = (
    "prompt_template", "system_prompt_append", "model", "tools", "output_schema", "output_media",
)  # fmt: skip


@frozen
class NodeReader:
    """Reads nodes.

    Attributes:
        agents: The graph's agents by name; None for one that can't be read.
    """

    agents: Mapping[str, Agent | None]

    def read(self, name: str, node: Fields) -> VertexOfGraph | None:
        """The vertex of a node; None where it can't be told what it would be."""
        type_ = node.choice("type", tuple(_KEYS), "action")
        owners = {
            key: f"{key!r} is a key of {_a(owner)} node, and this is {_a(type_)} node."
            for owner, keys in _KEYS.items()
            for key in keys
        }
        owners["remote"] = "Nodes can't run elsewhere yet; leave 'remote' out."
        node.check(f"{_a(type_)} node", _KEYS[type_], owners)
        match type_:
            case "action":
                return self._action_vertex(name, node)
            case "gate":
                return GateVertex(
                    id=name,
                    next=_edges(node),
                    assign=_assign(node),
                    description=_description(node),
                )
            case "foreach":
                return self._foreach(name, node)
            case "agent":
                return self._agent(name, node)
        return ReturnVertex(id=name, output=node.template("output"), description=_description(node))

    def _action_vertex(self, name: str, node: Fields) -> ActionVertex | None:
        action = _action(node)
        tries = _tries(node)
        cached = _cached(node, action)
        edges, assign = _edges(node), _assign(node)
        variables, timeout_s = node.variables("env_requires"), node.seconds("timeout_s", None)
        on_error = node.text("on_error")
        if action is None:
            return None
        return ActionVertex(
            id=name,
            action=action,
            tries=tries,
            cache_result=cached,
            next=edges,
            assign=assign,
            on_error=on_error,
            env_requires=variables,
            timeout_s=timeout_s,
            description=_description(node),
        )

    def _foreach(self, name: str, node: Fields) -> ForeachVertex | None:
        action = _action(node)
        if not node.has("over"):
            node.problems.error(node.place, "over is missing: the list that it goes through.")
        as_ = node.text("as", default="item") or "item"
        if as_ in _SHADOWED:
            node.error("as", f"as is {as_!r}, which is taken; choose another name.")
        elif not as_.isidentifier():
            node.error("as", f"as is {as_!r}; it has to be a name.")
        vertex = ForeachVertex(
            id=name,
            over=node.template("over"),
            action=action or Action(ItemRef("tool", "none"), node.template_of({}, node.place)),
            as_=as_,
            collect=node.text("collect"),
            parallel=node.flag("parallel"),
            max_concurrency=node.whole("max_concurrency", None),
            tries=_tries(node),
            cache_result=_cached(node, action),
            next=_edges(node),
            assign=_assign(node),
            on_error=node.text("on_error"),
            env_requires=node.variables("env_requires"),
            timeout_s=node.seconds("timeout_s", None),
            description=_description(node),
        )
        return vertex if action else None

    def _agent(self, name: str, node: Fields) -> AgentVertex | None:
        agent_ref = node.text("agent_ref", required=True)
        agent = self.agents.get(agent_ref) if agent_ref else None
        if agent_ref and agent_ref not in self.agents:
            guess = did_you_mean(agent_ref, self.agents) or f" There are {listed(self.agents)}."
            node.error("agent_ref", f"There is no agent {agent_ref!r}.{guess}")
        node.text("prompt_template", required=True)
        made = self._agent_node(name, node, agent_ref)
        tries = _tries(node)
        edges, assign = _edges(node), _assign(node)
        variables, timeout_s = node.variables("env_requires"), node.seconds("timeout_s", None)
        on_error = node.text("on_error")
        if agent is None or made is None:
            return None
        del tries
        return AgentVertex(
            id=name,
            node=made,
            agent=agent,
            next=edges,
            assign=assign,
            on_error=on_error,
            env_requires=variables,
            timeout_s=timeout_s,
            description=_description(node),
        )

    def _agent_node(self, name: str, node: Fields, agent_ref: str | None) -> AgentNode | None:
        given: dict[str, Any] = {key: node.declared[key] for key in _NODE_FIELDS if node.has(key)}
        if agent_ref is None or "prompt_template" not in given:
            return None
        retry = _tries(Fields(node.declared, node.place, type(node.problems)()))
        try:
            return AgentNode(
                id=name,
                agent_ref=agent_ref,
                retry=RetrySpec(retry.max, Backoff(retry.base_s, retry.cap_s))
                if node.has("retry")
                else None,
                **given,
            )
        except (ConfigError, ValueError, TypeError) as problem:
            node.problems.error(node.place, _said(problem))
            return None


def _said(problem: Exception) -> str:
    return str(problem).rstrip(".") + "."


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _description(node: Fields) -> str:
    return node.text("description") or ""


def _action(node: Fields) -> Action | None:
    if not node.has("action"):
        node.problems.error(node.place, "action is missing: what the node executes.")
        return None
    action = Fields.of(node.declared["action"], node.at("action"), node.problems, "An action")
    if action is None:
        return None
    action.check(
        "an action",
        _ACTION_KEYS,
        {"inputs": "What an item is given stands under 'params', for directives too."},
    )
    ref = _item(action)
    thread = action.choice("thread", ("inline", "fork"), "inline")
    if ref is not None and ref.kind != "directive":
        for name in ("thread", "model", "limits"):
            if action.has(name):
                action.error(name, f"{name} is for directives, and {ref} is a {ref.kind}.")
    target = action.text("target", default="local")
    if target != "local":
        action.error("target", "Actions can't run elsewhere yet; leave 'target' out.")
    params = action.template_of(dict(action.mapping("params")), action.at("params"))
    limits = _limits(action)
    model = action.text("model")
    if ref is None:
        return None
    return Action(
        ref=ref,
        params=params,
        thread=cast('Literal["inline", "fork"]', thread),
        model=model,
        limits=limits,
    )


def _item(action: Fields) -> ItemRef | None:
    kind = action.text("item_type")
    item_id = action.text("item_id", required=True)
    if item_id is None:
        return None
    try:
        ref = ItemRef.parse(item_id, kind)
    except InvalidItemId as problem:
        action.error("item_id", str(problem))
        return None
    if kind is not None and ref.kind != kind:
        action.error("item_type", f"item_id is {item_id!r}, and item_type {kind!r}.")
    if ref.kind not in ("tool", "directive"):
        action.error("item_id", f"{ref} can't be executed; an action has a tool or a directive.")
        return None
    return ref


def _limits(action: Fields) -> Mapping[str, float]:
    limits = action.mapping("limits")
    known = (*LIMIT_NAMES, *(f"max_{name}" for name in LIMIT_NAMES if name != "spend_currency"))
    for name, value in limits.items():
        place = (*action.at("limits"), name)
        if name not in known:
            guess = did_you_mean(name, known) or f" There are {listed(LIMIT_NAMES)}."
            action.problems.error(place, f"{name!r} is no limit.{guess}")
        elif name != "spend_currency" and (
            isinstance(value, bool) or not isinstance(value, int | float) or value < 0
        ):
            action.problems.error(place, f"{name} is {brief(value)}; it has to be 0 or more.")
    return cast("Mapping[str, float]", limits)


def _tries(node: Fields) -> Tries:
    retry = node.declared.get("retry")
    if retry is None:
        return Tries()
    if not isinstance(retry, Mapping):
        return Tries(max=node.whole("retry", 1) or 1)
    fields = Fields(retry, node.at("retry"), node.problems)
    fields.check("retry", ("max", "base_s", "cap_s"))
    default = Tries()
    return Tries(
        max=fields.whole("max", default.max) or 1,
        base_s=fields.seconds("base_s", default.base_s, zero=True) or 0.0,
        cap_s=fields.seconds("cap_s", default.cap_s, zero=True) or 0.0,
    )


def _cached(node: Fields, action: Action | None) -> bool:
    cached = node.flag("cache_result")
    if cached and action is not None and action.ref.kind != "tool":
        node.error(
            "cache_result",
            f"Only the results of tools are remembered: {action.ref} may answer differently "
            "each time.",
        )
        return False
    return cached


def _assign(node: Fields) -> Mapping[str, Template]:
    return {
        name: node.template_of(value, (*node.at("assign"), name))
        for name, value in node.mapping("assign").items()
    }


def _edges(node: Fields) -> tuple[Edge, ...]:
    declared = node.declared.get("next")
    if declared is None:
        return ()
    if isinstance(declared, str):
        return (Edge(declared),)
    if not isinstance(declared, list):
        node.error("next", f"next is {kind_of(declared)}; it is a node, or a list of edges.")
        return ()
    edges = []
    for index, one in enumerate(declared):
        place: Place = (*node.at("next"), index)
        fields = Fields.of(one, place, node.problems, "An edge of a list")
        if fields is None:
            continue
        fields.check("an edge", ("to", "when"))
        to = fields.text("to", required=True)
        when = None
        if fields.has("when"):
            try:
                when = read_condition(fields.declared["when"])
            except ValueError as problem:
                fields.error("when", _said(problem))
        if to is not None:
            edges.append(Edge(to, when))
    return tuple(edges)
