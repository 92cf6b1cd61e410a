"""Threads whose rows are on a PostgreSQL server: run, listed and resumed by several processes."""

import json
import signal
import subprocess
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import BudgetError, ConfigError, InputError, StateError, StateUnreachable
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.model import Cost, Predecessor
from ryecore.state.owners import moment
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.budget_functions import BUDGET_FUNCTIONS
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.schema import MIGRATIONS
from ryecore.state.store import ThreadStore
from tests.postgres import needs_server
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server, pytest.mark.usefixtures("forked_walkers")]

HOST = """
import sys, anyio
from pathlib import Path
from typing import Any
from ryecore import Rye
from tests.thread_host import _deps
root = Path(sys.argv[1])
async def main():
    async with Rye.open(root / 'project', user_space=root / 'user', **_deps(root)) as rye:
        await rye.execute('directive:acme/work', thread='fork')
anyio.run(main)
"""
OPENING = """
import sys
from pathlib import Path
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
print('ready', flush=True)
sys.stdin.readline()
store = ThreadStore.open(Path(sys.argv[1]), Path(sys.argv[2]), state=sys.argv[3])
print(run_blocking(store.registry.count_threads()))
"""
PASSWORD = "p4ss-0f-Nobody"


@pytest.fixture
def planned(workspace: Workspace, state: str) -> PlannedWorkspace:
    """A workspace whose processes keep their state on the server."""
    workspace.environ["RYE_STATE"] = state
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}], ["gate", {"name": "work"}])
    return planned


