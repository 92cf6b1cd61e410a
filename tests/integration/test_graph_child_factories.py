"""Graphs in processes of their own that need what a host injects: models, by a factory."""

import json

import pytest

from tests.graphs import adding, graph
from tests.integration.test_graph_child import FORKED, document
from tests.thread_deps import DEPS, ROOT
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def anyio_backend() -> str:
    """The child's loop is its own, whatever its host runs on."""
    return "asyncio"


WRITER = {"writer": {"provider": "scripted", "model": "m"}}
WRITING = {
    "write": {"type": "agent", "agent_ref": "writer", "prompt_template": "Write of {{ inputs.x }}.",
              "assign": {"text": "${result}"}, "next": "done"},
    "done": {"type": "return", "output": "${state.text}"},
}  # fmt: skip


@FORKED
async def test_without_a_factory_an_agent_is_refused_before_anything_runs(
    workspace: Workspace,
) -> None:
    workspace.shell("acme/mark", f"touch {workspace.root}/marked")
    nodes = {"mark": {"action": {"item_id": "tool:acme/mark"}, "next": "write"}, **WRITING}
    ref = graph(
        workspace, nodes, agents=WRITER, state={"text": ""}, inputs={"x": {"type": "string"}}
    )
    async with workspace.open() as rye:
        done = await rye.execute(ref, {"x": "tides"})
    assert done.status == "error"
    assert "deps_factory" in json.dumps(done.to_dict())
    assert not (workspace.root / "marked").exists()


@FORKED
async def test_with_a_factory_an_agent_asks_the_hosts_models(workspace: Workspace) -> None:
    workspace.environ["PYTHONPATH"] = str(ROOT)
    ref = graph(
        workspace, WRITING, agents=WRITER, state={"text": ""}, inputs={"x": {"type": "string"}}
    )
    async with workspace.open(deps_factory=DEPS) as rye:
        done = await rye.execute(ref, {"x": "tides"})
    assert document(done)["output"] == "I was told: Write of tides."


@FORKED
async def test_what_a_factory_prints_does_not_stand_in_the_result(workspace: Workspace) -> None:
    (workspace.root / "loud.py").write_text(
        "print('HELLO')\ndef deps():\n  print('{}')\n  return {}\n"
    )
    workspace.environ["PYTHONPATH"] = str(workspace.root)
    async with workspace.open(deps_factory="loud:deps") as rye:
        done = await rye.execute(adding(workspace), {"a": 1})
    assert document(done)["output"] == {"sum": 2}


@FORKED
async def test_a_factory_that_fails_is_said_and_the_run_has_ended(workspace: Workspace) -> None:
    async with workspace.open(deps_factory="no_such_module:deps") as rye:
        done = await rye.execute(adding(workspace), {"a": 1})
        report = await rye.threads.show(document(done)["graph_run_id"])
    assert "no_such_module" in str(done.error)
    assert (done.status, report.status) == ("error", "error")
