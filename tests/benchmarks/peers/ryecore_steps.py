"""ryecore: a graph of two gates, with a signed checkpoint after each step, as always."""

import tempfile
from pathlib import Path

from tests.benchmarks.peers.script import Run
from tests.workspace import Workspace

GRAPH = "bench/steps"


def furnished(steps: int) -> Workspace:
    """A workspace with the graph in it."""
    workspace = Workspace(Path(tempfile.mkdtemp()))
    write_graph(workspace, steps)
    return workspace


def write_graph(workspace: Workspace, steps: int) -> None:
    """Write the graph, which ends after so many steps."""
    end = {"to": "end", "when": {"path": "state.text", "op": "eq", "value": "stop"}}
    workspace.write(
        f"tools/{GRAPH}.yaml",
        {
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": "rye/core/runtimes/state-graph/runtime",
            "category": "bench",
            "permissions": [],
            "config": {
                "start": "a",
                "max_steps": steps,
                "state": {"n": 0, "text": "word"},
                "nodes": {
                    "a": {
                        "type": "gate",
                        "assign": {"n": "${state.n}"},
                        "next": [end, {"to": "b"}],
                    },
                    "b": {
                        "type": "gate",
                        "assign": {"n": "${state.n}"},
                        "next": [end, {"to": "a"}],
                    },
                    "end": {"type": "return", "output": "${state.n}"},
                },
            },
        },
    )


def walker(steps: int) -> Run:
    """Walks; each step is kept."""
    workspace = furnished(steps)

    async def run() -> int:
        async with workspace.open() as rye:
            return (await rye.graphs.run(GRAPH)).steps

    return run


kept_walker = walker