def rye(planned: PlannedWorkspace, *arguments: str, **environ: str) -> str:
    """Run a command of `rye` in the project, and give back what it prints."""
    command = ["ryecore.cli", *arguments, "--project", str(planned.workspace.project)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with planned.fork(*command, env={**planned.environ, **environ}, **pipes) as process:
        printed, _ = process.communicate()
    return printed.decode()


async def test_a_thread_is_listed_elsewhere_and_resumed_after_a_kill(
    planned: PlannedWorkspace, state: str, other: Any
) -> None:
    host = planned.fork(HOST, str(planned.root))
    with anyio.fail_after(60):
        await planned.begun("work")
    listed = json.loads(rye(planned, "threads", "list", "--json"))["threads"]
    assert [(one["status"], one["pid"]) for one in listed] == [("running", host.pid)]
    host.send_signal(signal.SIGKILL)
    host.wait()
    assert rye(planned, "threads", "list", RYE_STATE="").startswith("no running threads")

    planned.allow("work")
    async with planned.open(recover=True, state=state) as opened:
        [recovered] = opened.recovered
        assert recovered.run is not None
        assert (await recovered.run.result()).success
        assert (planned.root / "marks").read_text() == "once\n"
        for by in ("label", "label:tenant", "model", "day"):
            await opened.costs(by=by, labels={"tenant": "acme"})
        [costs] = await opened.costs(by="directive")
        assert (costs.name, costs.threads) == ("directive:acme/work", 2)
        ended = {one.status for one in await opened.threads.list(all=True)}
        assert ended == {"error", "completed"}
    doctor = rye(planned, "doctor")
    assert "Threads in it: 2." in doctor
    assert "Each has a living process." in doctor
    other.execute("UPDATE threads SET completed_at = '2026-01-01T00:00:00.000Z'")
    (written,) = other.execute("SELECT sum(length) FROM logs").fetchone()
    pruned = json.loads(rye(planned, "threads", "prune", "--older-than", "1d", "--json"))
    assert (pruned["status"], pruned["threads"]) == ("success", 2)
    assert pruned["size_bytes"] > written > 1000  # what is on this disk, too
    for table in ("logs", "records", "thread_files"):
        assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert json.loads(rye(planned, "threads", "list", "--all", "--json"))["threads"] == []


async def test_a_thread_takes_few_transactions(
    planned: PlannedWorkspace, state: str, other: Any
) -> None:
    planned.write("short", ["mark", {"text": "once"}])
    async with planned.open(state=state) as opened:

        async def written() -> int:
            before = number()
            assert (await opened.execute("directive:acme/short", thread="fork")).success
            return number() - before - 1

        def number() -> int:
            return int(other.execute("SELECT CAST(pg_current_xact_id() AS text)").fetchone()[0])

        await written()  # others use the server, too, so the least of some runs counts
        least = min([await written() for _ in range(5)])
    # Its row, its claim; its log with a hold, the intent of a call, the next hold; its end.
    assert least <= 6


async def test_whoever_gets_a_thread_or_runs_for_it_finds_its_file_and_log(
    planned: PlannedWorkspace, state: str, other: Any
) -> None:
    planned.write("short", ["mark", {"text": "once"}])
    action = {"primary": "execute", "item_type": "directive", "item_id": "acme/short", "params": {}}
    hook = {"id": "first", "event": "thread_started", "action": action}
    planned.workspace.write("config/agent/hooks.yaml", json.dumps({"hooks": [hook]}))
    planned.write("above", ["mark", {"text": "twice"}])
    async with planned.open(state=state) as opened:
        thread = await opened.start("directive:acme/above")
        for table in ("logs", "records", "thread_files"):
            query = f"SELECT count(*) FROM {table} WHERE thread_id = %s"
            assert other.execute(query, (thread.thread_id,)).fetchone() == (1,)
        assert (await thread.result()).success
        done = await opened.execute("directive:acme/above", thread="fork")
    below = "SELECT status FROM threads WHERE parent_id = %s"  # it has read the file of that one
    for thread_id in (thread.thread_id, done.to_dict()["thread_id"]):
        assert other.execute(below, (thread_id,)).fetchall() == [("completed",)]


async def test_a_detached_thread_keeps_its_state_there(
    planned: PlannedWorkspace, state: str
) -> None:
    planned.allow("work")
    async with planned.open(state=state) as opened:
        started = await opened.execute("directive:acme/work", thread="fork", async_=True)
        ended = await opened.threads.wait(started.to_dict()["thread_id"], timeout_s=60)
    assert ended.status == "completed"
    assert not list((planned.workspace.project / ".ai/state").rglob("threads.db"))


async def test_a_turn_waits_for_no_other_turn(store: ThreadStore, other: Any) -> None:
    await store.registry.register("a", "directive:acme/x")
    await store.ledger.register("a", Amount(1000, 1000))
    await store.ledger.hold("a", 1, 1, Amount(10, 10), head=(1, "x"))
    lock = store._database.lock  # type: ignore[attr-defined]
    other.execute("SELECT pg_advisory_lock_shared(%s, %s)", lock)  # as another turn does
    settlement = Settlement(1, 1, Amount(10, 10), Amount(4, 5), "counted")
    with anyio.fail_after(10):
        (settled,), refused = await store.ledger.settle_and_hold(
            "a", [settlement], 2, 1, Amount(20, 20), snapshot=Cost(turns=1), head=(2, "y")
        )
    assert (settled.overspent, refused) == (False, None)
    account = await store.ledger.account("a")
    assert (account.own, account.held) == (Amount(4, 5), Amount(20, 20))
    row = await store.registry.get_thread("a")
    assert (row.cost, row.transcript_head) == (Cost(turns=1), (2, "y"))


async def test_trees_are_written_beside_each_other_and_one_by_one_each(
    store: ThreadStore, state: str
) -> None:
    registry, ledger = store.registry, store.ledger
    for root in ("a", "b"):
        await registry.register(root, "directive:acme/x")
        await ledger.register(root, Amount(1000, 1000))
    await registry.register("a-child", "directive:acme/x", "a")
    await registry.register("a-after", "directive:acme/x", follows=Predecessor("a", "a"))
    address, _, schema = state.partition("&schema=")
    numbers = store._database.tree_lock  # type: ignore[attr-defined]
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(address, options=f"-c search_path={schema}") as writer:
        writer.execute("SELECT lock_tree(%s, %s, %s, 'a', FALSE)", numbers)  # as a writer of it
        with anyio.fail_after(10):
            await ledger.hold("b", 1, 1, Amount(10, 10))
            await registry.register("c", "directive:acme/x")
        async with anyio.create_task_group() as group:
            group.start_soon(ledger.hold, "a", 1, 1, Amount(10, 10))
            group.start_soon(registry.mint_token, "a-child")
            group.start_soon(registry.set_head, "a-after", (1, "x"))
            with psycopg.connect(address, autocommit=True) as watching, anyio.fail_after(10):
                while watching.execute(waiting).fetchone() != (3,):
                    await anyio.sleep(0.01)
            writer.commit()
    assert (await ledger.account("a")).held == Amount(10, 10)
    with pytest.raises(RuntimeError, match="beyond the tree"):
        await registry.together(lambda: registry.request_cancel("a"), tree="a")


async def test_a_statement_that_fails_unlooked_at_undoes_its_transaction(
    store: ThreadStore,
) -> None:
    await store.registry.register("a", "directive:acme/x")
    await store.ledger.register("a", Amount(1000, 1000))
    database = store._database

    def fail() -> None:
        with database.write("a") as run:
            run.execute("UPDATE threads SET turns = ? WHERE thread_id = ?", (7, "a"))
            run.execute("UPDATE accounts SET spend_held = ? WHERE thread_id = ?", (-1, "a"))
            run.execute("UPDATE threads SET turns = ? WHERE thread_id = ?", (8, "a"))

    with pytest.raises(StateError, match="violates check"):
        fail()
    assert (await store.registry.get_thread("a")).cost.turns == 0
    with database.write("a") as run:
        changed = run.execute("UPDATE threads SET turns = ? WHERE thread_id = ?", (9, "a"))
        missed = run.execute("UPDATE threads SET turns = ? WHERE thread_id = ?", (9, "b"))
        assert (changed.rowcount, missed.rowcount) == (1, 0)
    assert (await store.registry.get_thread("a")).cost.turns == 9


@pytest.mark.parametrize("looks", [False, True])
async def test_a_connection_lost_within_a_transaction_is_one_error_and_no_log_line(
    store: ThreadStore, other: Any, caplog: pytest.LogCaptureFixture, looks: bool
) -> None:
    await store.registry.register("a", "directive:acme/x")

    def lose() -> None:
        with store._database.write("a") as run:
            ((pid,),) = run.execute("SELECT pg_backend_pid()")
            changed = run.execute("UPDATE threads SET turns = ? WHERE thread_id = ?", (7, "a"))
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            if looks:
                assert changed.rowcount

    with pytest.raises(StateUnreachable):
        lose()
    assert [one.getMessage() for one in caplog.records] == []
    assert (await store.registry.get_thread("a")).cost.turns == 0


async def test_statements_that_the_driver_has_dropped_are_prepared_again(
    store: ThreadStore,
) -> None:
    registry, ledger = store.registry, store.ledger
    await registry.register("a", "directive:acme/x")
    await ledger.register("a", Amount(1000, 1000))
    for number in range(12):  # the driver drops all that is prepared after a rollback
        await ledger.hold("a", number, 1, Amount(1, 1))
        with pytest.raises(InputError):
            await registry.register(f"b{number}", "directive:acme/x", model="a\0b")
        with pytest.raises(BudgetError):
            await ledger.hold("a", number, 1, Amount(2, 2))
        assert (await ledger.account("a")).held == Amount(number + 1, number + 1)
    label = 'eins, "zwei" {3} \\ \u00e4\u4e2d'
    made = await registry.register("c", "directive:acme/x", labels={"name": label})
    assert made == await registry.get_thread("c")
    assert made.labels == {"name": label}


async def test_a_lease_follows_the_clock_of_the_server(
    store: ThreadStore,
    other: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    await store.registry.register("a", "directive:acme/x")
    row = await store.registry.get_thread("a")
    left = other.execute(
        "SELECT lease_until - extract(epoch FROM clock_timestamp()) FROM threads"
    ).fetchone()
    assert left is not None
    assert 50 < float(left[0]) < 70  # type: ignore[arg-type]
    assert 50 < row.lease_until - moment().unix_s < 70


async def test_connections_that_the_server_closed_are_replaced(
    store: ThreadStore, other: Any
) -> None:
    await store.registry.register("a", "directive:acme/x")
    other.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'ryecore'"
    )
    assert (await store.registry.get_thread("a")).status == "created"


async def test_an_address_that_leads_nowhere_tells_no_password(
    workspace: Workspace, state: str, other: Any
) -> None:
    folder = state.partition("host=")[2].partition("&")[0]
    other.execute("DROP ROLE IF EXISTS guarded")
    other.execute("CREATE ROLE guarded LOGIN PASSWORD 'another'")
    wrong = f"postgresql://guarded:{PASSWORD}@/postgres?host={folder}"
    away = f"postgresql://someone:{PASSWORD}@127.0.0.1:1/none"
    missing = f"postgresql://tester:{PASSWORD}@/missing?host={folder}"
    nexts = {wrong: "PGPASSWORD", away: "psql", missing: "createdb"}
    for address, hint in nexts.items():
        async with workspace.open(state=address) as opened:
            assert PASSWORD not in repr(opened)
            with pytest.raises(StateUnreachable) as refused:
                await opened.threads.list()
        told = "".join(traceback.format_exception(refused.value))
        assert PASSWORD not in told
        assert hint in str(refused.value.next_step)
    unreadable = f"postgresql://u:{PASSWORD}@[/d"
    for bad in (f"mysql://u:{PASSWORD}@h/d", unreadable, f"{away}?x={PASSWORD}"):
        with pytest.raises(ConfigError) as misread:
            await workspace.open(state=bad).threads.list()
        assert PASSWORD not in "".join(traceback.format_exception(misread.value))


async def test_a_newer_schema_is_left_alone(
    store: ThreadStore, workspace: Workspace, state: str,
    other: Any,
) -> None:  # fmt: skip
    other.execute("UPDATE ryecore_schema SET version = 99")
    with pytest.raises(StateError, match="newer ryecore") as refused:
        ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=state)
    assert refused.value.next_step == "Upgrade ryecore."


