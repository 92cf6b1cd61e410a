"""Threads on a Ray cluster, with the state that its workers share: begun, stopped, taken over."""

import os
import signal
import socket
import subprocess
import sys

import anyio
import anyio.to_thread
import pytest

from ryecore import Rye
from ryecore.errors import ConfigError, RemoteError, RyeError
from ryecore.threads.thread import Thread
from tests.matrix import IS_SOAK
from tests.postgres import needs_server, own_schema
from tests.rays import FACTORY, ServedRay, name_cluster, needs_ray
from tests.thread_host import COST, PlannedWorkspace
from tests.workspace import Workspace

HOST = socket.gethostname()

pytestmark = [pytest.mark.anyio, needs_server, needs_ray]


@pytest.fixture
def state(postgres_address: str) -> str:
    """The address of a schema of the test's own."""
    return own_schema(postgres_address)


@pytest.fixture
def planned(workspace: Workspace, ray_cluster: ServedRay) -> PlannedWorkspace:
    """A workspace whose remote `gpu` is a Ray cluster."""
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}], ["gate", {"name": "work"}])
    planned.write("short", ["mark", {"text": "short"}])
    name_cluster(workspace)
    ray_cluster.root_file.write_text(str(workspace.root))
    return planned


async def test_a_thread_runs_on_the_cluster_and_its_events_and_cost_are_here(
    planned: PlannedWorkspace, state: str
) -> None:
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        with anyio.fail_after(30):
            thread = await rye.start("directive:acme/short", target="remote:gpu")
            types = [event.type async for event in thread.events()]
            done = await thread.result()
        assert done.success, done.error
        found = await rye.threads.show(thread.thread_id)
        assert found.record.queue == "ray:gpu"
        assert done.cost.spend_microcents == 2 * COST
    assert (planned.root / "marks").read_text() == "short\n"
    assert types[0] == "thread_started"
    assert "thread_completed" in types


async def worker_of(rye: Rye, thread: Thread) -> int:
    """The number of the process that runs a thread."""
    owner = (await rye.threads.show(thread.thread_id)).record.owner
    assert owner is not None
    return owner.pid


async def assert_resumed_once(planned: PlannedWorkspace, rye: Rye, thread: Thread) -> None:
    """See that a thread is resumed and ends well, with its effect once and its costs exact."""
    planned.allow("work")
    with anyio.fail_after(60):
        done = await thread.result()
    assert done.success, done.error
    assert (planned.root / "marks").read_text() == "once\n"
    chain = await rye.threads.list(all=True)
    assert {one.status for one in chain} == {"continued", "completed"}
    spent = [(await rye.threads.spent(one.thread_id)).spent.spend_microcents for one in chain]
    charges = [await rye.threads.charges(one.thread_id) for one in chain]
    assert sum(spent) == sum(one.actual.spend_microcents for some in charges for one in some)
    assert (await thread.cost()).spend_microcents == sum(spent)


async def test_a_run_of_a_killed_worker_is_resumed_by_another(
    planned: PlannedWorkspace, state: str
) -> None:
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        thread = await rye.start("directive:acme/work", target="remote:gpu")
        with anyio.fail_after(30):
            await planned.begun("work")
        os.kill(await worker_of(rye, thread), signal.SIGKILL)
        await assert_resumed_once(planned, rye, thread)


@pytest.mark.skipif(not IS_SOAK, reason="takes 10 s; of a worker alone, the test above does it")
async def test_a_run_of_a_dead_node_is_resumed_on_another(
    planned: PlannedWorkspace, state: str, ray_cluster: ServedRay
) -> None:
    name_cluster(planned.workspace, resources={"spot": 1})
    await anyio.to_thread.run_sync(lambda: ray_cluster.add_node(spot=1))
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        thread = await rye.start("directive:acme/work", target="remote:gpu")
        with anyio.fail_after(30):
            await planned.begun("work")
        await anyio.to_thread.run_sync(lambda: ray_cluster.add_node(spot=1))
        worker = os.pidfd_open(await worker_of(rye, thread))
        await anyio.to_thread.run_sync(ray_cluster.kill_node)
        with anyio.fail_after(30):
            await anyio.wait_readable(worker)  # it ends a moment after its node
        os.close(worker)
        await assert_resumed_once(planned, rye, thread)
    await anyio.to_thread.run_sync(ray_cluster.kill_node)


@pytest.mark.skipif(not IS_SOAK, reason="takes 10 s, for a node that comes and dies")
async def test_runs_that_wait_end_once_the_cluster_lacks_what_they_take(
    planned: PlannedWorkspace, state: str, ray_cluster: ServedRay
) -> None:
    name_cluster(planned.workspace, resources={"spot": 1}, patience_s=1)
    tool = planned.workspace.shell("acme/late", f"echo late >> {planned.root}/marks")
    await anyio.to_thread.run_sync(lambda: ray_cluster.add_node(spot=1))
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        lost = await rye.start("directive:acme/work", target="remote:gpu")
        with anyio.fail_after(30):
            await planned.begun("work")
        waiting = await rye.start("directive:acme/short", target="remote:gpu")

        async def call() -> None:
            with pytest.raises(RemoteError, match=r"has 1 spot \(0\)"):
                await rye.execute(tool, target="remote:gpu")

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.to_thread.run_sync(ray_cluster.kill_node)
            ends = [await one.result() for one in (lost, waiting)]
    for done in ends:
        assert "No node of the Ray cluster gpu has 1 spot: the closest has 0 spot" in str(
            done.error
        )
        assert "ray status" in str(done.error)
    assert (planned.root / "marks").read_text() == "once\n"
    # A node that comes later isn't given what has ended.
    await anyio.to_thread.run_sync(lambda: ray_cluster.add_node(spot=1))
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        with anyio.fail_after(30):
            done = await rye.execute("directive:acme/short", thread="fork", target="remote:gpu")
        assert done.success, done.error
    assert (planned.root / "marks").read_text() == "once\nshort\n"
    await anyio.to_thread.run_sync(ray_cluster.kill_node)


