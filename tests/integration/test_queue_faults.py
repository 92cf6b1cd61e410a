"""Workers of a queue that die, servers that go away, and callers that end in between."""

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from ryecore.actions.targets.queue_runs import QueueRuns
from ryecore.errors import RyeError, StateError, StateUnreachable
from ryecore.lillux import watch
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.threads.thread import Thread
from ryecore.threads.tree_node import TreeNode
from tests.matrix import IS_SOAK
from tests.postgres import cutting, needs_dbos, needs_server, running_postgres
from tests.queue_workers import Workers, copied, rye_command, write_remotes
from tests.thread_host import COST, FACTORY, PlannedWorkspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server, needs_dbos]


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
        waits = partial(rye_command, planned, "threads", "wait", thread.thread_id)
        waited: list[str] = []

        async def wait() -> None:
            waited.append(await anyio.to_thread.run_sync(waits))

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            group.start_soon(wait)
            first.send_signal(signal.SIGKILL)
            planned.allow("work")
            with anyio.fail_after(30):
                done = await thread.result()
        assert [one.status for one in watched[0].walk()] == ["continued", "completed"]
        assert done.success, done.error
        last = next(one for one in await rye.threads.list(all=True) if one.status == "completed")
        for text in (*waited, await anyio.to_thread.run_sync(waits)):
            assert text.startswith(f"✓ {last.thread_id}  completed")
        assert (planned.root / "marks").read_text() == "once\n"
        follow = partial(rye_command, planned, "threads", "transcript", "-f", thread.thread_id)
        told = await anyio.to_thread.run_sync(follow)
        assert "» continued" in told
        assert f"▸ continues from {thread.thread_id}" in told
        assert "✓ completed" in told
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
        none = cast("Any", None)
        runs = QueueRuns(lambda: store, cast("Any", Away), none, none)
        with pytest.raises(StateUnreachable):
            await runs.carry_out(dead.thread_id)
        assert (await store.look(dead.thread_id)).status == "continued"  # not given up


MANY = 1_000 if IS_SOAK else 16
"""How many runs a test puts into a queue at once."""


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


async def test_a_worker_elsewhere_resumes_what_one_here_began(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    load_run_key(planned.workspace.path("", "user"))  # which both machines have
    elsewhere, environ = copied(planned)
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


async def test_a_worker_whose_metrics_or_state_can_not_be_opened_says_so_in_a_few_lines(
    planned: PlannedWorkspace, state: str
) -> None:
    work = partial(rye_command, planned, "node", "work", "--state", state, "--deps", FACTORY)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        told = await anyio.to_thread.run_sync(work, "--metrics", place)
    assert told.startswith("✗ refused\n")
    assert place in told
    threads = planned.workspace.project / ".ai/state/threads"
    shutil.rmtree(planned.workspace.path("state/keys", "user"))  # now it is another user's
    told = await anyio.to_thread.run_sync(work)
    assert told.startswith(f"✗ refused\n  {threads} was made by another user space"), told


async def test_a_worker_whose_folder_can_not_be_used_runs_what_it_took_once_it_can(
    planned: PlannedWorkspace, state: str, workers: Workers
) -> None:
    elsewhere, environ = copied(planned)
    workers.start(project=elsewhere / "project", env=environ)
    folder = elsewhere / "project/.ai/state/threads"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("in the way")
    async with planned.open(state=state) as rye:
        thread = await rye.start("directive:acme/short", target="remote:queue")
        said = await anyio.to_thread.run_sync(partial(workers.log.get, timeout=30))
        assert "can't be ended now" in said
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
            for table in ("workflow_status", "workflow_input"):
                server.execute(
                    f"DELETE FROM {schema}_dbos.{table} WHERE workflow_uuid = %s",
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


async def test_a_run_that_the_audit_log_refuses_is_not_left_for_workers(
    planned: PlannedWorkspace, state: str, workers: Workers
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
        workers.start()
        again = await rye.start("directive:acme/short", target="remote:queue")
        with anyio.fail_after(30):
            assert (await again.result()).success
    assert (planned.root / "marks").read_text() == "short\n"


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
            # Its row and its place in the queue are one transaction: neither is there.
            assert [one.status for one in await rye.threads.list(all=True)] == ["cancelled"]
            server.execute(f"ALTER TABLE {schema}_dbos.moved RENAME TO workflow_status")
        again = await rye.start(
            "directive:acme/short", target="remote:queue", idempotency_key="once"
        )
        workers.start()
        with anyio.fail_after(30):
            assert (await again.result()).success
    assert (planned.root / "marks").read_text() == "short\n"
