"""Threads that callers put into a queue, and workers in processes of their own that run them."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from ryecore.policy import CallContext
from tests.forking import Forked
from tests.postgres import needs_dbos, needs_server
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server, needs_dbos]


@pytest.fixture
def state(postgres_address: str, tmp_path: Path) -> str:
    """The address of a schema of the test's own."""
    name = "".join(one for one in tmp_path.name.lower() if one.isalnum())[-40:]
    return f"{postgres_address}&schema=q_{name}"


@pytest.fixture
def planned(workspace: Workspace, state: str) -> PlannedWorkspace:
    """A workspace whose remote `queue` is a queue of its shared state."""
    workspace.environ["RYE_STATE"] = state
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}], ["gate", {"name": "work"}])
    planned.write("short", ["mark", {"text": "short"}])
    queue = {"queue": f"{state}&queue=default", "priority": 5}
    remotes = {"remotes": {"queue": queue, "urgent": {**queue, "priority": 1}}}
    workspace.write("config/remotes/remotes.yaml", json.dumps(remotes))
    return planned


class Workers:
    """The workers of a test, which end with it."""

    def __init__(self, planned: PlannedWorkspace) -> None:
        self._planned = planned
        self._ended = ExitStack()

    def start(self, *options: str) -> Forked:
        """Start a worker, and wait until it takes runs."""
        arguments = ("node", "work", "--deps", FACTORY, *options)
        project = str(self._planned.workspace.project)
        worker = self._planned.fork(
            "ryecore.cli", *arguments, "--project", project, stderr=subprocess.PIPE
        )
        self._ended.enter_context(worker)
        self._ended.callback(worker.kill)
        assert worker.stderr is not None
        line = worker.stderr.readline().decode()
        if not line.startswith("ryecore works as "):
            raise AssertionError(line + worker.stderr.read().decode())
        return worker

    def close(self) -> None:
        """End them all."""
        self._ended.close()


@pytest.fixture
def workers(planned: PlannedWorkspace) -> Iterator[Workers]:
    """Workers of the workspace's queue."""
    made = Workers(planned)
    yield made
    made.close()


async def test_a_worker_runs_what_a_caller_puts_into_its_queue(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    worker = workers.start()
    async with planned.open(state=state) as rye:
        with anyio.fail_after(30):
            done = await rye.execute("directive:acme/short", thread="fork", target="remote:queue")
        assert done.success, done.error
        found = await rye.threads.show(done.to_dict()["thread_id"])
        assert found.record.queue == "default"
        assert done.cost.spend_microcents == 2 * COST
        assert (planned.root / "marks").read_text() == "short\n"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0


async def test_a_run_of_a_killed_worker_is_resumed_by_another(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    first = workers.start()
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/work", target="remote:queue")
        with anyio.fail_after(30):
            await planned.begun("work")
        other = workers.start()
        first.send_signal(signal.SIGKILL)
        planned.allow("work")
        with anyio.fail_after(30):
            done = await thread.result()
        assert done.success, done.error
        assert (planned.root / "marks").read_text() == "once\n"
        chain = await rye.threads.list(all=True)
        assert {one.status for one in chain} == {"continued", "completed"}
        assert {one.queue for one in chain} == {"default"}
        spent = [(await rye.threads.spent(one.thread_id)).spent.spend_microcents for one in chain]
        charges = [await rye.threads.charges(one.thread_id) for one in chain]
        assert sum(spent) == sum(one.actual.spend_microcents for some in charges for one in some)
        assert (await thread.cost()).spend_microcents == sum(spent)
    other.send_signal(signal.SIGTERM)
    assert other.wait() == 0


async def test_the_queue_keeps_priority_and_total_and_a_deadline_ends_what_waits(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    workers.start("--total", "1")
    async with planned.open(state=state) as rye:
        first = await rye.start("directive:acme/work", target="remote:queue")
        with anyio.fail_after(30):
            await planned.begun("work")
        late = CallContext(deadline=time.monotonic() + 0.1)
        low = [await rye.start("directive:acme/short", target="remote:queue") for _ in range(2)]
        high = await rye.start("directive:acme/short", target="remote:urgent")
        ended = await rye.start("directive:acme/short", target="remote:queue", ctx=late)
        assert [await one.status() for one in (*low, high)] == ["created"] * 3
        planned.allow("work")
        with anyio.fail_after(30):
            assert (await first.result()).success
            for one in (*low, high):
                assert (await one.result()).success
            assert not (await ended.result()).success
        began = {one.thread_id: one.updated_at for one in await rye.threads.list(all=True)}
        assert began[high.thread_id] < min(began[one.thread_id] for one in low)
    assert (planned.root / "marks").read_text().split() == ["once", *["short"] * 3]


async def test_a_run_is_cancelled_while_it_waits_and_while_it_runs(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    async with planned.open(state=state) as rye:
        waits = await rye.start("directive:acme/work", target="remote:queue")
        await waits.cancel()
        with anyio.fail_after(5):
            assert (await waits.result()).ended == "cancelled"
        workers.start()
        runs = await rye.start("directive:acme/work", target="remote:queue")
        with anyio.fail_after(30):
            await planned.begun("work")
            await runs.cancel()
            assert (await runs.result()).ended == "cancelled"
    assert (planned.root / "marks").read_text() == "once\n"
