"""A host whose graphs ask its scripted model."""

from collections.abc import Mapping
from typing import Any, Final

from ryecore.graph.result import GraphResult
from ryecore.state.transcript_check import Record
from tests.scripted_host import ScriptedHost

__all__ = ["Asking", "agent", "asks", "gives"]

RUNTIME: Final = "rye/core/runtimes/state-graph/runtime"


def agent(**more: Any) -> dict[str, Any]:
    """An agent on the scripted model."""
    return {"provider": "scripted", "model": "m-1"} | more


def asks(prompt: str = "Go.", next_node: str = "done", **more: Any) -> dict[str, Any]:
    """A node that asks the agent `writer`."""
    node = {"type": "agent", "agent_ref": "writer", "prompt_template": prompt}
    return node | {"assign": {"said": "${result}"}, "next": next_node} | more


def gives(output: object = "${state.said}") -> dict[str, Any]:
    """A node that ends the run."""
    return {"type": "return", "output": output}


class Asking(ScriptedHost):
    """A host, and short ways to run graphs on it."""

    def graph(
        self,
        nodes: Mapping[str, Any],
        *,
        permissions: tuple[str, ...] = ("rye.execute.tool.*",),
        name: str = "acme/flow",
        agents: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> str:
        """Write and sign a graph that begins at its first node; its canonical ref."""
        said = {"said": None, **(state or {})}
        self.workspace.write(
            f"tools/{name}.yaml",
            {
                "version": "1.0.0",
                "tool_type": "graph",
                "executor_id": RUNTIME,
                "category": name.rpartition("/")[0],
                "description": "What it is for",
                "permissions": list(permissions),
                **({} if inputs is None else {"config_schema": inputs}),
                "config": {
                    "start": next(iter(nodes)),
                    "state": said,
                    "agents": agents or {"writer": agent()},
                    "nodes": dict(nodes),
                    **config,
                },
            },
        )
        return f"tool:{name}"

    async def walk(
        self, ref: str, inputs: Mapping[str, Any] | None = None, **how: Any
    ) -> GraphResult:
        """Open a Rye, run a graph to its end, and close it."""
        async with self.open() as rye:
            return await rye.graphs.run(ref, inputs, **how)

    def told(self, run_id: str, *kinds: str) -> list[Record]:
        """The records of a run's journal, of some types or all."""
        return self.records(run_id, *kinds)
