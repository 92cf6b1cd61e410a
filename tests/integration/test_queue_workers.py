"""Threads that callers put into a queue, and workers in processes of their own that run them."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import anyio
import anyio.to_thread
import pytest

from ryecore.actions.queue_runs import QueueRuns
from ryecore.errors import RyeError, StateError, StateUnreachable
from ryecore.lillux import watch
from ryecore.policy import CallContext
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.threads.thread import Thread
from ryecore.threads.tree_node import TreeNode
from tests.forking import Forked
from tests.matrix import IS_SOAK
from tests.postgres import cutting, needs_dbos, needs_server, running_postgres
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
    write_remotes(workspace, state)
    return planned


def write_remotes(workspace: Workspace, state: str) -> None:
    """Make the queue `default` of a state the remotes `queue` and `urgent`."""
    queue = {"queue": f"{state}&queue=default", "priority": 5}
    remotes = {"remotes": {"queue": queue, "urgent": {**queue, "priority": 1}}}
    workspace.write("config/remotes/remotes.yaml", json.dumps(remotes))


MANY = 1_000 if IS_SOAK else 16
"""How many runs a test puts into a queue at once."""


class Workers:
    """The workers of a test, which end with it."""

    def __init__(self, planned: PlannedWorkspace) -> None:
        self._planned = planned
        self._ended = ExitStack()

    def start(self, *options: str, project: Path | None = None, **more: Any) -> Forked:
        """Start a worker, and wait until it takes runs."""
        folder = project or self._planned.workspace.project
        arguments = ("node", "work", "--deps", FACTORY, "--project", str(folder), *options)
        worker = self._planned.fork("ryecore.cli", *arguments, stderr=subprocess.PIPE, **more)
        self._ended.enter_context(worker)
        self._ended.callback(worker.kill)
        assert worker.stderr is not None
        awaited = {"ryecore works as", *(["ryecore serves"] if "--metrics" in options else ())}
        self.said: list[str] = []
        while awaited:
            line = worker.stderr.readline().decode()
            if not line.startswith("ryecore "):
                raise AssertionError(line + worker.stderr.read().decode())
            self.said.append(line)
            awaited = {one for one in awaited if not line.startswith(one)}
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
        watched: list[TreeNode] = []

        async def look() -> None:
            watched.append(await rye.threads.watch(thread.thread_id, lambda _: None))

        with anyio.fail_after(30):
            await planned.begun("work")
        other = workers.start()
        async with anyio.create_task_group() as group:
            group.start_soon(look)
            first.send_signal(signal.SIGKILL)
            planned.allow("work")
            with anyio.fail_after(30):
                done = await thread.result()
        assert [one.status for one in watched[0].walk()] == ["continued", "completed"]
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


async def test_a_queue_whose_server_is_away_is_refused_with_the_reason(
    planned: PlannedWorkspace, tmp_path: Path
) -> None:
    away = f"postgresql://tester@/postgres?host={tmp_path}&schema=away"
    planned.workspace.environ["RYE_STATE"] = away
    write_remotes(planned.workspace, away)
    asked = ("execute", "directive:acme/short", "--thread", "fork", "--target", "remote:queue")
    told = await anyio.to_thread.run_sync(rye_command, planned, *asked)
    assert told.startswith("✗ directive:acme/short  refused")  # nothing of DBOS's own is printed
    assert "No such file" in told


def test_states_with_long_names_of_schemas_do_not_share_queues() -> None:
    dbos_queue = pytest.importorskip("ryecore.remote.dbos_queue")
    names = ["shop", "t" * 58, *("t" * 62 + end for end in "ab")]
    states = [PostgresAddress.parse(f"postgresql://db.example/a?schema={name}") for name in names]
    schemas = [dbos_queue.schema_of(one) for one in states]
    assert schemas[:2] == ["shop_dbos", "t" * 58 + "_dbos"]
    assert len(set(schemas)) == 4
    assert {len(one) for one in schemas[1:]} == {63}


def test_a_worker_says_in_a_line_that_the_server_is_away(caplog: pytest.LogCaptureFixture) -> None:
    exc = pytest.importorskip("sqlalchemy.exc")
    work = pytest.importorskip("ryecore.node.work")
    with work.trying_again("look"):
        raise exc.OperationalError("SELECT 1", {}, psycopg.errors.AdminShutdown())
    [said] = caplog.records
    assert said.exc_info is None
    assert "AdminShutdown" in said.getMessage()


async def test_a_run_that_can_not_be_resumed_while_the_server_is_away_is_resumed_later(
    planned: PlannedWorkspace, state: str
) -> None:
    class Away:
        """What resumes threads, as the server goes away in the midst of it."""

        async def take_over(self, *_: object) -> None:
            raise StateUnreachable("The server is away.")

    async with planned.open(state=state) as rye:
        dead = await rye.start("directive:acme/short", target="remote:queue")
        address, _, schema = state.rpartition("&schema=")
        with psycopg.connect(address, options=f"-c search_path={schema}") as server:
            server.execute("UPDATE threads SET status = 'continued', completed_at = created_at")
    spaces = (planned.workspace.path(""), planned.workspace.path("", "user"))
    store = ThreadStore.open(*spaces, state=state)
    with closing(store):
        with pytest.raises(StateUnreachable):
            await QueueRuns(lambda: store, cast("Any", Away)).carry_out(dead.thread_id)
        assert (await store.look(dead.thread_id)).status == "continued"  # not given up


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


async def test_many_runs_over_three_workers_one_of_which_is_killed(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    killed, *_ = [workers.start() for _ in range(3)]
    await run_many(planned, state, MANY, lambda: killed.send_signal(signal.SIGKILL))


async def test_many_runs_while_the_server_is_restarted(
    planned: PlannedWorkspace, tmp_path: Path
) -> None:
    with running_postgres() as server:
        state = f"{server.address}&schema=restarted"
        planned.workspace.environ["RYE_STATE"] = state
        write_remotes(planned.workspace, state)
        with closing(Workers(planned)) as workers:
            workers.start()
            workers.start()

            def restart() -> None:
                server.stop()
                server.start()

            await run_many(planned, state, MANY, restart)


async def run_many(
    planned: PlannedWorkspace, state: str, many: int, disturb: Callable[[], None]
) -> None:
    """Put many runs into the queue, disturb them, and see that each had its effect and cost once.

    Whether a call that was under way had its effect is unknown, so it isn't made again.
    """
    text = '<input name="x" type="string" required="true">A text.</input>'
    planned.write("each", ["mark", {"text": "{input:x}"}], inputs=text)
    marks = planned.root / "marks"
    threads: list[Thread] = []
    async with planned.open(state=state) as rye:

        async def start(number: int) -> None:
            inputs = {"x": str(number)}
            threads.append(await rye.start("directive:acme/each", inputs, target="remote:queue"))

        async with anyio.create_task_group() as group:
            for number in range(many):
                group.start_soon(start, number)
        async with watch(marks) as watcher:
            while not marks.exists() or len(marks.read_text().split()) < many // 3:
                await watcher.changed()
        await anyio.to_thread.run_sync(disturb)
        with anyio.fail_after(30 + many / 5):
            results = [await one.result() for one in threads]
        assert [one.error for one in results if not one.success] == []
        spent = sum([(await one.cost()).spend_microcents for one in threads])
    marked = marks.read_text().split()
    assert len(marked) == len(set(marked))
    assert len(marked) >= many - 3 * 8
    address, _, schema = state.rpartition("&schema=")
    with psycopg.connect(address, options=f"-c search_path={schema}") as opened:
        [(rows, open_rows, cost)] = opened.execute(
            "SELECT count(*), count(*) FILTER (WHERE completed_at IS NULL), sum(spend_microcents)"
            " FROM threads"
        ).fetchall()
        [(charged, held)] = opened.execute(
            "SELECT sum(spend), count(*) FILTER (WHERE mark = 'held') FROM charges"
        ).fetchall()
        [(own, still_held)] = opened.execute(
            "SELECT sum(spend_own), sum(spend_held + spend_reserved) FROM accounts"
        ).fetchall()
    assert (open_rows, held, still_held) == (0, 0, 0)
    assert spent == cost == charged == own
    assert many <= rows <= many + 3 * 8
    assert spent >= 2 * COST * many


async def test_the_status_shows_queues_workers_leases_and_rates(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    workers.start("--concurrency", "1", "--rate", "3/600s", "--metrics", "127.0.0.1:0")
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
    assert "1 of 3 begun in 600 s" in shown
    for text in (metrics, served):
        assert 'ryecore_queue_waiting_runs{queue="default"} 1\n' in text
    assert f'ryecore_worker_up{{worker="{worker.worker_id}",queue="default"' in metrics


def rye_command(planned: PlannedWorkspace, *arguments: str) -> str:
    """What a command of `rye` in the project prints."""
    command = ["ryecore.cli", *arguments, "--project", str(planned.workspace.project)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with planned.fork(*command, **pipes) as process:
        printed, _ = process.communicate()
    return printed.decode()


async def test_a_worker_elsewhere_resumes_what_one_here_began(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    load_run_key(planned.workspace.path("", "user"))  # which both machines have
    elsewhere = planned.root.with_name("elsewhere")
    shutil.copytree(planned.root, elsewhere)
    environ = {
        name: text.replace(str(planned.root), str(elsewhere))
        for name, text in planned.environ.items()
    }
    here = workers.start()
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/work", target="remote:queue")
        with anyio.fail_after(30):
            await planned.begun("work")
        workers.start(project=elsewhere / "project", env=environ)
        here.send_signal(signal.SIGKILL)
        with anyio.fail_after(30):
            done = await thread.result()
        assert done.success, done.error
        assert "is not known" in str(done.text)  # what the tool did that was being called
        assert (await rye.threads.verify(done.thread_id)).ok


async def test_a_worker_whose_folder_can_not_be_used_runs_what_it_took_once_it_can(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    elsewhere = planned.root.with_name("elsewhere")
    shutil.copytree(planned.root, elsewhere)
    environ = {
        name: text.replace(str(planned.root), str(elsewhere))
        for name, text in planned.environ.items()
    }
    worker = workers.start(project=elsewhere / "project", env=environ)
    folder = elsewhere / "project/.ai/state/threads"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("in the way")
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/short", target="remote:queue")
        assert worker.stderr is not None
        with anyio.fail_after(30):
            said = await anyio.to_thread.run_sync(worker.stderr.readline)
        assert "can't be ended now" in said.decode()
        assert await thread.status() == "created"
        folder.unlink()
        with anyio.fail_after(30):
            done = await thread.result()
    assert done.success, done.error


@pytest.mark.timeout(300)
@pytest.mark.skipif(not IS_SOAK, reason="a lease lasts a minute; make soak")
async def test_a_worker_that_the_network_cuts_off_stops_before_another_takes_over(
    planned: PlannedWorkspace, state: str, workers: Workers, tmp_path: Path
) -> None:
    planned.write(
        "cut", ["mark", {"text": "before"}], ["gate", {"name": "cut"}], ["mark", {"text": "after"}]
    )
    server = Path(state.partition("host=")[2].partition("&")[0])
    with cutting(server, tmp_path / "between") as cut:
        away = state.replace(str(server), str(tmp_path / "between"))
        # Nobody may look at its process, as on another machine.
        command = ("unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m")
        log = tmp_path / "log"
        arguments = ("ryecore.cli", "node", "work", "--deps", FACTORY, "--state", away)
        project = ("--project", str(planned.workspace.project))
        with (
            log.open("wb") as told,
            subprocess.Popen(
                (*command, *arguments, *project), stderr=told, env=planned.environ
            ) as lone,
            ExitStack() as ended,
        ):
            ended.callback(lone.kill)
            async with planned.open(state=state) as rye, watch(log) as watcher:
                while "works as" not in log.read_text():
                    await watcher.changed()
                thread = await rye.start("directive:acme/cut", target="remote:queue")
                with anyio.fail_after(30):
                    await planned.begun("cut")
                cut.set()
                workers.start("--concurrency", "1")
                with anyio.fail_after(120):
                    done = await thread.result()
                assert done.success, done.error
                planned.allow("cut")
                cut.clear()
                another = await rye.start("directive:acme/short", target="remote:queue")
                assert (await another.result()).success
            assert lone.poll() is None
    assert (planned.root / "marks").read_text().split() == ["before", "after", "short"]


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
    assert len(list(spaces.iterdir())) == 2


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


async def test_a_worker_finds_runs_that_never_got_into_the_queue_and_forgets_old_workflows(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    address, _, schema = state.rpartition("&schema=")
    kept = f"SELECT workflow_uuid FROM {schema}_dbos.workflow_status"
    async with planned.open(state=state) as rye:
        lost = await rye.start("directive:acme/short", target="remote:queue")
        old = await rye.start("directive:acme/short", target="remote:queue")
        await old.cancel()
        with psycopg.connect(address, autocommit=True) as server:
            # As if its caller had died before it told DBOS, a while ago.
            server.execute(
                f"DELETE FROM {schema}_dbos.workflow_status WHERE workflow_uuid = %s",
                (lost.thread_id,),
            )
            server.execute(f"UPDATE {schema}.threads SET created_at = '2026-01-01T00:00:00.000Z'")
            server.execute(
                f"UPDATE {schema}_dbos.workflow_status SET status = 'SUCCESS', completed_at = 1"
            )
            workers.start()
            with anyio.fail_after(30):
                assert (await lost.result()).success
            assert [row for (row,) in server.execute(kept).fetchall()] == [lost.thread_id]
    assert (planned.root / "marks").read_text() == "short\n"


@pytest.mark.skipif(not IS_SOAK, reason="a worker has to see it twice, 5 s apart; make soak")
async def test_a_run_that_a_worker_was_given_without_its_knowledge_is_put_back(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    address, _, schema = state.rpartition("&schema=")
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/short", target="remote:urgent")
        with psycopg.connect(address, autocommit=True) as server:
            # As where the answer to DBOS's claim is lost with the connection.
            claim = f"UPDATE {schema}_dbos.workflow_status SET status = 'PENDING', executor_id = %s"
            server.execute(claim, ("nobody",))
            workers.start()
            worker_id = workers.said[0].split()[-1]
            server.execute(claim, (worker_id,))
            with anyio.fail_after(
                30
            ):  # it looks every five seconds, and acts when it has seen it twice
                assert (await thread.result()).success
    assert (planned.root / "marks").read_text() == "short\n"


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


async def test_a_run_that_cannot_get_into_the_queue_ends_and_frees_its_key(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    address, _, schema = state.rpartition("&schema=")
    table = f"{schema}_dbos.workflow_status"
    async with planned.open(state=state) as rye:
        await (await rye.start("directive:acme/short", target="remote:queue")).cancel()
        with psycopg.connect(address, autocommit=True) as server:
            server.execute(f"ALTER TABLE {table} RENAME TO moved")
            with pytest.raises(StateError):
                await rye.start(
                    "directive:acme/short", target="remote:queue", idempotency_key="once"
                )
            assert await rye.threads.list() == ()
            server.execute(f"ALTER TABLE {schema}_dbos.moved RENAME TO workflow_status")
        again = await rye.start(
            "directive:acme/short", target="remote:queue", idempotency_key="once"
        )
        workers.start()
        with anyio.fail_after(30):
            assert (await again.result()).success
    assert (planned.root / "marks").read_text() == "short\n"


async def test_a_run_that_the_audit_log_refuses_is_not_left_for_workers(
    planned: PlannedWorkspace, state: str
) -> None:
    asked: list[object] = []

    def refuse_first(line: object) -> None:
        asked.append(line)
        if len(asked) == 1:
            raise OSError("no room")

    async with planned.open(state=state, audit=refuse_first) as rye:
        with pytest.raises(RyeError):
            await rye.start("directive:acme/short", target="remote:queue")
        assert [one.status for one in await rye.threads.list(all=True)] == ["error"]