async def test_processes_of_an_earlier_version_go_on_after_the_schema_is_upgraded(
    store: ThreadStore, other: Any
) -> None:
    """They call functions of these names, and know no error by which one leaves a fast path."""
    registry, ledger = store.registry, store.ledger
    await registry.register("r", "directive:acme/x")
    await ledger.register("r", Amount(100, 100))
    await registry.register("c", "directive:acme/x", "r")
    shares = {"reserves_spend": False, "reserves_tokens": False}
    await ledger.reserve("c", "r", Amount(100, 100), **shares)
    await ledger.hold("r", 1, 1, Amount(80, 80))
    hold = "SELECT hold_alone(%s, 2, 1, 50, 50, 0, 0, NULL, NULL)"  # more than the root has left
    assert other.execute(hold, ("c",)).fetchone() == (False,)
    settle = "SELECT settle_alone(%s, 1, 1, 'counted', 80, 80, 0, 0, NULL, NULL)"
    assert other.execute(settle, ("r",)).fetchone() == (0,)
    assert (await ledger.account("r")).own == Amount(80, 80)


async def test_an_upgrade_and_a_settlement_of_an_earlier_version_wait_in_no_circle(
    workspace: Workspace, state: str, other: Any
) -> None:
    """The settlement changes charges before accounts, and the upgrade the other way round."""
    schema, version = state.rpartition("=")[2], MIGRATIONS.index(BUDGET_FUNCTIONS)
    other.execute(f"CREATE SCHEMA {schema}; {';'.join(MIGRATIONS[:version])}")
    other.execute(f"CREATE TABLE ryecore_schema AS SELECT {version}::bigint AS version")
    tree_lock = PostgresDatabase(PostgresAddress.parse(state)).tree_lock
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ %s"
    look_anew = "SELECT pg_stat_clear_snapshot()"
    with ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute("SELECT lock_tree(%s, %s, %s, 'a', TRUE)", tree_lock)
        other.execute("UPDATE charges SET spend = 1 WHERE thread_id = 'a'")
        upgrading = pool.submit(_opened, workspace, state)
        with anyio.fail_after(20):
            while not other.execute(waits, ("ALTER TABLE accounts|advisory",)).fetchone()[0]:
                await anyio.sleep(0.01)
                other.execute(look_anew)
        other.execute("UPDATE accounts SET spend_own = 1 WHERE thread_id = 'a'")
        other.execute("COMMIT")
        assert upgrading.result() == len(MIGRATIONS)