async def test_a_run_continues_after_its_callers_end(planned: PlannedWorkspace, state: str) -> None:
    program = (
        "import anyio, sys\n"
        "from ryecore import Rye\n"
        "async def main():\n"
        "    async with Rye.open(sys.argv[1], user_space=sys.argv[2], state=sys.argv[3],\n"
        "                        deps_factory=sys.argv[4]) as rye:\n"
        "        print((await rye.start('directive:acme/work', target='remote:gpu')).thread_id)\n"
        "anyio.run(main)\n"
    )
    arguments = (planned.workspace.project, planned.workspace.user, state, FACTORY)
    started = await anyio.run_process(
        [sys.executable, "-c", program, *map(str, arguments)], stderr=subprocess.PIPE
    )
    thread_id = started.stdout.decode().strip()
    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        with anyio.fail_after(30):
            await planned.begun("work")
            planned.allow("work")
            assert (await rye.threads.wait(thread_id)).status == "completed"
    assert (planned.root / "marks").read_text() == "once\n"


async def test_a_run_that_the_cluster_has_lost_is_sent_again_with_the_next_one(
    planned: PlannedWorkspace, state: str
) -> None:
    import ray

    def lose_all() -> None:
        for one in ray.util.list_named_actors(all_namespaces=True):
            ray.kill(ray.get_actor(one["name"], namespace=one["namespace"]), no_restart=True)

    async with planned.open(state=state, deps_factory=FACTORY) as rye:
        thread = await rye.start("directive:acme/work", target="remote:gpu")
        with anyio.fail_after(30):
            await planned.begun("work")
        worker = os.pidfd_open(await worker_of(rye, thread))
        await anyio.to_thread.run_sync(lose_all)
        with anyio.fail_after(30):
            await anyio.wait_readable(worker)
        os.close(worker)
        planned.allow("work")
        async with planned.open(state=state, deps_factory=FACTORY) as other:
            await other.start("directive:acme/short", target="remote:gpu")
        with anyio.fail_after(60):
            assert (await thread.result()).success
    assert (planned.root / "marks").read_text().count("once") == 1


async def test_a_thread_needs_a_state_that_machines_share(planned: PlannedWorkspace) -> None:
    async with planned.open() as rye:
        with pytest.raises(ConfigError, match="a state that machines share"):
            await rye.start("directive:acme/short", target="remote:gpu")


async def test_a_thread_that_no_node_can_run_is_refused_and_leaves_no_run(
    planned: PlannedWorkspace, state: str
) -> None:
    name_cluster(planned.workspace, resources={"GPU": 8})
    async with planned.open(state=state) as rye:
        with pytest.raises(RemoteError, match="has 8 GPU"):
            await rye.start("directive:acme/short", target="remote:gpu")
        assert await rye.threads.list(all=True) == ()


async def test_a_project_travels_to_workers_that_have_none(
    planned: PlannedWorkspace, state: str, ray_cluster: ServedRay
) -> None:
    workspace = planned.workspace
    ref = workspace.shell("acme/words", "cat data/words.txt; pwd")
    planned.write("words", ["rye_execute", {"item_id": ref}])
    words = workspace.project / "data/words.txt"
    words.parent.mkdir()
    words.write_text("from here\n")
    name_cluster(workspace, travels=True, push={"include": ["data/*.txt"]})
    keys = [workspace.key.public]  # the workers' user space trusts nobody
    async with planned.open(state=state, deps_factory=FACTORY, trusted_keys=keys) as rye:
        with anyio.fail_after(60):
            here = await rye.execute(ref)
            tool = await rye.execute(ref, target="remote:gpu")
            words.write_text("changed\n")
            thread = await rye.execute("directive:acme/words", thread="fork", target="remote:gpu")
    assert tool.data["stdout"].startswith("from here\n"), tool
    assert str(ray_cluster.user) in tool.data["stdout"]  # where the worker has the project
    assert tool.to_dict()["chain_elements"] == here.to_dict()["chain_elements"]
    assert "changed" in str(thread.text), thread


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (
            "tests.missing:deps",
            f"The worker on {HOST} can't open the project: tests.missing:deps can't be imported",
        ),
        ("tests.rays:broken_deps", "ryecore itself failed: TypeError"),
    ],
)
async def test_a_run_that_a_worker_cannot_open_ends_with_the_reason(
    planned: PlannedWorkspace, state: str, factory: str, reason: str
) -> None:
    async with planned.open(state=state, deps_factory=factory) as rye:
        with anyio.fail_after(30):
            done = await rye.execute("directive:acme/short", thread="fork", target="remote:gpu")
            ref = planned.workspace.shell("acme/words", "echo here")
            with pytest.raises(RyeError) as refused:
                await rye.execute(ref, target="remote:gpu")
    assert reason in str(done.error)
    assert reason in refused.value.message
    assert HOST in str(done.error)
