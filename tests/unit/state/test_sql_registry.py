"""The registry in SQLite: leases, rows of older versions, and damaged rows."""

import os
import sqlite3
from pathlib import Path

import anyio
import pytest
from attrs import evolve

from ryecore.errors import StateError
from ryecore.lillux import current_process
from ryecore.lillux.watching import watch
from ryecore.state.database import Database
from ryecore.state.owners import LEASE_S, Moment, is_abandoned, moment
from ryecore.state.registry import ThreadRegistry
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.workspace import Workspace


def registry_in(folder: Path) -> SqlRegistry:
    return SqlRegistry(Database(folder / "threads.db", MIGRATIONS))


@pytest.fixture
def registry(tmp_path: Path) -> SqlRegistry:
    return registry_in(tmp_path)


def test_the_pid_can_be_told_until_somebody_claims(registry: SqlRegistry) -> None:
    run_blocking(registry.register("a", "tool:x"))
    other = evolve(current_process(), pid=4_000_000)
    run_blocking(registry.assign_process("a", other))
    assert run_blocking(registry.get_thread("a")).pid == 4_000_000
    run_blocking(registry.claim("a"))
    run_blocking(registry.assign_process("a", other))
    assert run_blocking(registry.get_thread("a")).pid == os.getpid()


def test_a_chain_that_leads_back_to_itself_ends(tmp_path: Path) -> None:
    database = Database(tmp_path / "threads.db", MIGRATIONS)
    registry = SqlRegistry(database)
    run_blocking(registry.register("a", "directive:x"))
    run_blocking(registry.register("b", "directive:x"))
    with database.write() as run:  # no operation of the registry makes such a chain
        run.execute("UPDATE threads SET continuation_of = 'b', continuation_thread_id = 'b'")
        run.execute("UPDATE threads SET continuation_of = 'a' WHERE thread_id = 'b'")
    assert {one.thread_id for one in run_blocking(registry.get_chain("a"))} == {"a", "b"}


def test_a_stranger_is_dead_only_when_its_lease_is_over(registry: SqlRegistry) -> None:
    stranger = evolve(current_process(), boot_id="another boot", pid=1)
    run_blocking(registry.register("a", "tool:x"))
    run_blocking(registry.claim("a", stranger))
    record = run_blocking(registry.get_thread("a"))
    now = moment()
    assert LEASE_S - 5 < record.lease_until - now.unix_s <= LEASE_S
    end = Moment(record.lease_until, record.lease_machine_s)
    assert not is_abandoned(record, end.plus(-1))
    assert is_abandoned(record, end.plus(1))
    run_blocking(registry.renew("a", record.fence))
    assert run_blocking(registry.get_thread("a")).lease_until >= record.lease_until


def test_who_renews_meanwhile_is_not_declared_dead(tmp_path: Path) -> None:
    database = Database(tmp_path / "threads.db", MIGRATIONS)
    registry = SqlRegistry(database)
    run_blocking(registry.register("a", "tool:x"))
    fence = run_blocking(
        registry.claim("a", evolve(current_process(), boot_id="another boot", pid=1))
    )
    with database.write() as run:
        run.execute("UPDATE threads SET lease_until = 0")
    seen = run_blocking(registry.list_active())
    run_blocking(registry.renew("a", fence))
    assert run_blocking(registry.settle_abandoned(seen)) == ()
    with database.write() as run:
        run.execute("UPDATE threads SET lease_until = 0")
    assert run_blocking(registry.settle_abandoned(run_blocking(registry.list_active()))) == ("a",)


def test_an_id_is_found_though_many_others_begin_with_it(registry: SqlRegistry) -> None:
    for number in range(12):
        run_blocking(registry.register(f"x-{number}", "tool:x"))
    run_blocking(registry.register("x", "tool:x"))
    assert run_blocking(registry.find_by_prefix("x"))[0].thread_id == "x"


def test_a_living_owner_needs_no_lease(registry: SqlRegistry) -> None:
    run_blocking(registry.register("a", "tool:x"))
    run_blocking(registry.claim("a"))
    assert not is_abandoned(run_blocking(registry.get_thread("a")), moment().plus(10 * LEASE_S))


def tree(registry: ThreadRegistry) -> None:
    """Root r with a and b, a with a1, a1 with a2; and another root."""
    for name, parent in (
        ("r", None), ("a", "r"), ("b", "r"), ("a1", "a"), ("a2", "a1"), ("other", None),
    ):  # fmt: skip
        run_blocking(registry.register(name, "directive:x", parent))


def test_the_store_wakes_each_owner_and_ends_who_has_not_begun(workspace: Workspace) -> None:
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    tree(store.registry)
    for one in ("r", "a", "a1", "a2"):
        store.make_folder(one)
    for one in ("r", "a1"):
        run_blocking(store.registry.claim(one))
    watchers = {one: watch(store.folder_of(one)) for one in ("r", "a", "a1", "a2")}
    owners = watch(store.folder)
    assert run_blocking(store.cancel("r")).cancel_requested
    for watcher in (*watchers.values(), owners):
        assert anyio.run(watcher.changed, 0)
        watcher.close()
    found = {one: run_blocking(store.look(one)) for one in watchers}
    assert {one: row.status for one, row in found.items()} == {
        "r": "running", "a": "cancelled", "a1": "running", "a2": "cancelled",
    }  # fmt: skip
    assert run_blocking(store.look("b")).status == "cancelled"
    assert run_blocking(store.look("other")).status == "created"
    store.close()


def test_rows_of_an_older_version_get_their_root(tmp_path: Path) -> None:
    older = Database(tmp_path / "threads.db", MIGRATIONS[:1])
    with older.write() as run:
        for name, parent in (("r", None), ("a", "r"), ("a1", "a"), ("lost", "gone")):
            run.execute(
                "INSERT INTO threads (thread_id, item_id, parent_id, created_at, updated_at)"
                " VALUES (?, 'tool:x', ?, '', '')",
                (name, parent),
            )
    older.close()
    registry = SqlRegistry(Database(tmp_path / "threads.db", MIGRATIONS))
    roots = [run_blocking(registry.get_thread(one)).root_id for one in ("r", "a", "a1", "lost")]
    assert roots == ["r", "r", "r", "lost"]
    with sqlite3.connect(tmp_path / "threads.db") as bare:
        assert bare.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    bare.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE results SET body = '{'",
        "UPDATE threads SET limits = 'x'",
        "UPDATE threads SET limits = '[1]'",
        "UPDATE threads SET status = 'lost'",
    ],
)
def test_a_damaged_row_says_so(tmp_path: Path, damage: str) -> None:
    database = Database(tmp_path / "threads.db", MIGRATIONS)
    registry = SqlRegistry(database)
    run_blocking(registry.register("a", "directive:x", limits={"turns": 3}))
    run_blocking(registry.settle("a", "completed", {"text": "well"}))
    with database.write() as run:
        run.execute("PRAGMA ignore_check_constraints = ON")
        run.execute(damage)
    with pytest.raises(StateError, match="row of the thread a is damaged"):
        run_blocking(registry.get_result("a"))
