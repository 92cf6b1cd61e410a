"""A node that hands its runs to workers of a queue: the caller sees what it sees of any node."""

import os
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
import pytest

from ryecore.errors import RemoteError
from ryecore.items.refs import ItemRef
from ryecore.node.callers import METRICS_SCOPE
from ryecore.policy import CallContext
from ryecore.remote.protocol.snapshots import Snapshot
from ryecore.remote.travelling import put_list
from ryecore.runs.queued_run import QueuedSpace
from ryecore.runs.request import RunRequest
from ryecore.state.model import RemotePlace
from ryecore.testing.ports import free_port
from tests.forking import Forked
from tests.graphs import adding
from tests.postgres import needs_dbos, needs_server
from tests.queue_workers import Workers
from tests.remotes import connect
from tests.served_node import ServedNode, client_of, served_node
from tests.thread_host import COST, PlannedWorkspace
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server, needs_dbos]

StartWorker: TypeAlias = Callable[..., Forked]

_WRITE = """
import pathlib

def execute(params, project_path):
    (pathlib.Path(project_path) / "made.txt").write_text(params["text"])
    return {}
"""


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    """The caller's workspace, with a state of its own."""
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}], ["gate", {"name": "work"}])
    return planned


@pytest.fixture
def node(planned: PlannedWorkspace, state: str) -> Iterator[ServedNode]:
    """A node that hands its runs to the queue `default` of the state."""
    with served_node(planned.root / "node", "--state", state, environ=planned.environ) as served:
        connect(planned.workspace, served)
        yield served


@pytest.fixture
def start_worker(workers: Workers, state: str, tmp_path: Path) -> StartWorker:
    """Start a worker of the queue, which has no project of its own."""
    (tmp_path / "empty").mkdir()

    def start(*options: str) -> Forked:
        shared = ("--state", state, "--spaces", str(tmp_path / "spaces"))
        return workers.start(*shared, *options, project=tmp_path / "empty")

    return start


async def rows_of(state: str, columns: str) -> list[tuple[object, ...]]:
    """The rows of the shared state."""
    address, _, schema = state.rpartition("&schema=")
    with psycopg.connect(address, options=f"-c search_path={schema}") as server:
        found: list[tuple[object, ...]] = server.execute(
            f"SELECT {columns} FROM threads ORDER BY rowid"
        ).fetchall()
        return found


def events_of(node: Path) -> list[object]:
    """The events of runs that a node has stored, as text, without those of the tree."""
    with closing(sqlite3.connect(node / "node.db")) as database:
        query = "SELECT data FROM events WHERE event <> 'tree' ORDER BY id"
        return [data for (data,) in database.execute(query)]


async def test_tools_and_graphs_on_a_node_are_run_by_a_worker(
    planned: PlannedWorkspace, node: ServedNode, start_worker: StartWorker, tmp_path: Path
) -> None:
    where = planned.workspace.shell("acme/where", 'echo "$1"')
    fails = planned.workspace.shell("acme/fails", "echo wrong >&2; exit 3")
    writes = planned.workspace.python("acme/writes", _WRITE)
    flow = adding(planned.workspace)
    start_worker()
    async with planned.workspace.open() as rye:
        with anyio.fail_after(50):
            done = await rye.execute(where, target="remote:gpu")
            failed = await rye.execute(fails, target="remote:gpu")
            ran = await rye.execute(flow, {"a": 1}, target="remote:gpu")
            made = await rye.execute(writes, {"text": "new"}, target="remote:gpu", pull=True)
            report = await rye.threads.pull(str(made.to_dict()["thread_id"]))
    assert done.success, done.error
    assert str(tmp_path / "spaces") in done.data["stdout"]  # and not in the node's folder
    assert failed.status == "error"
    assert "wrong" in str(failed.to_dict())
    assert (ran.error, ran.data["output"]) == (None, {"sum": 2})
    assert report.added == ("made.txt",)
    assert (planned.workspace.project / "made.txt").read_text() == "new"


