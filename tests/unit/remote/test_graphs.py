"""Graphs that are called on a node: runs at home, with a row and an account there."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore.chain.model import ExecutionResult
from ryecore.errors import (
    CallCancelled,
    InputError,
    InvalidParameters,
    RyeError,
    ThreadConflict,
)
from ryecore.items.refs import ItemRef
from ryecore.policy import CallContext, CancelToken
from ryecore.remote.calls import call_tool
from ryecore.state.model import RemotePlace
from tests.graphs import adding, graph
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
        with pytest.raises(ThreadConflict, match="on the node of gpu") as refused:
            await rye.graphs.resume(run_id, at=1)
        again = f"""rye execute {flow} --target remote:gpu --params '{{"a": 1}}'. What"""
        assert f"Start it anew there: {again}" in refused.value.next_step


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

    async def unknown(_: str) -> bool:
        return False

    async with planned.open() as rye:
        connected = await rye.remotes._parts.nodes.connect("remote:gpu")
        done = await call_tool(connected, ItemRef.parse(flow), {}, CallContext(), is_graph=unknown)
    assert not done.success
    assert not (planned.root / "marks").exists()


async def test_a_tool_that_becomes_one_between_two_calls_pays_for_it(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    flow = spending(planned)
    graph_file = planned.workspace.path(f"tools/{flow.partition(':')[2]}.yaml")
    content = graph_file.read_bytes()
    graph_file.unlink()
    planned.workspace.python(flow.partition(":")[2], "def execute(params, project_path):\n    pass")
    async with planned.open() as rye:
        for _ in range(2):
            await rye.execute(flow, target="remote:gpu")
        assert not await rye.threads.list(all=True)
        graph_file.with_suffix(".py").unlink()
        graph_file.write_bytes(content)
        await rye.execute(flow, target="remote:gpu")
        assert (planned.root / "marks").exists()
        assert [row.status for row in await rye.threads.list(all=True)] == ["completed"]


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


async def test_its_caller_bounds_it_as_locally(planned: PlannedWorkspace, node: ServedNode) -> None:
    flow = spending(planned)
    limits = {"spend": 0.01, "turns": 9}
    async with planned.open() as rye:
        shown = []
        for target in ("local", "remote:gpu"):
            done = await rye.execute(flow, limits=limits, target=target)
            assert done.success
            shown.append((await rye.threads.show(data_of(done)["graph_run_id"])).record.limits)
        poor = await rye.execute(flow, limits={"spend": 0.000001}, target="remote:gpu")
        assert data_of(poor)["error_code"] == "tool_failed"
        assert "spend" in data_of(poor)["error"]
        assert shown[0] == shown[1]
        assert shown[0] is not None
        assert shown[0].items() >= {"spend": 0.01, "turns": 9}.items()
        started = await rye.execute(flow, limits=limits, target="remote:gpu", async_=True)
        run_id = str(started.to_dict()["thread_id"])
        done_later = await rye.threads.wait(run_id)
        assert (done_later.status, done_later.record.limits) == ("completed", shown[0])
    assert (planned.root / "marks").read_text() == "there\n" * 3


async def test_a_caller_with_a_small_quota_runs_it_with_a_limit(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    flow = spending(planned)
    limits = {"spend": 0.01}
    nodes = {"there": {"action": {"item_id": flow, "limits": limits}, "remote": "gpu"}}
    outer = graph(planned.workspace, nodes, "acme/outer", permissions=("rye.execute.*",))
    node.allow(planned.workspace.key, max_spend_microcents=10**6 + 2 * COST)
    async with planned.open() as rye:
        with pytest.raises(RyeError, match="may spend") as refused:
            await rye.execute(flow, target="remote:gpu")
        assert "lower limit" in refused.value.next_step
        done = await rye.execute(flow, target="remote:gpu", limits=limits)
        assert done.success
        by_a_node = await rye.graphs.run(outer)
        assert by_a_node.error is None
        with pytest.raises(RyeError, match="may spend"):
            await rye.execute(flow, target="remote:gpu", limits=limits)
    assert (planned.root / "marks").read_text() == "there\n" * 2


async def test_its_time_is_what_it_has_locally(planned: PlannedWorkspace, node: ServedNode) -> None:
    planned.workspace.shell("acme/wait", "sleep 1000")
    nodes = {"a": {"action": {"item_id": "tool:acme/wait"}}}
    brief = graph(planned.workspace, nodes, "acme/brief", timeout=0.3)
    waiting = graph(planned.workspace, nodes, "acme/waiting")
    async with planned.open() as rye:
        for done in (
            await rye.execute(brief, target="remote:gpu"),
            await rye.execute(waiting, limits={"duration_seconds": 0.3}, target="remote:gpu"),
        ):
            assert data_of(done)["status"] == data_of(done)["error_code"] == "cancelled"


async def test_a_tool_that_is_no_graph_takes_no_limits(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.workspace.shell("acme/plain", "echo 1")
    nodes = {"a": {"action": {"item_id": ref, "limits": {"spend": 1}}}}
    outer = graph(planned.workspace, nodes, "acme/outer")
    async with planned.open() as rye:
        for target in ("local", "remote:gpu"):
            for is_async in (False, True):
                with pytest.raises(InputError, match="limits is for directives and graphs"):
                    await rye.execute(ref, target=target, async_=is_async, limits={"turns": 1})
            assert (await rye.execute(ref, target=target, limits={})).success
        run = await rye.graphs.run(outer)
        assert run.error is not None
        assert "limits is for directives and graphs" in run.error
        assert [row.thread_id for row in await rye.threads.list(all=True)] == [run.run_id]
