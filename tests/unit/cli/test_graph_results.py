"""rye graph forget."""

from tests.unit.cli.conftest import Run
from tests.unit.graph.asking import RUNTIME
from tests.workspace import Workspace


def test_what_is_forgotten_is_computed_again(workspace: Workspace, run: Run) -> None:
    marks = workspace.root / "marks"
    workspace.shell("acme/count", f"printf x >> {marks}")
    nodes = {
        "count": {"action": {"item_id": "tool:acme/count"}, "cache_result": True, "next": "done"},
        "done": {"type": "return", "output": 1},
    }
    workspace.write(
        "tools/acme/flow.yaml",
        {
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": RUNTIME,
            "category": "acme",
            "description": "What it is for",
            "permissions": ["rye.execute.tool.acme.*"],
            "config": {"start": "count", "nodes": nodes},
        },
    )
    assert "forgot 0 results" in run("graph", "forget").out
    for _ in range(2):
        assert run("graph", "run", "tool:acme/flow").code == 0
    assert marks.read_text() == "x"
    assert run("graph", "forget", "--json").json == {"status": "success", "forgotten": 1}
    assert run("graph", "run", "tool:acme/flow").code == 0
    assert marks.read_text() == "xx"
