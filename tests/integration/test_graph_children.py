"""A graph whose children run in processes of their own: it waits for them, within its time."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest

from ryecore import CallContext
from ryecore.results import GraphRun
from ryecore.threads.result import StartedThread
from tests.detached import PATIENCE_S
from tests.graphs import graph
from tests.thread_host import COST, PlannedWorkspace
from tests.unit.lillux.system import wait_until_dead
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@asynccontextmanager
async def with_child(
    planned: PlannedWorkspace, **limits: float
) -> AsyncGenerator[tuple[GraphRun, StartedThread]]:
    """Start a graph, launch a child of the run while its node runs, and let the node end."""
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    planned.workspace.shell("acme/wait", f"cat {pipe}")
    nodes = {
        "wait": {"action": {"item_id": "tool:acme/wait"}, "next": "done"},
        "done": {"type": "return", "output": "walked"},
    }
    ref = graph(planned.workspace, nodes, permissions=("rye.*",))
    child = planned.write("child", ["gate", {"name": "child"}])
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            run = await rye.graphs.start(ref, limits=limits)
            ctx = CallContext(budget_account=run.run_id)
            started = await rye.execute(child, thread="fork", async_=True, ctx=ctx)
            assert isinstance(started, StartedThread)
            await anyio.to_thread.run_sync(pipe.write_bytes, b"go")
            yield run, started


async def test_a_graph_waits_for_its_child_and_its_result_has_the_childs_cost(
    planned: PlannedWorkspace,
) -> None:
    async with with_child(planned) as (run, started):
        async for event in run.events():
            if event.type == "node_completed" and event.payload["node"] == "done":
                break
        await planned.begun("child")
        assert await run.status() == "running"
        planned.allow("child")
        done = await run.result()
        (child,) = await run.children()
    assert (done.ended, done.output) == ("completed", "walked")
    assert (child.thread_id, child.status) == (started.thread_id, "completed")
    assert done.cost.amount.spend_microcents == 0
    assert done.total.spend_microcents == 2 * COST
    wait_until_dead(started.pid)


async def test_a_graph_ends_without_a_child_that_takes_longer_than_its_time(
    planned: PlannedWorkspace,
) -> None:
    async with with_child(planned, duration_seconds=3) as (run, started):
        done = await run.result()
        (child,) = await run.children()
    assert (done.ended, done.output) == ("completed", "walked")
    assert done.duration_ms >= 3000
    assert child.ended
    assert child.status != "completed"
    wait_until_dead(started.pid)
