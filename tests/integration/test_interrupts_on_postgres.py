"""An interrupted statement on a PostgreSQL server isn't waited for, and nothing is half done."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import StateUnreachable
from ryecore.policy.budget import Amount
from ryecore.runs import lifecycle
from ryecore.state.postgres import pool, session
from ryecore.state.store import ThreadStore
from tests.cancelling import cancelled_at
from tests.postgres import cutting, losing_answers, needs_server, own_schema
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, pytest.mark.both_loops, needs_server]

HELD = Amount(10, 10)
WAITING = (
    "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = %s"
)
Operation = Callable[[], Coroutine[Any, Any, object]]
Cancel = Callable[[Operation], Awaitable[None]]


@pytest.fixture
def state(postgres_address: str) -> str:
    """The address of a schema of the test's own, whose connections have a name of their own."""
    schema = own_schema(postgres_address)
    return f"{schema}&application_name={schema.rpartition('=')[2]}"


class Server:
    """Somebody else's connection, which has locked what an operation needs."""

    def __init__(self, state: str) -> None:
        address, _, named = state.partition("&schema=")
        self._name = named.partition("&")[0]
        path = f"-c search_path={self._name}"
        self.connection = psycopg.connect(address, autocommit=True, options=path)

    def waiting(self) -> list[int]:
        self.connection.execute("SELECT pg_stat_clear_snapshot()")
        return [pid for (pid,) in self.connection.execute(WAITING, (self._name,))]

    @asynccontextmanager
    async def locking(self, lock: str) -> AsyncIterator[None]:
        """Lock something within the block."""
        with self.connection.transaction():
            self.connection.execute(lock)
            yield

    async def until(self, is_waiting: bool) -> None:
        """Wait until a statement of the test waits for the lock, or none does."""
        with anyio.fail_after(10):
            while bool(self.waiting()) != is_waiting:
                await anyio.sleep(0.01)


@pytest.fixture
def server(state: str) -> Iterator[Server]:
    """The server, of whose locks an operation waits."""
    opened = Server(state)
    yield opened
    opened.connection.close()


@pytest.fixture
def cancelled(server: Server, anyio_backend_name: str) -> Cancel:
    """Run an operation, and cancel it once it waits: by its scope, and by asyncio's `cancel()`."""

    async def by_scope(operation: Operation) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(operation)
            await server.until(is_waiting=True)
            with anyio.fail_after(5):
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await server.until(is_waiting=False)

    async def by_task(operation: Operation) -> None:
        task = asyncio.ensure_future(operation())
        await server.until(is_waiting=True)
        task.cancel()
        with anyio.fail_after(5), pytest.raises(asyncio.CancelledError):
            await task
        await server.until(is_waiting=False)

    async def both_ways(operation: Operation) -> None:
        await by_scope(operation)
        if anyio_backend_name == "asyncio":
            await by_task(operation)

    return both_ways


async def test_a_cancelled_call_of_a_worker_thread_ends_its_statement(
    store: ThreadStore, server: Server, cancelled: Cancel
) -> None:
    await store.registry.register("a", "directive:acme/a")
    async with server.locking("LOCK TABLE threads IN ACCESS EXCLUSIVE MODE"):
        await cancelled(lambda: store.registry.get_thread("a"))
        await cancelled(lambda: store.registry.request_cancel("a"))
    assert not (await store.registry.get_thread("a")).cancel_requested


async def test_a_cancelled_transaction_is_undone(
    store: ThreadStore, server: Server, cancelled: Cancel
) -> None:
    await store.registry.register("a", "directive:acme/a")

    async def both() -> None:
        async def work() -> None:
            await store.registry.request_cancel("a")
            await store.ledger.register("a", Amount(100, 100))

        await store.registry.together(work)

    async with server.locking("LOCK TABLE accounts IN EXCLUSIVE MODE"):
        await cancelled(both)
    assert not (await store.registry.get_thread("a")).cancel_requested
    await both()
    assert (await store.ledger.account("a")).ceiling == Amount(100, 100)


