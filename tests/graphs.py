"""Graphs in a workspace, for tests that run them."""

from collections.abc import Mapping
from typing import Any

from ryecore.graph.model import GRAPH_RUNTIME
from tests.workspace import Workspace

__all__ = ["ADDING", "ALL_OF_ACME", "adding", "graph"]

ALL_OF_ACME = "rye.execute.tool.acme.*"
ADDING = "def execute(params, project):\n  return {'sum': params['a'] + params['b']}"


def graph(
    workspace: Workspace,
    nodes: Mapping[str, Any],
    item_id: str = "acme/flow",
    *,
    permissions: tuple[str, ...] = (ALL_OF_ACME,),
    inputs: Mapping[str, Any] | None = None,
    env_requires: tuple[str, ...] = (),
    **config: object,
) -> str:
    """Write and sign a graph that begins with its first node; its canonical ref."""
    declared: dict[str, object] = {"start": next(iter(nodes)), **config, "nodes": nodes}
    more: dict[str, Any] = {"env_requires": list(env_requires)} if env_requires else {}
    if inputs is not None:
        more["config_schema"] = {"type": "object", "properties": inputs}
    return workspace.yaml(
        item_id,
        version="1.0.0",
        tool_type="graph",
        executor_id=GRAPH_RUNTIME,
        category=item_id.rpartition("/")[0],
        description="A graph.",
        permissions=list(permissions),
        config=declared,
        **more,
    )


def adding(workspace: Workspace) -> str:
    """A graph that adds one to what it is given."""
    workspace.python("acme/add", ADDING)
    nodes = {
        "add": {
            "action": {"item_id": "tool:acme/add", "params": {"a": "${inputs.a}", "b": 1}},
            "assign": {"sum": "${result.sum}"},
            "next": "done",
        },
        "done": {"type": "return", "output": {"sum": "${state.sum}"}},
    }
    return graph(workspace, nodes, inputs={"a": {"type": "integer"}}, state={"sum": 0})
