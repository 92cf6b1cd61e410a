"""Graphs on a Ray cluster with a state that machines share: resumed, or ended with a reason."""

import os
import signal
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore import Rye
from ryecore.chain.model import ExecutionResult
from ryecore.state.model import ThreadRecord
from tests.graphs import graph
from tests.matrix import IS_SOAK
from tests.postgres import needs_server, own_schema
from tests.rays import FACTORY, ServedRay, name_cluster, needs_ray
from tests.thread_host import COST, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, needs_server, needs_ray]

FLOW = "tool:acme/flow"


@pytest.fixture
def state(postgres_address: str) -> str:
    """The address of a schema of the test's own."""
    return own_schema(postgres_address)


@pytest.fixture
def planned(workspace: Workspace, ray_cluster: ServedRay) -> PlannedWorkspace:
    """A workspace whose remote `gpu` is a Ray cluster."""
    name_cluster(workspace)
    ray_cluster.root_file.write_text(str(workspace.root))
    return PlannedWorkspace(workspace)


def write_flow(planned: PlannedWorkspace, **gate: Any) -> None:
    """Write a graph with a tool, a thread and a tool that waits at a gate, with more keys."""
    workspace, root = planned.workspace, planned.root
    child = planned.write("short", ["mark", {"text": "short"}])
    workspace.shell("acme/once", f"echo once >> {root}/marks")
    workspace.shell(
        "acme/gate",
        f"echo begun >> {root}/marks; touch {root}/gate.begun\n"
        f"while [ ! -e {root}/gate.go ]; do sleep 0.05; done; echo '{{\"passed\": true}}'",
    )
    nodes = {
        "once": {"action": {"item_id": "tool:acme/once"}, "next": "child"},
        "child": {"action": {"item_id": child, "thread": "fork"}, "next": "gate"},
        "gate": {
            "action": {"item_id": "tool:acme/gate"},
            "assign": {"passed": "${result.passed}"},
            "next": "done",
            **gate,
        },
        "done": {"type": "return", "output": {"passed": "${state.passed}"}},
    }
    graph(workspace, nodes, permissions=("rye.execute.*",), state={"passed": False})


async def owner_of(rye: Rye, item: str) -> int:
    """The number of the process that runs a graph."""
    (record,) = await runs_of(rye, item)
    assert record.owner is not None
    return record.owner.pid


async def runs_of(rye: Rye, item: str) -> list[ThreadRecord]:
    """The runs of an item, oldest first."""
    return sorted(
        (one for one in await rye.threads.list(all=True) if one.item_id == item),
        key=lambda one: one.created_at,
    )


