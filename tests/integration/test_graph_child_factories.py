"""Graphs in processes of their own that need what a host injects: models, by a factory."""

import json

import pytest

from tests.graphs import adding, graph
from tests.house import House
from tests.integration.test_graph_child import FORKED, document
from tests.thread_deps import DEPS, ROOT

pytestmark = pytest.mark.anyio


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
async def test_without_a_factory_an_agent_is_refused_before_anything_runs(house: House) -> None:
    house.shell("acme/mark", f"touch {house.root}/marked")
    nodes = {"mark": {"action": {"item_id": "tool:acme/mark"}, "next": "write"}, **WRITING}
    ref = graph(house, nodes, agents=WRITER, state={"text": ""}, inputs={"x": {"type": "string"}})
    async with house.open() as rye:
        done = await rye.execute(ref, {"x": "tides"})
    assert done.status == "error"
    assert "deps_factory" in json.dumps(done.to_dict())
    assert not (house.root / "marked").exists()


@FORKED
async def test_with_a_factory_an_agent_asks_the_hosts_models(house: House) -> None:
    house.environ["PYTHONPATH"] = str(ROOT)
    ref = graph(house, WRITING, agents=WRITER, state={"text": ""}, inputs={"x": {"type": "string"}})
    async with house.open(deps_factory=DEPS) as rye:
        done = await rye.execute(ref, {"x": "tides"})
    assert document(done)["output"] == "I was told: Write of tides."


@FORKED
async def test_what_a_factory_prints_does_not_stand_in_the_result(house: House) -> None:
    (house.root / "loud.py").write_text("print('HELLO')\ndef deps():\n  print('{}')\n  return {}\n")
    house.environ["PYTHONPATH"] = str(house.root)
    async with house.open(deps_factory="loud:deps") as rye:
        done = await rye.execute(adding(house), {"a": 1})
    assert document(done)["output"] == {"sum": 2}


@FORKED
async def test_a_factory_that_fails_is_said_and_the_run_has_ended(house: House) -> None:
    async with house.open(deps_factory="no_such_module:deps") as rye:
        done = await rye.execute(adding(house), {"a": 1})
        report = await rye.threads.show(document(done)["graph_run_id"])
    assert "no_such_module" in str(done.error)
    assert (done.status, report.status) == ("error", "error")
