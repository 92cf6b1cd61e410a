"""The reader of a node's action: an item, or an agent of the graph."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from attrs import fields_dict

from ryecore.agent.model import Agent, AgentNode, RetrySpec
from ryecore.convert.config import did_you_mean, known_names
from ryecore.convert.lines import quoted
from ryecore.errors import ConfigError, InvalidItemId
from ryecore.graph.model import AGENT_NODE_KEYS, Action, Tries
from ryecore.graph.validation.fields import Amount, Count, Fields, Text
from ryecore.items.refs import ItemRef
from ryecore.llm.fallback_rules import Backoff
from ryecore.policy.limits import LIMIT_NAMES, LIMIT_SPELLINGS

__all__ = [
    "check_narrowed",
    "read_action",
    "read_agent_node",
    "read_agents",
    "read_tries",
]

_THREAD: Any = Literal["inline", "fork"]
_KEYS: Final = ("item_id", "item_type", "params", "thread", "model", "limits")
_OF_FORKS: Final = ("model", "limits")
_REMOTE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
_BESIDE: Final = "Where an action runs stands beside it, as 'remote' of the node."


def read_action(node: Fields) -> Action | None:
    """Return the action of a node; None where its item is unknown."""
    if not node.has("action"):
        node.problems.error(node.place, "action is missing: what the node executes.")
        return None
    action = node.inner(node.declared["action"], "action")
    if action is None:
        return None
    action.check(
        "an action",
        _KEYS,
        {
            "inputs": "An item's parameters stand under 'params', and so do a directive's inputs.",
            "target": _BESIDE,
            "remote": _BESIDE,
        },
    )
    ref = _item(action)
    thread: Literal["inline", "fork"] = action.value("thread", _THREAD, "inline")
    is_tool = ref is not None and ref.kind == "tool"
    for name in ("thread", *_OF_FORKS):
        if not action.has(name) or (is_tool and name == "limits"):  # which a graph takes
            continue
        if ref is not None and ref.kind != "directive":
            action.error(name, f"{quoted(name)} is for directives, and {ref} is a {ref.kind}.")
        elif name in _OF_FORKS and thread != "fork":
            action.error(name, f"{quoted(name)} is for a thread of its own: add 'thread: fork'.")
    params = action.template_of(dict(action.mapping("params")), action.at("params"))
    limits, model = _limits(action), action.value("model", Text, None)
    remote = _remote(node, ref, thread)
    if ref is None:
        return None
    return Action(
        ref=ref,
        params=params,
        thread=thread,
        model=model,
        limits=limits,
        remote=remote,
    )


def _remote(node: Fields, ref: ItemRef | None, thread: str) -> str | None:
    """Return the name of the remote whose node executes an action; None for this machine."""
    remote: str | None = node.value("remote", Text, None)
    if remote is None:
        return None
    if _REMOTE.fullmatch(remote) is None:
        node.error("remote", f"remote is the name of a remote, not {quoted(remote)}.")
    if node.has("cache_result") and node.declared["cache_result"] is True:
        node.error("cache_result", "What a node returns is not cached: leave 'cache_result' out.")
    if ref is not None and ref.kind == "directive" and thread != "fork":
        node.error("remote", "A directive needs 'thread: fork' on a remote.")
    return remote


def _item(action: Fields) -> ItemRef | None:
    kind: str | None = action.value("item_type", Text, None)
    item_id = action.required("item_id")
    if item_id is None:
        return None
    if "${" in item_id:
        action.error("item_id", "An action names its item literally, without ${ }.")
        return None
    try:
        ref = ItemRef.parse(item_id, kind)
    except InvalidItemId as problem:
        action.error("item_id", str(problem))
        return None
    if kind is not None and ref.kind != kind:
        action.error("item_type", f"item_type is {quoted(kind)}, and item_id {quoted(item_id)}.")
    if ref.kind not in ("tool", "directive"):
        action.error("item_id", f"{ref} can't be executed; an action has a tool or a directive.")
        return None
    return ref


def _limits(action: Fields) -> Mapping[str, float]:
    limits = action.mapping("limits")
    for name, value in limits.items():
        if name not in LIMIT_SPELLINGS:
            guess = did_you_mean(name, LIMIT_SPELLINGS) or known_names(LIMIT_NAMES)
            place = action.at("limits", name)
            action.problems.error(place, f"{quoted(name)} is not a limit.{guess}")
        elif name != "spend_currency":
            action.read(value, Amount, 0.0, "limits", name)
    return cast("Mapping[str, float]", limits)


def read_tries(node: Fields) -> Tries:
    """Return how often a node is tried: a number, or `{max, base_s, cap_s}`."""
    retry, default = node.declared.get("retry"), Tries()
    if not isinstance(retry, Mapping):
        return Tries(max=node.value("retry", Count, default.max))
    fields = Fields(retry, node.at("retry"), node.problems)
    fields.check("retry", ("max", "base_s", "cap_s"))
    return Tries(
        max=fields.value("max", Count, default.max),
        base_s=fields.value("base_s", Amount, default.base_s),
        cap_s=fields.value("cap_s", Amount, default.cap_s),
    )


_OF_PYTHON: Final = frozenset({"name", "output_type", "output_check"})
_AGENT_FIELDS: Final = tuple(name for name in fields_dict(Agent) if name not in _OF_PYTHON)
_WORD: Final = re.compile(r"\w+")


def read_agents(config: Fields) -> dict[str, Agent | None]:
    """Return the agents by their names; None for one that can't be read."""
    agents: dict[str, Agent | None] = {}
    for name, declared in config.mapping("agents").items():
        agent = config.inner(declared, "agents", name)
        agents[name] = None if agent is None else _agent(name, agent)
    return agents