async def test_a_directive_comes_home_from_a_worker_with_its_events_cost_and_proof(
    planned: PlannedWorkspace, node: ServedNode, start_worker: StartWorker, state: str
) -> None:
    start_worker()
    async with planned.workspace.open() as rye:  # without models of its own
        with anyio.fail_after(30):
            thread = await rye.start("directive:acme/work", target="remote:gpu")
            await planned.begun("work")
            shown = await rye.threads.show(thread.thread_id)
            while shown.on_node is None or not shown.on_node.turns:
                await anyio.sleep(0.05)
                shown = await rye.threads.show(thread.thread_id)
            planned.allow("work")
            done = await thread.result()
        assert (done.status, done.error) == ("success", None)
        report = await rye.threads.show(done.thread_id)
        assert report.record.place == RemotePlace("gpu", node.identity.fingerprint)
        node.allow(planned.workspace.key, scopes=(METRICS_SCOPE,))
        async with client_of(node, planned.workspace.key) as client:
            metrics = (await client.get("/metrics")).text
        for line in (
            "ryecore_node_state_up 1",
            'ryecore_queue_workers{queue="default"} 1',
            'ryecore_queue_waiting_runs{queue="default"} 0',
            'ryecore_queue_worker_concurrency{queue="default"} 8',
        ):
            assert f"{line}\n" in metrics
        assert re.search(
            r"^ryecore_worker_lease_seconds\{.*\} [1-6]?[0-9]\.", metrics, re.MULTILINE
        )
        names = {one.name for one in (report.folder / "node").iterdir()}
        assert {"transcript.jsonl", "thread.json", "capabilities.md", "export.md"} <= names
        proved = await rye.threads.verify(done.thread_id)
        assert (proved.ok, proved.problems) == (True, ())
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 3 * COST
        assert account.held.spend_microcents == 0
    assert (planned.root / "marks").read_text() == "once\n"
    assert await rows_of(state, "queue, status") == [("default", "completed")]


async def test_an_outcome_of_a_worker_of_another_version_is_an_error_with_the_cost(
    planned: PlannedWorkspace, node: ServedNode, start_worker: StartWorker, state: str
) -> None:
    planned.write("short", ["mark", {"text": "once"}])
    start_worker()
    address, _, schema = state.rpartition("&schema=")
    with psycopg.connect(address, options=f"-c search_path={schema}", autocommit=True) as server:
        newer = """replace(NEW.outcome, '"version": 1', '"version": 2')"""
        server.execute(
            "CREATE FUNCTION newer() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN NEW.outcome = {newer}; RETURN NEW; END $$;"
            " CREATE TRIGGER newer BEFORE UPDATE OF outcome ON requests FOR EACH ROW"
            " EXECUTE FUNCTION newer()"
        )
    async with planned.workspace.open() as rye:
        with anyio.fail_after(30):
            done = await rye.execute("directive:acme/short", thread="fork", target="remote:gpu")
    assert done.status == "error"
    assert "has version 2, and this node reads version 1" in str(done.error)
    assert "Install the same version" in str(done.error)
    assert done.cost.spend_microcents == 2 * COST
    assert (planned.root / "marks").read_text() == "once\n"


async def test_a_caller_stops_what_waits_for_a_worker_and_what_one_runs(
    planned: PlannedWorkspace, node: ServedNode, start_worker: StartWorker, state: str
) -> None:
    async with planned.workspace.open() as rye:
        waits = await rye.start("directive:acme/work", target="remote:gpu")
        with anyio.fail_after(30):
            while not await rows_of(state, "status"):  # the node has put it into the queue
                await anyio.sleep(0.05)
            await waits.cancel()
            assert (await waits.result()).ended == "cancelled"
        start_worker()
        runs = await rye.start("directive:acme/work", target="remote:gpu")
        with anyio.fail_after(30):
            await planned.begun("work")
            await runs.cancel()
            assert (await runs.result()).ended == "cancelled"
    assert (planned.root / "marks").read_text() == "once\n"


async def test_a_node_that_died_before_it_noted_a_run_finds_it_in_the_queue(
    planned: PlannedWorkspace, state: str
) -> None:
    request = RunRequest(ItemRef.parse("directive:acme/work"), queue="default")
    request = request.with_key("node/a/b/2026-01-01T00:00:00Z/c", None)
    space = QueuedSpace(planned.workspace.key.public.pem.decode(), "caller")
    async with planned.open(state=state) as rye:
        handed = rye.cluster.handed
        put = [await handed.put(request, CallContext(), "ab" * 32, space) for _ in range(2)]
        assert put[0].thread_id == put[1].thread_id
        await put[0].cancel()
        with anyio.fail_after(10):
            assert await handed.outcome(put[0].thread_id) == ""  # no worker will tell one
    assert await rows_of(state, "queue, status") == [("default", "cancelled")]