async def test_a_row_names_the_machine_that_claimed_it_without_a_statement_more(
    store: ThreadStore, state: str, other: Any
) -> None:
    """A process of an earlier version doesn't say its machine, and one of a queue comes later."""
    register = "INSERT INTO threads (thread_id, item_id, root_id, created_at, updated_at, queue) {}"
    for thread_id in ("old", "queued"):
        row = f"VALUES ('{thread_id}', 'x', '{thread_id}', '2026-01-01', '2026-01-01', 'default')"
        other.execute(register.format(row))
    claim = "UPDATE threads SET status = 'running', boot_id = %s, pid_namespace = 1, pid = 2,"
    claim += " start_ticks = 3 WHERE thread_id = %s"
    other.execute(claim, ("boot", "old"))
    settings = "-c ryecore.boot=boot -c ryecore.host=gpu\\ 7"
    address, _, schema = state.partition("&schema=")
    path = f"-c search_path={schema} {settings}"
    with psycopg.connect(address, autocommit=True, options=path) as elsewhere:
        elsewhere.execute(claim, ("boot", "queued"))
        made = register.format("VALUES ('made', 'x', 'made', '2026-01-01', '2026-01-01', NULL)")
        elsewhere.execute(made)
        elsewhere.execute(claim, ("another boot", "made"))
    hosts = [(await store.registry.get_thread(one)).host for one in ("old", "queued", "made")]
    assert hosts == [None, "gpu 7", None]


