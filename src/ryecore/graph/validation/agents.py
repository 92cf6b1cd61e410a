"""The agents of a graph, and the nodes that run them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import fields_dict

from ryecore.agent.model import Agent, AgentNode, RetrySpec
from ryecore.errors import ConfigError, InvalidItemId
from ryecore.graph.validation.actions import read_tries
from ryecore.graph.validation.fields import Fields
from ryecore.graph.validation.problems import did_you_mean, listed
from ryecore.items.refs import ItemRef
from ryecore.llm.plan import Backoff

__all__ = ["NODE_FIELDS", "check_narrowed", "read_agent_node", "read_agents"]

NODE_FIELDS: Final = (
    "prompt_template", "system_prompt_append", "model", "tools", "output_schema", "output_media",
)  # fmt: skip
"""The fields of an agent's node that a file may set, besides `retry`."""

_AGENT_FIELDS: Final = tuple(name for name in fields_dict(Agent) if name != "name")
_WORD: Final = re.compile(r"\w+")


def read_agents(config: Fields) -> dict[str, Agent | None]:
    """The agents by their names; None for one that can't be read."""
    agents: dict[str, Agent | None] = {}
    for name, declared in config.mapping("agents").items():
        place = (*config.at("agents"), name)
        agent = Fields.of(declared, place, config.problems, "An agent")
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
    """The agent's vertex of a node; None where it can't be read."""
    retry = _retry(node)
    if not node.has("prompt_template"):
        node.problems.error(node.place, "prompt_template is missing: what the agent is asked.")
        return None
    if agent_ref is None:
        return None
    given: dict[str, Any] = {key: node.declared[key] for key in NODE_FIELDS if node.has(key)}
    try:
        return AgentNode(id=name, agent_ref=agent_ref, retry=retry, **given)
    except (ConfigError, ValueError, TypeError) as problem:
        _note(node, problem)
        return None


def _check_tools(agent: Fields) -> None:
    """Check the signed tools that an agent names; a host's functions are the host's."""
    tools = agent.declared.get("tools")
    for index, name in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(name, str) and ":" in name:
            try:
                ref = ItemRef.parse(name)
            except InvalidItemId as problem:
                agent.problems.error((*agent.at("tools"), index), str(problem))
                continue
            if ref.kind != "tool":
                agent.problems.error(
                    (*agent.at("tools"), index), f"{ref} is no tool, so no model can call it."
                )


def check_narrowed(node: Fields, agent: Agent) -> None:
    """Note the tools of a node that its agent doesn't have."""
    tools = node.declared.get("tools")
    for index, name in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(name, str) and name not in agent.tools:
            guess = did_you_mean(name, agent.tools) or f" It has {listed(agent.tools)}."
            node.problems.error(
                (*node.at("tools"), index), f"The agent {agent.name!r} has no tool {name!r}.{guess}"
            )


def _retry(fields: Fields) -> RetrySpec | None:
    """`retry` as it is written everywhere in a graph: a number, or `{max, base_s, cap_s}`."""
    if not fields.has("retry"):
        return None
    tries = read_tries(fields)
    backoff = None
    if isinstance(fields.declared["retry"], Mapping):
        backoff = Backoff(tries.base_s, tries.cap_s)
    return RetrySpec(tries.max, backoff)


def _note(fields: Fields, problem: Exception) -> None:
    """Note what an agent's own check says, at the key that it names."""
    said = str(problem.args[0] if not isinstance(problem, ConfigError) else problem)
    words = _WORD.findall(said.replace("prompt template", "prompt_template"))
    key = next((word for word in words if word in fields.declared), None)
    place = fields.place if key is None else fields.at(key)
    fields.problems.error(place, f"{said.rstrip('.')}.")