async def test_another_worker_takes_over_what_a_killed_one_ran_for_a_node(
    planned: PlannedWorkspace, node: ServedNode, start_worker: StartWorker, state: str
) -> None:
    pipe = planned.root / "pipe"
    stays = planned.workspace.shell("acme/stays", f"echo $$ > {pipe}; sleep 1000")
    os.mkfifo(pipe)
    first = start_worker()
    async with planned.workspace.open() as rye:
        thread = await rye.start("directive:acme/work", target="remote:gpu")
        tool = await rye.execute(stays, target="remote:gpu", async_=True)
        with anyio.fail_after(60):
            await planned.begun("work")
            left = int(await anyio.to_thread.run_sync(pipe.read_text))
            first.send_signal(signal.SIGKILL)
            start_worker()
            planned.allow("work")
            done = await thread.result()
            ended = await rye.threads.wait(tool.data["thread_id"])
        assert (done.status, done.error) == ("success", None)
        proved = await rye.threads.verify(done.thread_id)
        assert (proved.ok, proved.problems) == (True, ())
        assert len(proved.earlier) == 1
        account = await rye.threads.account(done.thread_id)
        assert account.held.spend_microcents == 0
        assert account.own.spend_microcents >= 3 * COST
    assert (planned.root / "marks").read_text() == "once\n"
    assert ended.status == "error"
    assert "whether it had its effect is unknown" in str(ended.error)
    assert not is_alive(left)


async def test_a_caller_follows_to_the_end_a_run_whose_node_was_killed_meanwhile(
    planned: PlannedWorkspace, start_worker: StartWorker, state: str
) -> None:
    settings = f"port: {free_port()}\n"
    folder, options = planned.root / "node", ("--state", state)
    start_worker()
    async with planned.workspace.open() as rye:
        with served_node(folder, *options, environ=planned.environ, settings=settings) as node:
            connect(planned.workspace, node)
            thread = await rye.start("directive:acme/work", target="remote:gpu")
            with anyio.fail_after(30):
                await planned.begun("work")
            node.process.send_signal(signal.SIGKILL)
        planned.allow("work")
        with served_node(folder, *options, environ=planned.environ, settings=settings):
            with anyio.fail_after(60):
                done = await thread.result()
        assert (done.status, done.error) == ("success", None)
        proved = await rye.threads.verify(done.thread_id)
        assert (proved.ok, proved.problems) == (True, ())
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 3 * COST
    assert (planned.root / "marks").read_text() == "once\n"
    assert await rows_of(state, "queue, status") == [("default", "completed")]
    events = events_of(folder)
    assert len(events) == len(set(events)) > 5  # the node has logged none of them twice


async def test_a_node_removes_what_travelled_for_its_callers_and_keeps_what_a_run_needs(
    planned: PlannedWorkspace, start_worker: StartWorker, state: str
) -> None:
    folder, options = planned.root / "node", ("--state", state)
    address, _, schema = state.rpartition("&schema=")
    with psycopg.connect(address, options=f"-c search_path={schema}", autocommit=True) as server:

        def snapshots() -> set[str]:
            query = "SELECT sha256 FROM objects WHERE space LIKE 'travelling/%/lists'"
            return {name for (name,) in server.execute(query)}

        worker = start_worker()
        short = planned.write("short", ["mark", {"text": "short"}])
        with served_node(folder, *options, environ=planned.environ) as node:
            connect(planned.workspace, node)
            async with planned.workspace.open() as rye:
                with anyio.fail_after(30):
                    assert (await rye.execute(short, thread="fork", target="remote:gpu")).success
        worker.kill()
        [used] = snapshots()
        waits, key = Snapshot(()), planned.workspace.key.public
        request = RunRequest(ItemRef.parse(short), queue="default").with_key("node/a/b/c/d", None)
        async with planned.open(state=state) as rye:
            put_list(await rye.cluster.handed.snapshots(key.fingerprint), waits)
            space = QueuedSpace(key.pem.decode(), "caller")
            await rye.cluster.handed.put(request, CallContext(), waits.id, space)
        server.execute("UPDATE objects SET stored_at = stored_at - interval '40 days'")
        with served_node(folder, *options, environ=planned.environ):
            with anyio.fail_after(30):
                while used in snapshots():  # at its start a node removes what is unused
                    await anyio.sleep(0.05)
        assert snapshots() == {waits.id}


async def test_secrets_that_travel_are_refused_with_what_to_do_instead(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node, secrets="[HF_TOKEN]")
    workspace.environ["HF_TOKEN"] = "hf_0123456789abcdefghij"
    ref = workspace.shell("acme/asks", "true", env_config={"env": {"HF_TOKEN": "${HF_TOKEN}"}})
    async with workspace.open() as rye:
        with anyio.fail_after(30), pytest.raises(RemoteError, match="can't open secrets") as told:
            await rye.execute(ref, target="remote:gpu")
    for words in ("`secrets`", "a file", "a node without workers"):
        assert words in told.value.next_step
    assert "hf_0" not in str(told.value)