async def test_text_that_the_server_cannot_hold_is_refused(store: ThreadStore) -> None:
    await store.registry.register("a", "directive:acme/x")
    with pytest.raises(InputError, match="NUL"):
        await store.registry.set_limits("a", {}, model="no\0model")
    await store.registry.set_limits("a", {"note": "\0"}, model="model")
    assert (await store.registry.get_thread("a")).limits == {"note": "\0"}


async def test_machine_durability_is_refused_with_a_server(
    workspace: Workspace, state: str
) -> None:
    with pytest.raises(ConfigError, match="durability"):
        await workspace.open(state=state, durability="machine").threads.list()


async def test_another_machine_sees_a_thread_and_ends_it_but_lacks_its_run_key(
    planned: PlannedWorkspace, state: str, tmp_path: Path
) -> None:
    host = planned.fork(HOST, str(planned.root))
    with anyio.fail_after(60):
        await planned.begun("work")
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Workspace(tmp_path / "elsewhere")
    async with elsewhere.open(state=state) as opened:
        [running] = await opened.threads.list()
        assert running.status == "running"
        shown = await opened.threads.show(running.thread_id)
        assert shown.record.status == "running"
        await opened.threads.cancel(running.thread_id)
        with anyio.fail_after(20):  # by notices: a wait alone looks again after a minute
            ended = await opened.threads.wait(running.thread_id)
        assert ended.status == "cancelled"
        with pytest.raises(StateError, match=r"run key .* isn't known here") as refused:
            await opened.threads.resume(running.thread_id)
        assert refused.value.next_step
    host.wait()


@pytest.mark.parametrize("is_new", [True, False])
async def test_of_eight_processes_that_open_a_schema_at_once_one_upgrades_it(
    planned: PlannedWorkspace, state: str, other: Any, is_new: bool
) -> None:
    workspace = planned.workspace
    schema = state.rpartition("=")[2]
    if not is_new:
        other.execute(f"CREATE SCHEMA {schema}; {MIGRATIONS[0]}")
        other.execute("CREATE TABLE ryecore_schema AS SELECT 1::bigint AS version")
        other.execute(
            "INSERT INTO threads (thread_id, item_id, root_id, created_at, updated_at)"
            " VALUES ('old', 'directive:acme/x', 'old', '2026-01-01', '2026-01-01')"
        )
    workspace.path("", "user").mkdir(parents=True, exist_ok=True)
    ThreadStore.open(workspace.path(""), workspace.path("", "user")).close()  # the folder alone
    arguments = (str(workspace.path("")), str(workspace.path("", "user")), state)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    opening = [planned.fork(OPENING, *arguments, **pipes) for _ in range(8)]
    for one in opening:
        assert one.stdout.readline() == b"ready\n"
    for one in opening:
        one.stdin.write(b"go\n")
        one.stdin.flush()
    found = [one.communicate()[0].decode().strip() for one in opening]
    assert found == ["0" if is_new else "1"] * 8
    assert other.execute("SELECT version FROM ryecore_schema").fetchall() == [(len(MIGRATIONS),)]
    with ThreadPoolExecutor(8) as pool:  # and now nobody has anything to do
        assert {*pool.map(lambda _: _opened(workspace, state), range(8))} == {len(MIGRATIONS)}


def _opened(workspace: Workspace, state: str) -> int:
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=state)
    version: int = store._database.version()  # type: ignore[attr-defined]
    store.close()
    return version