async def test_a_cancelled_statement_of_the_loop_changes_nothing_and_keeps_the_records_before_it(
    store: ThreadStore, server: Server, cancelled: Cancel
) -> None:
    registry, ledger = store.registry, store.ledger
    for thread_id in ("before", "a"):  # the statements of the second are prepared
        await registry.register(thread_id, "directive:acme/a")
        await registry.claim(thread_id)
        await ledger.register(thread_id, Amount(1000, 1000))
        await ledger.hold(thread_id, 1, 1, HELD)
    log = await store.records.create("a")
    log.append("step", {"n": 0})
    await log.write_ahead()
    async with server.locking("UPDATE accounts SET spend_own = spend_own"):
        await cancelled(lambda: ledger.hold("a", 2, 1, HELD))
    assert (await ledger.account("a")).held == HELD
    await ledger.hold("a", 2, 1, HELD)
    head = await log.checkpoint(1)
    await log.close()
    assert [one.payload.get("n") async for one in store.records.read("a")] == [0, None]
    assert (await store.records.verify("a", (head.offset, head.digest), ended=True)).ok


async def test_a_connection_of_a_cancelled_statement_is_not_used_again(
    store: ThreadStore, server: Server
) -> None:
    """The server may hear of the cancellation once the next statement runs."""
    await store.registry.register("a", "directive:acme/a")
    pids: list[int] = []
    async with (
        server.locking("LOCK TABLE threads IN ACCESS EXCLUSIVE MODE"),
        anyio.create_task_group() as group,
    ):
        group.start_soon(store.registry.get_thread, "a")
        await server.until(is_waiting=True)
        pids += server.waiting()
        group.cancel_scope.cancel()
    lives = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
    with anyio.fail_after(10):
        while server.connection.execute(lives, pids).rowcount:
            await anyio.sleep(0.01)


async def test_a_server_that_cannot_be_asked_to_cancel_is_left(
    workspace: Workspace,
    state: str,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_CANCEL_S", 0.2)
    folder = Path(state.partition("host=")[2].partition("&")[0])
    with cutting(folder, tmp_path / "between") as cut:
        address = state.replace(str(folder), str(tmp_path / "between"))
        user = workspace.path("", "user")
        store = ThreadStore.open(workspace.path(""), user, state=address)
        await store.registry.register("a", "directive:acme/a")
        async with (
            server.locking("LOCK TABLE threads IN ACCESS EXCLUSIVE MODE"),
            anyio.create_task_group() as group,
        ):
            group.start_soon(store.registry.get_thread, "a")
            await server.until(is_waiting=True)
            cut.set()
            group.cancel_scope.cancel()
        cut.clear()
        assert (await store.registry.get_thread("a")).status == "created"
        store.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_ctrl_c_ends_a_command_that_waits_for_the_server(
    workspace: Workspace, state: str, server: Server
) -> None:
    workspace.environ["RYE_STATE"] = state
    planned = PlannedWorkspace(workspace)
    workspace.path("", "user").mkdir(parents=True, exist_ok=True)
    ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=state).close()
    command = ("ryecore.cli", "threads", "list", "--project", str(workspace.project))
    async with server.locking("LOCK TABLE threads IN ACCESS EXCLUSIVE MODE"):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with planned.fork(*command, env=planned.environ, **pipes) as process:
            await server.until(is_waiting=True)
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=10)  # the server would wait for 30 s
    assert (process.returncode, printed.decode().strip()) == (1, "Aborted!")
    await server.until(is_waiting=False)


async def test_a_statement_is_finished_however_often_its_caller_is_cancelled(
    store: ThreadStore,
) -> None:
    registry = store.registry
    await registry.register("before", "directive:acme/a")
    await registry.get_thread("before")
    with anyio.fail_after(10):
        assert await cancelled_at(lambda: registry.register("a", "directive:acme/a"), 1)
        assert await cancelled_at(lambda: registry.request_cancel("a"), 1)
        assert await cancelled_at(lambda: registry.get_thread("a"), 1)
    assert (await registry.get_thread("a")).status == "created"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("table", ["threads", "accounts"])
