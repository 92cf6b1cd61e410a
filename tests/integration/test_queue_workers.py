"""Threads that callers put into a queue, and workers in processes of their own that run them."""

import json
import re
import signal
import subprocess
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import anyio
import anyio.to_thread
import pytest

from ryecore.lillux.processes import ProcessId
from ryecore.policy import CallContext
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.run_queue import WorkerRecord
from ryecore.state.store import ThreadStore
from tests.forking import WORKERS
from tests.postgres import needs_dbos, needs_server
from tests.queue_workers import Workers, rye_command
from tests.thread_host import COST, PlannedWorkspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
database = pytest.importorskip("ryecore.state.postgres.database")
pytestmark = [pytest.mark.anyio, needs_server, needs_dbos]


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
        thread_id = done.to_dict()["thread_id"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    logged = [workers.log.get(timeout=10) for _ in range(2)]
    run = rf" INFO {re.escape(thread_id)} \(directive:acme/short, queue default\) "
    assert re.search(rf"{run}begins\.\n", logged[0]), logged
    assert re.search(rf"{run}ended after [0-9.]+ s: completed\.\n", logged[1]), logged


async def test_a_caller_waits_for_no_run_that_it_began_in_the_same_second(
    planned: PlannedWorkspace, state: str
) -> None:
    shared = database.PostgresDatabase(PostgresAddress.parse(state))
    async with planned.open(state=state) as rye:
        first = await rye.start("directive:acme/short", target="remote:queue")
        with shared.write(first.thread_id) as run, anyio.fail_after(5):  # as its worker does
            run.execute("SELECT 1").fetchone()  # what was sent before it is done by now
            second = await rye.start("directive:acme/short", target="remote:queue")
        assert second.thread_id != first.thread_id
    shared.close()


async def test_the_first_runs_of_a_caller_at_once_connect_to_dbos_once(
    planned: PlannedWorkspace, state: str
) -> None:
    address = state.partition("&schema=")[0]
    of_callers = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'dbos%client'"
    async with planned.open(state=state) as rye:
        async with anyio.create_task_group() as group:
            for _ in range(24):
                group.start_soon(partial(rye.start, "directive:acme/short", target="remote:queue"))
        with psycopg.connect(address) as server:
            assert server.execute(of_callers).fetchone()[0] <= 1


def test_states_with_long_names_of_schemas_do_not_share_queues() -> None:
    dbos_queue = pytest.importorskip("ryecore.remote.dbos_queue")
    names = ["shop", "t" * 58, *("t" * 62 + end for end in "ab")]
    states = [PostgresAddress.parse(f"postgresql://db.example/a?schema={name}") for name in names]
    schemas = [dbos_queue.schema_of(one) for one in states]
    assert schemas[:2] == ["shop_dbos", "t" * 58 + "_dbos"]
    assert len(set(schemas)) == 4
    assert {len(one) for one in schemas[1:]} == {63}


async def test_children_on_several_workers_share_the_budget_of_their_parent(
    planned: PlannedWorkspace, workers: Workers
) -> None:
    child = {"item_id": "directive:acme/short", "thread": "fork", "target": "remote:queue"}
    planned.write("parent", [["rye_execute", child]] * 5, limits='spend="0.05"')
    for _ in range(2):
        workers.start("--concurrency", "2")
    async with planned.open() as rye:
        with anyio.fail_after(30):
            done = await rye.execute("directive:acme/parent", thread="fork", target="remote:queue")
        assert done.success, done.error
        assert "already" not in str(done.text)
        children = [one for one in await rye.threads.list(all=True) if one.parent_id]
        account = await rye.threads.spent(done.to_dict()["thread_id"])
    marks = (planned.root / "marks").read_text().split()
    assert [one.status for one in children] == ["completed"] * 5
    assert len(marks) == 5
    assert account.spent.spend_microcents == (2 + 5 * 2) * COST
    assert account.held.spend_microcents == 0


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


async def test_the_rate_of_a_queue_delays_the_starts_of_its_runs(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    period_s = 0.6
    async with planned.open(state=state) as rye:
        runs = [await rye.start("directive:acme/short", target="remote:queue") for _ in range(5)]
        workers.start("--rate", f"2/{period_s}s")
        with anyio.fail_after(30):
            for one in runs:
                assert (await one.result()).success
    address, _, schema = state.rpartition("&schema=")
    with psycopg.connect(address) as server:
        query = f"SELECT started_at_epoch_ms FROM {schema}_dbos.workflow_status ORDER BY 1"
        starts_s = [at_ms / 1000 for (at_ms,) in server.execute(query).fetchall()]
    assert len(starts_s) == len(runs)
    # No more than two begin within a period, though the worker has room for all of them.
    apart_s = [later - first for first, later in zip(starts_s, starts_s[2:], strict=False)]
    assert min(apart_s) >= period_s - 0.01, starts_s


async def test_a_run_is_cancelled_while_it_waits_and_while_it_runs(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    async with planned.open(state=state) as rye:
        waits = await rye.start("directive:acme/work", target="remote:queue")
        await waits.cancel()
        with anyio.fail_after(5):
            assert (await waits.result()).ended == "cancelled"
        shown = (await rye.threads.show(waits.thread_id)).render().plain()
        assert "✗ directive:acme/work  error" in shown
        workers.start()
        runs = await rye.start("directive:acme/work", target="remote:queue")
        with anyio.fail_after(30):
            await planned.begun("work")
            await runs.cancel()
            assert (await runs.result()).ended == "cancelled"
    assert (planned.root / "marks").read_text() == "once\n"


async def test_the_status_shows_queues_workers_leases_and_rates(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    workers.start("--concurrency", "1", "--rate", "3/600s", "--metrics", "127.0.0.1:0")
    checks = partial(rye_command, planned, "remote", "check")
    url = next(line.split()[-1] for line in workers.said if "serves" in line)
    async with planned.open(state=state) as rye:
        first, _ = [await rye.start("directive:acme/work", target="remote:queue") for _ in range(2)]
        with anyio.fail_after(30):
            await planned.begun("work")
        found = await rye.cluster.status()
        shown = await anyio.to_thread.run_sync(rye_command, planned, "cluster", "status")
        metrics = await anyio.to_thread.run_sync(rye_command, planned, "cluster", "metrics")
        show = ("threads", "show", first.thread_id)
        thread = await anyio.to_thread.run_sync(rye_command, planned, *show)
        checked = await anyio.to_thread.run_sync(checks, "queue")
        with await anyio.to_thread.run_sync(urlopen, url) as answer:
            served = answer.read().decode()
        planned.allow("work")
        assert (await first.result()).success
    [queue], [worker] = found.queues, found.workers
    assert (queue.name, queue.waiting, queue.running, queue.workers) == ("default", 1, 1, 1)
    assert (queue.concurrency, queue.rate, queue.period_s, queue.begun) == (1, 3, 600, 1)
    assert (worker.running, worker.is_alive) == (1, True)
    assert 0 < worker.lease_s <= 60
    assert worker.run_lease_s is not None
    assert 0 < worker.run_lease_s <= 60
    assert worker.worker_id in shown
    assert "queue   default" in thread
    assert checked.startswith("✓ queue  is a queue of this state\n  default  1 waiting")
    assert worker.worker_id in checked
    planned.workspace.environ["RYE_STATE"] = f"{state}_else"
    other = await anyio.to_thread.run_sync(checks, "queue")
    assert "and this Rye's state is" in other
    assert "1 of 3 begun in 600 s" in shown
    for text in (metrics, served):
        assert 'ryecore_queue_waiting_runs{queue="default"} 1\n' in text
    assert f'ryecore_worker_up{{worker="{worker.worker_id}",queue="default"' in metrics


async def test_a_thread_is_shown_with_the_machine_of_its_worker(
    planned: PlannedWorkspace, state: str
) -> None:
    there = ProcessId("elsewhere", 1, 4242, 1)
    async with planned.open(state=state) as rye:
        waits = await rye.start("directive:acme/short", target="remote:queue")
        user = planned.workspace.path("", "user")
        with closing(ThreadStore.open(planned.workspace.path(""), user, state=state)) as store:
            assert store.queue is not None
            await store.queue.enter(WorkerRecord("w", "default", 1, "gpu-7", "/srv/shop", there))
            await store.registry.claim(waits.thread_id, there)
        shown = await rye.threads.show(waits.thread_id)
    assert shown.to_dict()["machine"] == "gpu-7"
    assert "process 4242  of gpu-7" in str(shown)
    assert "folder" not in str(shown)


async def test_the_status_is_shown_in_a_folder_without_a_project_and_makes_nothing_there(
    planned: PlannedWorkspace, state: str, tmp_path: Path
) -> None:
    async with planned.open(state=state) as rye:
        waits = await rye.start("directive:acme/short", target="remote:queue")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = ["ryecore.cli", "cluster", "status", "--project", str(elsewhere), "--json"]
    with planned.fork(*command, stdout=subprocess.PIPE, imported=WORKERS) as process:
        printed, _ = await anyio.to_thread.run_sync(process.communicate)
    assert json.loads(printed)["queues"][0]["waiting"] == 1, waits
    assert list(elsewhere.iterdir()) == []


async def test_a_project_travels_to_a_worker_that_has_none(
    planned: PlannedWorkspace, state: str, workers: Workers, tmp_path: Path
) -> None:
    planned.workspace.shell("acme/words", "cat data/words.txt")
    planned.write("words", ["rye_execute", {"item_id": "tool:acme/words"}])
    words = planned.workspace.project / "data/words.txt"
    words.parent.mkdir()
    words.write_text("from here")
    queue = {"queue": state, "travels": True, "push": {"include": ["data/*.txt"]}}
    planned.workspace.write(
        "config/remotes/remotes.yaml", json.dumps({"remotes": {"queue": queue}})
    )
    (tmp_path / "empty").mkdir()
    spaces = tmp_path / "spaces"
    workers.start("--spaces", str(spaces), project=tmp_path / "empty")
    async with planned.open(state=state) as rye:
        with anyio.fail_after(30):
            first = await rye.execute("directive:acme/words", thread="fork", target="remote:queue")
            words.write_text("changed")
            again = await rye.execute("directive:acme/words", thread="fork", target="remote:queue")
    assert first.success, first.error
    assert "from here" in str(first.text), first
    assert "changed" in str(again.text)
    assert len({one.name for one in spaces.iterdir()} - {"nodes"}) == 2


async def test_pruning_removes_what_travelled_and_keeps_what_a_waiting_run_needs(
    planned: PlannedWorkspace, state: str, workers: Workers, tmp_path: Path
) -> None:
    queue = {"queue": state, "travels": True, "push": {"include": ["data/*.txt"]}}
    remotes = json.dumps({"remotes": {"queue": queue}})
    planned.workspace.write("config/remotes/remotes.yaml", remotes)
    words = planned.workspace.project / "data/words.txt"
    words.parent.mkdir()
    async with planned.open(state=state) as rye:
        words.write_text("waits for a worker")
        waiting = await rye.start("directive:acme/short", target="remote:queue")
        words.write_text("stopped")
        stopped = await rye.start("directive:acme/short", target="remote:queue")
        await stopped.cancel()
        assert (await rye.threads.prune(older_than="1s")).snapshot_bytes == 0  # it is of today
        address, _, schema = state.rpartition("&schema=")
        with psycopg.connect(address, options=f"-c search_path={schema}") as server:
            server.execute("UPDATE objects SET stored_at = stored_at - interval '3 days'")
        pruned = await rye.threads.prune(older_than="1d")
        workers.start("--spaces", str(tmp_path / "spaces"))
        with anyio.fail_after(30):
            done = await waiting.result()
    assert done.success, done.error
    assert pruned.to_dict()["snapshot_bytes"] == pruned.snapshot_bytes > len("stopped")
    (made,) = (one for one in (tmp_path / "spaces").iterdir() if one.name != "nodes")
    assert (made / "data/words.txt").read_text() == "waits for a worker"


async def test_automatic_pruning_removes_what_travelled(
    planned: PlannedWorkspace, state: str
) -> None:
    queue = {"queue": state, "travels": True}
    planned.workspace.write(
        "config/remotes/remotes.yaml", json.dumps({"remotes": {"queue": queue}})
    )
    planned.workspace.write("config/agent/retention.yaml", "threads: {older_than: 30d}\n")
    address, _, schema = state.rpartition("&schema=")
    with psycopg.connect(address, options=f"-c search_path={schema}", autocommit=True) as server:
        count = "SELECT count(*) FROM objects WHERE space LIKE 'travelling%'"
        async with planned.open(state=state) as rye:
            stopped = await rye.start("directive:acme/short", target="remote:queue")
            await stopped.cancel()
            await stopped.result()
            assert server.execute(count).fetchall() != [(0,)]
            server.execute("UPDATE objects SET stored_at = stored_at - interval '40 days'")
            assert (await rye.execute("directive:acme/short", thread="fork")).success
        assert server.execute(count).fetchall() == [(0,)]


async def test_a_run_whose_project_cannot_be_had_ends_with_the_reason(
    planned: PlannedWorkspace, state: str, workers: Workers, tmp_path: Path
) -> None:
    remotes = {"remotes": {"queue": {"queue": state, "travels": True}}}
    planned.workspace.write("config/remotes/remotes.yaml", json.dumps(remotes))
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/short", target="remote:queue")
        address, _, schema = state.rpartition("&schema=")
        with psycopg.connect(address, options=f"-c search_path={schema}") as server:
            tables = server.execute(
                "SELECT table_name FROM information_schema.tables"
                " WHERE table_schema = %s AND table_name LIKE 'object%%'",
                (schema,),
            ).fetchall()
            assert tables
            server.execute(f"TRUNCATE {', '.join(name for (name,) in tables)}")
        workers.start("--spaces", str(tmp_path / "spaces"))
        with anyio.fail_after(30):
            done = await thread.result()
    assert not done.success
    assert "There is no object" in str(done.error)


async def test_a_run_that_a_newer_ryecore_put_into_the_queue_ends_and_says_what_to_do(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/short", target="remote:queue")
        address, _, schema = state.rpartition("&schema=")
        with psycopg.connect(address, options=f"-c search_path={schema}") as server:
            newer = """replace(body, '"version": 1', '"version": 2')"""
            server.execute(f"UPDATE requests SET body = {newer}")
        workers.start()
        with anyio.fail_after(30):
            done = await thread.result()
    assert "has the version 2" in str(done.error)
    assert not (planned.root / "marks").exists()


async def test_a_key_a_parent_and_the_command_find_one_run_of_the_queue(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    child = {"item_id": "directive:acme/short", "thread": "fork", "target": "remote:queue"}
    planned.write("parent", ["rye_execute", child], limits='turns="6" depth="2" spawns="3"')
    workers.start()
    async with planned.open(state=state) as rye:
        with anyio.fail_after(60):
            keyed = [
                await rye.start(
                    "directive:acme/short", target="remote:queue", idempotency_key="once"
                )
                for _ in range(2)
            ]
            assert keyed[0].thread_id == keyed[1].thread_id
            assert (await keyed[1].result()).success
            parent = await rye.execute("directive:acme/parent", thread="fork")
            assert parent.success, parent.error
            [below] = (await rye.threads.show(parent.thread_id)).children
            assert (below.queue, below.status) == ("default", "completed")
            account = await rye.threads.account(parent.thread_id)
            assert account.children == (await rye.threads.account(below.thread_id)).own
            options = ("--thread", "fork", "--target", "remote:queue")
            command = ("execute", "directive:acme/short", *options, "--async", "--json")
            started = json.loads(await anyio.to_thread.run_sync(rye_command, planned, *command))
            assert (started["state"], started["pid"]) == ("running", 0)
            assert (await rye.threads.wait(started["thread_id"])).record.status == "completed"
            shown = await anyio.to_thread.run_sync(
                rye_command, planned, "execute", "directive:acme/short", *options
            )
            assert "marked short" in shown
    assert (planned.root / "marks").read_text().split() == ["short"] * 4


async def test_a_worker_that_is_told_to_end_leaves_its_runs_to_another(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    first = workers.start("--grace", "0")
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/work", target="remote:queue")
        with anyio.fail_after(30):
            await planned.begun("work")
        workers.start()
        first.send_signal(signal.SIGTERM)
        with anyio.fail_after(60):
            assert await anyio.to_thread.run_sync(first.wait) == 0
            planned.allow("work")
            assert (await thread.result()).success
    assert (planned.root / "marks").read_text() == "once\n"
    line = ""
    while "resumes" not in line:
        line = workers.log.get(timeout=10)
    assert f"resumes {thread.thread_id}, whose worker is dead." in line
