"""A verified graph, read; or every problem that it has, each with its line.

Source: reference "State graph walker".
"""

import hashlib
from typing import Any, Final, cast

from attrs import evolve

from ryecore.agent.model import Agent
from ryecore.chain.spec import ElementSpec
from ryecore.directives.hooks import read_hooks
from ryecore.errors import ConfigError
from ryecore.errors.graphs import GraphInvalid, GraphProblem
from ryecore.graph.model import (
    DEFAULT_MAX_CONCURRENCY,
    DEFAULT_MAX_STEPS,
    Graph,
    OnError,
    VertexOfGraph,
)
from ryecore.graph.validation.fields import Fields
from ryecore.graph.validation.nodes import NodeReader
from ryecore.graph.validation.problems import Found, Problems, did_you_mean, key_path, listed
from ryecore.items.documents import parse_document
from ryecore.items.verification import VerifiedItem
from ryecore.policy.hooks import Hook, HookLayer

__all__ = ["read_graph"]

_CONFIG_KEYS: Final = (
    "start", "max_steps", "max_concurrency", "on_error", "state", "state_schema", "hooks", "agents",
    "nodes",
)  # fmt: skip


def read_graph(item: VerifiedItem, spec: ElementSpec) -> Graph:
    """Read a graph.

    Args:
        item: Its verified file.
        spec: What it declares as a tool.

    Returns:
        The graph.

    Raises:
        GraphInvalid: It has problems; all are listed, each with its line where that is known.
        MetadataError: Its file is broken YAML.
    """
    path = item.source.path
    document = parse_document(item.content, path)
    problems = Problems()
    top = Fields(document, (), problems)
    config = Fields(spec.config, ("config",), problems)
    config.check("config", _CONFIG_KEYS)
    nodes = _nodes(config, NodeReader(_agents(config)))
    start = config.text("start", required=True) or ""
    for name, vertex in nodes.items():
        _check_targets(name, vertex, config)
    declared = config.mapping("nodes")
    if start and start not in declared:
        guess = did_you_mean(start, declared) or f" There are {listed(declared)}."
        config.error("start", f"There is no node {start!r}.{guess}")
    if "permissions" not in document:
        problems.error((), "permissions is missing: the list of what its actions may do.")
    graph = Graph(
        ref=item.source.ref,
        digest=item.integrity if item.is_verified else hashlib.sha256(item.content).hexdigest(),
        path=path,
        start=start,
        nodes=nodes,
        max_steps=config.whole("max_steps", None) or DEFAULT_MAX_STEPS,
        max_concurrency=config.whole("max_concurrency", None) or DEFAULT_MAX_CONCURRENCY,
        on_error=cast("OnError", config.choice("on_error", ("fail", "continue"), "fail")),
        state=config.mapping("state"),
        env_requires=top.variables("env_requires"),
        permissions=top.names("permissions"),
        hooks=_hooks(config, item),
        input_schema=spec.config_schema,
        version=spec.version,
        description=spec.description,
    )
    if problems.errors:
        raise GraphInvalid.of(item.source.ref, [_problem(one, item) for one in problems.errors])
    return graph


def _nodes(config: Fields, reader: NodeReader) -> dict[str, VertexOfGraph]:
    nodes: dict[str, VertexOfGraph] = {}
    declared = config.mapping("nodes")
    if not declared:
        config.problems.error(config.place, "nodes is missing or empty.")
    for name, one in declared.items():
        place = (*config.at("nodes"), name)
        fields = Fields.of(one, place, config.problems, "A node")
        vertex = None if fields is None else reader.read(name, fields)
        if vertex is not None:
            nodes[name] = vertex
    return nodes


def _agents(config: Fields) -> dict[str, Agent | None]:
    agents: dict[str, Agent | None] = {}
    for name, declared in config.mapping("agents").items():
        place = (*config.at("agents"), name)
        fields = Fields.of(declared, place, config.problems, "An agent")
        agents[name] = None
        if fields is None:
            continue
        try:
            agents[name] = Agent(**cast("dict[str, Any]", {"name": name, **fields.declared}))
        except (ConfigError, TypeError, ValueError) as problem:
            config.problems.error(place, str(problem).rstrip(".") + ".")
    return agents


def _check_targets(name: str, vertex: VertexOfGraph, config: Fields) -> None:
    declared = config.mapping("nodes")
    place = (*config.at("nodes"), name)
    targets = [((*place, "next", index, "to"), edge.to) for index, edge in enumerate(vertex.next)]
    if vertex.on_error is not None:
        targets.append(((*place, "on_error"), vertex.on_error))
    for where, to in targets:
        if to not in declared:
            guess = did_you_mean(to, declared) or f" There are {listed(declared)}."
            config.problems.error(where, f"There is no node {to!r}.{guess}")


def _hooks(config: Fields, item: VerifiedItem) -> tuple[Hook, ...]:
    if not config.has("hooks"):
        return ()
    try:
        hooks = read_hooks(
            {"hooks": config.declared["hooks"]}, item.source.path, HookLayer.DIRECTIVE
        )
    except ConfigError as problem:
        config.error("hooks", str(problem))
        return ()
    # An owner keeps a hook within its graph's capabilities.
    return tuple(evolve(hook, owner=item.source.ref.id) for hook in hooks)


def _problem(found: Found, item: VerifiedItem) -> GraphProblem:
    place = found.place
    in_node = place[:2] == ("config", "nodes") and len(place) > 2
    return GraphProblem(
        message=found.message,
        path=item.source.path,
        node=str(place[2]) if in_node else None,
        key=key_path(place),
    )
