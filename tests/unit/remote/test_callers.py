"""Who runs items on a node besides a person: graphs, and models."""

from collections.abc import Iterator

import pytest

from tests.graphs import graph
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def node(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    """A node with the scripted models, for the author of the workspace."""
    environ = {**planned.environ, "PLACE": "the node"}
    with served_node(planned.root / "node", "--deps", FACTORY, environ=environ) as served:
        connect(planned.workspace, served)
        yield served


async def test_a_graph_runs_nodes_elsewhere(planned: PlannedWorkspace, node: ServedNode) -> None:
    workspace = planned.workspace
    workspace.environ["PLACE"] = "home"
    ref = planned.write("work", ["mark", {"text": "there"}])
    place = workspace.shell("acme/place", "echo $PLACE")
    nodes = {
        "here": {"action": {"item_id": place}, "next": "there", "assign": {"here": "${result}"}},
        "there": {
            "action": {"item_id": place},
            "remote": "gpu",
            "next": "each",
            "assign": {"there": "${result}"},
        },
        "each": {
            "type": "foreach",
            "over": [1, 2],
            "remote": "gpu",
            "action": {"item_id": place},
            "collect": "each",
            "next": "thread",
        },
        "thread": {
            "action": {"item_id": ref, "thread": "fork"},
            "remote": "gpu",
            "next": "done",
            "assign": {"thread": "${result.state}"},
        },
        "done": {"type": "return", "output": {"all": "${state}"}},
    }
    permissions = ("rye.execute.tool.*", "rye.execute.directive.*")
    flow = graph(workspace, nodes, permissions=permissions)
    async with planned.open() as rye:
        run = await rye.graphs.start(flow)
        done = await run.result()
        assert done.error is None
        found = done.to_dict()
        cost = (await run.cost()).spend_microcents
        (child,) = await run.children()
    text = str(found)
    assert "home" in text
    assert text.count("the node") >= 3
    assert child.place is not None
    assert cost == 2 * COST


async def test_a_model_runs_a_child_on_a_node(planned: PlannedWorkspace, node: ServedNode) -> None:
    child = planned.write("child", ["mark", {"text": "there"}])
    call = {"item_id": child, "thread": "fork", "target": "remote:gpu", "parameters": {}}
    ref = planned.write("parent", ["rye_execute", call], limits='depth="3"')
    async with planned.open() as rye:
        thread = await rye.start(ref)
        done = await thread.result()
        assert done.error is None
        (row,) = await thread.children()
        assert (row.status, row.place is not None) == ("completed", True)
        assert (await rye.threads.spent(done.thread_id)).spent.spend_microcents == 4 * COST
    assert (planned.root / "marks").read_text() == "there\n"
