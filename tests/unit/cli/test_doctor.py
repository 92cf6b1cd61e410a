"""rye doctor: each trouble is found, named, and given a next step; nothing is changed."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.lillux.processes import current_process
from ryecore.state import health
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.unit.cli.conftest import Run
from tests.unit.state.test_waiting import HOLD_GATE, HOLD_SQLITE, holder
from tests.workspace import Workspace


def made_store(workspace: Workspace) -> Path:
    """A project's registry with one thread, closed; returns its file."""
    store = ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai")
    run_blocking(store.registry.register("t", "tool:x"))
    store.close()
    (database,) = workspace.project.rglob("threads.db")
    return database


def test_what_is_in_order_is_said_check_by_check(workspace: Workspace, run: Run) -> None:
    fresh = run("doctor", "--json")
    assert (fresh.code, fresh.json["status"]) == (0, "success")
    assert not workspace.path("state").exists()
    made_store(workspace)
    done = run("doctor", "--json")
    here = [one for one in done.json["checks"] if one["name"] != "system"]
    assert {one["verdict"] for one in here} == {"ok"}, done.out
    names = [one["name"] for one in done.json["checks"]]
    assert list(dict.fromkeys(names)) == [
        *("attestation", "store", "locks", "orphans", "disk", "permissions", "keys", "system"),
    ]
    assert "✓ store" in run("doctor").out


def test_state_on_a_disk_of_its_own_is_examined_too(workspace: Workspace, run: Run) -> None:
    here = workspace.project.stat().st_dev
    places = [Path("/"), Path("/dev/shm")]
    other = next((one for one in places if one.is_dir() and one.stat().st_dev != here), None)
    if other is None:
        pytest.skip("there is no second file system")
    workspace.path("tools").mkdir(parents=True)
    workspace.path("state").symlink_to(other)
    assert "The disk of the project's state has" in run("doctor").out


def damaged(workspace: Workspace, database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[1024:4096] = b"\xff" * 3072
    database.write_bytes(content)


def stray_rows(workspace: Workspace, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as opened:
        opened.execute("INSERT INTO results VALUES ('gone', '{}')")


def newer(workspace: Workspace, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as opened:
        opened.execute("PRAGMA user_version = 99")


def removed(workspace: Workspace, database: Path) -> None:
    store = ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai")
    run_blocking(run_blocking(store.records.create("t")).close())
    store.close()
    database.unlink()


def removed_and_made_anew(workspace: Workspace, database: Path) -> None:
    removed(workspace, database)
    ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai").close()


def open_to_others(workspace: Workspace, database: Path) -> None:
    database.chmod(0o644)


def open_run_key(workspace: Workspace, database: Path) -> None:
    (workspace.user / ".ai/state/keys/run_key.pem").chmod(0o644)


def attested_by_nobody(workspace: Workspace, database: Path) -> None:
    (workspace.path("state/threads") / "attested.json").write_text("{}")


@pytest.mark.parametrize(
    ("break_it", "check", "step"),
    [
        (damaged, "store", "restore a backup"),
        (stray_rows, "store", "restore a backup"),
        (newer, "store", "Upgrade"),
        (removed, "store", "restore a backup"),
        (removed_and_made_anew, "store", "restore a backup"),
        (open_to_others, "permissions", "chmod"),
        (open_run_key, "permissions", "chmod"),
        (attested_by_nobody, "attestation", "rye threads adopt"),
    ],
)
def test_a_problem_is_named_with_its_next_step(
    workspace: Workspace,
    run: Run,
    break_it: Callable[[Workspace, Path], None],
    check: str,
    step: str,
) -> None:
    break_it(workspace, made_store(workspace))
    done = run("doctor", "--json")
    assert (done.code, done.json["status"]) == (1, "error")
    steps = {one["name"]: one["next_step"] for one in done.json["checks"] if one["verdict"] != "ok"}
    assert step in steps[check]
    shown = run("doctor").out
    assert f"✗ {check}" in shown
    assert f"✓ {check}" not in shown


@pytest.mark.parametrize("script", [HOLD_GATE, HOLD_SQLITE], ids=["the gate", "SQLite's own"])
def test_a_stopped_process_that_holds_the_state_is_named(
    workspace: Workspace, run: Run, script: str
) -> None:
    database = made_store(workspace)
    path = database.with_name("threads.db.gate") if script == HOLD_GATE else database
    with holder(script, path, stopped=True) as pid:
        done = run("doctor")
    assert done.code == 1
    assert f"process {pid}" in done.out
    assert f"kill -CONT {pid}" in done.out


def test_of_ended_threads_no_lock_is_looked_for(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be ten thousand of them."""
    made_store(workspace)
    store = ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai")
    for number in range(5):
        run_blocking(store.registry.register(f"e{number}", "tool:x"))
        run_blocking(store.registry.settle(f"e{number}", "completed", {}, fence=0))
    store.close()
    looked: list[str] = []
    monkeypatch.setattr(
        health, "find_lock_holders", lambda *paths: looked.extend(one.parent.name for one in paths)
    )
    health.StateExamination(workspace.project / ".ai", workspace.user / ".ai").find_writers()
    assert looked == ["t"]


def test_what_the_dead_have_left_is_a_warning(workspace: Workspace, run: Run) -> None:
    store = ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai")
    run_blocking(store.registry.register("dead", "tool:x"))
    run_blocking(
        store.registry.claim("dead", evolve(current_process(), pid=2**22 - 3, start_ticks=1))
    )
    store.close()
    left = workspace.path("tools") / ".x.py.0123456789ab"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("")
    done = run("doctor", "--json")
    assert done.code == 0
    said = [one["message"] for one in done.json["checks"] if one["verdict"] == "warning"]
    assert "dead" in said[0]
    assert str(left) in said[1]
    assert (
        run_blocking(
            ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai").registry.get_thread(
                "dead"
            )
        ).status
        == "running"
    ), "nothing is changed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.root
def test_state_of_another_user_is_a_problem(workspace: Workspace, run: Run) -> None:
    os.chown(made_store(workspace), 1234, 1234)
    assert "belongs to user 1234" in run("doctor").out