async def test_a_run_that_is_registered_or_begun_for_a_cancelled_caller_is_ended(
    workspace: Workspace, state: str, server: Server, table: str
) -> None:
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}])
    async with planned.open(state=state) as rye:
        assert (await rye.execute("directive:acme/work", thread="fork")).status == "success"
        async with server.locking(f"LOCK TABLE {table} IN EXCLUSIVE MODE"):
            task = asyncio.ensure_future(rye.execute("directive:acme/work", thread="fork"))
            await server.until(is_waiting=True)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await rye.threads.list() == ()
        ended = {one.status for one in await rye.threads.list(all=True)}
        assert ended == {"completed", "cancelled"}


@pytest.mark.parametrize(("table", "key"), [("threads", None), ("accounts", "once")])
async def test_a_run_is_ended_where_the_answer_that_it_is_registered_or_begun_was_lost(
    workspace: Workspace,
    state: str,
    server: Server,
    table: str,
    key: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "_MAX_OUTAGE_S", 0.1)
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}])
    folder = state.partition("host=")[2].partition("&")[0]
    with losing_answers(Path(folder), tmp_path / "between") as lose:
        through = state.replace(folder, str(tmp_path / "between"))
        async with planned.open(state=through) as rye:
            work = partial(rye.execute, "directive:acme/work", thread="fork")
            assert (await work()).status == "success"

            async def fail() -> None:
                with pytest.raises(StateUnreachable):
                    await work(idempotency_key=key)

            async with (
                anyio.create_task_group() as group,
                server.locking(f"LOCK TABLE {table} IN EXCLUSIVE MODE"),
            ):
                group.start_soon(fail)
                await server.until(is_waiting=True)
                lose(True)
            lose(False)
    async with planned.open(state=state) as rye:
        assert await rye.threads.list() == ()
        ended = {one.status for one in await rye.threads.list(all=True)}
        assert ended == {"completed", "error"}
        again = await rye.execute("directive:acme/work", thread="fork", idempotency_key=key)
        assert again.status == "success"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_launched_thread_is_ended_where_the_answer_that_it_is_registered_was_lost(
    workspace: Workspace, state: str, server: Server, tmp_path: Path
) -> None:
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}])
    planned.write("launched", ["mark", {"text": "once"}])
    folder = state.partition("host=")[2].partition("&")[0]
    with losing_answers(Path(folder), tmp_path / "between") as lose:
        through = state.replace(folder, str(tmp_path / "between"))
        async with planned.open(state=through) as rye:
            assert (await rye.execute("directive:acme/work", thread="fork")).status == "success"
            launch = partial(rye.execute, "directive:acme/launched", thread="fork", async_=True)
            async with server.locking("LOCK TABLE threads IN EXCLUSIVE MODE"):
                task = asyncio.ensure_future(launch())
                await server.until(is_waiting=True)
                (pid,) = server.waiting()
                lose(True)
            lives = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
            with anyio.fail_after(10):
                while server.connection.execute(lives, (pid,)).rowcount:
                    await anyio.sleep(0.01)
            lose(False)
            with pytest.raises(StateUnreachable):
                await task
            assert await rye.threads.list() == ()
            ended = {one.status for one in await rye.threads.list(all=True)}
            assert ended == {"completed", "error"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_thread_that_is_interrupted_before_it_begins_leaves_its_end_to_others(
    workspace: Workspace, state: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_UNBEGUN_S", 0.1)
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}])
    async with planned.open(state=state) as rye:
        assert (await rye.execute("directive:acme/work", thread="fork")).status == "success"
        async with server.locking("LOCK TABLE accounts IN EXCLUSIVE MODE"):
            task = asyncio.ensure_future(rye.execute("directive:acme/work", thread="fork"))
            await server.until(is_waiting=True)
            task.cancel()
            with anyio.fail_after(10), pytest.raises(asyncio.CancelledError):
                await task
        (left,) = await rye.threads.list()
        assert left.status == "created"
        assert (await rye.threads.cancel(left.thread_id)).status == "cancelled"
