"""Graphs that are called on a node: runs at home, with a row and an account there."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore.chain.model import ExecutionResult
from ryecore.errors import CallCancelled, InvalidParameters, ThreadConflict
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext, CancelToken
from ryecore.remote.calls import call_tool
from ryecore.state.model import RemotePlace
from tests.graphs import adding, graph
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def node(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    """A node with the scripted models, for the author of the workspace."""
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as served:
        connect(planned.workspace, served)
        yield served


def spending(planned: PlannedWorkspace, item_id: str = "acme/flow") -> str:
    """A graph with one thread."""
    child = planned.write("child", ["mark", {"text": "there"}])
    nodes = {"one": {"action": {"item_id": child, "thread": "fork"}}}
    return graph(planned.workspace, nodes, item_id, permissions=("rye.execute.*",))


def data_of(done: ExecutionResult) -> Mapping[str, Any]:
    """The document of a graph's run."""
    assert isinstance(done.data, dict)
    return done.data


async def test_its_result_is_like_a_local_one(planned: PlannedWorkspace, node: ServedNode) -> None:
    flow = adding(planned.workspace)
    async with planned.open() as rye:
        at_home = await rye.execute(flow, {"a": 1})
        done = await rye.execute(flow, {"a": 1}, target="remote:gpu")
        local, there = at_home.to_dict(), done.to_dict()
        assert there.keys() == local.keys()
        assert data_of(done).keys() == data_of(at_home).keys()
        assert data_of(done)["output"] == data_of(at_home)["output"] == {"sum": 2}
        assert (there["chain"], there["item_id"]) == (local["chain"], flow)
        assert there["chain_elements"] == local["chain_elements"]  # with the paths of this project
        run_id = data_of(done)["graph_run_id"]
        report = await rye.threads.show(run_id)
        assert report.record.place == RemotePlace("gpu", node.identity.fingerprint)
        with pytest.raises(ThreadConflict, match="on the node of gpu"):
            await rye.graphs.resume(run_id, at=1)


async def test_what_fails_and_stops_is_as_locally(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    flow = adding(planned.workspace)
    planned.workspace.shell("acme/wait", "sleep 1000")
    waiting = graph(planned.workspace, {"a": {"action": {"item_id": "tool:acme/wait"}}}, "acme/w")
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    planned.workspace.shell("acme/tell", f"echo here > {pipe}; sleep 1000")
    stopped = graph(planned.workspace, {"a": {"action": {"item_id": "tool:acme/tell"}}}, "acme/s")
    async with planned.open() as rye:
        for target in ("local", "remote:gpu"):
            with pytest.raises(InvalidParameters, match="not of type"):
                await rye.execute(flow, {"a": "x"}, target=target)
            late = await rye.execute(waiting, target=target, timeout_s=1)
            assert (late.status, late.effect_unknown) == ("error", True)
            assert (data_of(late)["status"], data_of(late)["error_code"]) == (
                "cancelled",
                "cancelled",
            )
        before = len(await rye.threads.list(all=True))
        token = CancelToken()
        ctx = CallContext(cancellation=token)

        async def cancel_once_it_runs() -> None:
            await anyio.to_thread.run_sync(pipe.read_text)
            (row,) = await rye.threads.list()
            account = await rye.threads.account(row.thread_id)
            assert account.held.spend_microcents == account.ceiling.spend_microcents > 0
            token.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(cancel_once_it_runs)
            with pytest.raises(CallCancelled):
                await rye.execute(stopped, target="remote:gpu", ctx=ctx)
        rows = await rye.threads.list(all=True)
        assert len(rows) == before + 1
        assert [one.status for one in rows if one.status not in ("error", "cancelled")] == []
        for row in rows:
            if row.place is not None:
                account = await rye.threads.account(row.thread_id)
                assert account.held.spend_microcents == account.own.spend_microcents == 0


async def test_what_is_no_graph_here_can_spend_nothing_as_one_there(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    """The node may trust, or have, a graph that can't be verified at home: nobody would pay."""
    flow = spending(planned)
    async with planned.open() as rye:
        connected = await rye.remotes._nodes().connect("remote:gpu")
        done = await call_tool(connected, ItemRef.parse(flow), {}, CallContext())
    assert not done.success
    assert not (planned.root / "marks").exists()


async def test_a_model_that_calls_it_pays_for_it(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    call = {"item_id": spending(planned), "target": "remote:gpu"}
    ref = planned.write("parent", ["rye_execute", call], limits='depth="3"')
    async with planned.open() as rye:
        thread = await rye.start(ref)
        done = await thread.result()
        assert done.error is None
        (row,) = await thread.children()
        assert (row.status, row.place is not None) == ("completed", True)
        assert (await rye.threads.spent(done.thread_id)).spent.spend_microcents == 4 * COST


async def test_a_graph_whose_node_calls_it_pays_for_it(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    inner = spending(planned, "acme/inner")
    nodes = {"there": {"action": {"item_id": inner}, "remote": "gpu"}}
    outer = graph(planned.workspace, nodes, permissions=("rye.execute.*",))
    async with planned.open() as rye:
        run = await rye.graphs.start(outer)
        done = await run.result()
        assert done.error is None
        (row,) = await run.children()
        assert row.place is not None
        assert (await run.cost()).spend_microcents == 2 * COST
        poor = await rye.graphs.run(outer, limits={"spend": 0.000001})
        assert not poor.success
        assert poor.total.spend_microcents <= 100
    assert (planned.root / "marks").read_text() == "there\n"  # only of the first one