async def call_and_lose(
    planned: PlannedWorkspace, rye: Rye, lose: Any, *, opens: bool = True
) -> ExecutionResult:
    """Call the graph there, and lose its worker while it waits at its gate."""
    done: list[ExecutionResult] = []

    async def call() -> None:
        done.append(await rye.execute(FLOW, target="remote:gpu"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await planned.begun("gate")
            (planned.root / "gate.begun").unlink()
            await lose(await owner_of(rye, FLOW))
            if opens:
                await planned.begun("gate")
                planned.allow("gate")
    return done[0]


async def kill_worker(pid: int) -> None:
    """Kill the process of a run."""
    os.kill(pid, signal.SIGKILL)


async def assert_resumed(planned: PlannedWorkspace, rye: Rye, done: ExecutionResult) -> None:
    """See that a graph was resumed at its gate, with each effect once and its costs exact."""
    assert done.success, done.error
    assert done.metadata["remote"] == "gpu"
    assert done.data["output"] == {"passed": True}  # type: ignore[index]
    marks = (planned.root / "marks").read_text().split()
    assert marks == ["once", "short", "begun", "begun"]  # the gate may be repeated, by its author
    first, second = await runs_of(rye, FLOW)
    assert (first.status, second.status) == ("continued", "completed")
    assert first.continuation_thread_id == second.thread_id
    spent = [await rye.threads.spent(one.thread_id) for one in (first, second)]
    assert [one.spent.spend_microcents for one in spent] == [2 * COST, 0]
    (child,) = await runs_of(rye, "directive:acme/short")
    charges = await rye.threads.charges(child.thread_id)
    assert sum(one.actual.spend_microcents for one in charges) == 2 * COST


async def test_a_graph_of_a_killed_worker_is_resumed_by_another(
    planned: PlannedWorkspace, state: str
) -> None:
    write_flow(planned, retry={"max": 2})
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        done = await call_and_lose(planned, rye, kill_worker)
        await assert_resumed(planned, rye, done)


async def test_a_graph_whose_tool_was_broken_off_ends_and_says_how_to_go_on(
    planned: PlannedWorkspace, state: str
) -> None:
    write_flow(planned)
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        done = await call_and_lose(planned, rye, kill_worker, opens=False)
        (record,) = await runs_of(rye, FLOW)
    assert record.status == "error"
    assert done.effect_unknown
    assert "'gate' interrupted: whether it took effect is unknown" in str(done.error)
    assert "--rerun" in str(done.error)
    assert (planned.root / "marks").read_text().split() == ["once", "short", "begun"]


@pytest.mark.skipif(not IS_SOAK, reason="takes 15 s; of a worker alone, the test above does it")
async def test_a_graph_of_a_dead_node_is_resumed_on_another(
    planned: PlannedWorkspace, state: str, ray_cluster: ServedRay
) -> None:
    write_flow(planned, retry={"max": 2})
    name_cluster(planned.workspace, resources={"spot": 1})
    await anyio.to_thread.run_sync(lambda: ray_cluster.add_node(spot=1))

    async def kill_node(pid: int) -> None:
        await anyio.to_thread.run_sync(lambda: ray_cluster.add_node(spot=1))
        worker = os.pidfd_open(pid)
        await anyio.to_thread.run_sync(ray_cluster.kill_node)
        await anyio.wait_readable(worker)  # it ends a moment after its node
        os.close(worker)

    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        done = await call_and_lose(planned, rye, kill_node)
        await assert_resumed(planned, rye, done)
    await anyio.to_thread.run_sync(ray_cluster.kill_node)


@pytest.mark.skipif(not IS_SOAK, reason="takes 40 s, for six workers that die one after another")
async def test_a_graph_that_ends_each_of_its_workers_is_given_up_after_five_takeovers(
    planned: PlannedWorkspace, state: str
) -> None:
    workspace, marks = planned.workspace, planned.root / "marks"
    workspace.shell("acme/deadly", f"echo once >> {marks}; kill -9 $PPID; sleep 60")
    node = {"action": {"item_id": "tool:acme/deadly"}, "retry": {"max": 2}}
    graph(workspace, {"deadly": node})
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        with anyio.fail_after(90):
            done = await rye.execute(FLOW, target="remote:gpu")
        runs = await runs_of(rye, FLOW)
    assert "was taken over 5 times, and each worker died" in str(done.error)
    assert f"rye graph resume {runs[-1].thread_id}" in str(done.error)
    assert [one.status for one in runs] == ["continued"] * 5 + ["error"]
    assert marks.read_text().split() == ["once"] * 6


async def test_a_graph_in_the_background_is_a_run_of_the_cluster(
    planned: PlannedWorkspace, state: str
) -> None:
    write_flow(planned)
    planned.allow("gate")
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        started = (await rye.execute(FLOW, target="remote:gpu", async_=True)).to_dict()
        with anyio.fail_after(30):
            report = await rye.threads.wait(str(started["thread_id"]))
    assert (report.status, report.record.queue) == ("completed", "ray:gpu")
    assert isinstance(report.result, Mapping)
    assert report.result["data"]["output"] == {"passed": True}