def _agent(name: str, agent: Fields) -> Agent | None:
    agent.check(
        "an agent", _AGENT_FIELDS, {"name": "An agent's name is the key that it stands under."}
    )
    missing = [one for one in ("provider", "model") if not agent.has(one)]
    for one in missing:
        agent.problems.error(agent.place, f"{one} is missing.")
    given: dict[str, Any] = {
        key: value
        for key, value in agent.declared.items()
        if key in _AGENT_FIELDS and value is not None and key != "retry"
    }
    retry = _retry(agent)
    _check_tools(agent)
    if missing:
        return None
    try:
        return Agent(name=name, retry=retry, **given)
    except (ConfigError, ValueError, TypeError) as problem:
        _note(agent, problem)
        return None


def read_agent_node(name: str, node: Fields, agent_ref: str | None) -> AgentNode | None:
    """Return the agent's vertex of a node; None where it can't be read."""
    retry = _retry(node)
    if not node.has("prompt_template"):
        node.problems.error(node.place, "prompt_template is missing: the prompt of the agent.")
        return None
    if agent_ref is None:
        return None
    given: dict[str, Any] = {key: node.declared[key] for key in AGENT_NODE_KEYS if node.has(key)}
    try:
        return AgentNode(id=name, agent_ref=agent_ref, retry=retry, **given)
    except (ConfigError, ValueError, TypeError) as problem:
        _note(node, problem)
        return None


def _check_tools(agent: Fields) -> None:
    """Check the signed tools that an agent names; the host answers for its own functions."""
    tools = agent.declared.get("tools")
    for index, name in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(name, str) and ":" in name:
            try:
                ref = ItemRef.parse(name)
            except InvalidItemId as problem:
                agent.problems.error(agent.at("tools", index), str(problem))
                continue
            if ref.kind != "tool":
                agent.problems.error(
                    agent.at("tools", index), f"{ref} is not a tool, so no model can call it."
                )


def check_narrowed(node: Fields, agent: Agent) -> None:
    """Report the tools of a node that its agent doesn't have."""
    tools = node.declared.get("tools")
    for index, name in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(name, str) and name not in agent.tool_names:
            guess = did_you_mean(name, agent.tool_names) or known_names(agent.tool_names)
            node.problems.error(
                node.at("tools", index),
                f"The agent {quoted(agent.name)} has no tool {quoted(name)}.{guess}",
            )


def _retry(fields: Fields) -> RetrySpec | None:
    """Read `retry`, as anywhere in a graph: a number, or `{max, base_s, cap_s}`."""
    if not fields.has("retry"):
        return None
    tries = read_tries(fields)
    backoff = None
    if isinstance(fields.declared["retry"], Mapping):
        backoff = Backoff(tries.base_s, tries.cap_s)
    return RetrySpec(tries.max, backoff)


def _note(fields: Fields, problem: Exception) -> None:
    """Report the problem that an agent's own check raises, at the key that it names."""
    said = str(problem.args[0] if not isinstance(problem, ConfigError) else problem)
    words = _WORD.findall(said.replace("prompt template", "prompt_template"))
    key = next((word for word in words if word in fields.declared), None)
    place = fields.place if key is None else fields.at(key)
    fields.problems.error(place, f"{said.rstrip('.')}.")
