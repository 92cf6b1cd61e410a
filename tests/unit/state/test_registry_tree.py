"""The registry's trees: roots, who belongs to whom, wishes to stop, and a child's token."""

import sqlite3
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import StateError, ThreadConflict
from ryecore.lillux import current_process
from ryecore.state.database import Database
from ryecore.state.model import Cost
from ryecore.state.registry import MIGRATIONS, ThreadRegistry
from ryecore.state.store import ThreadStore
from tests.workspace import Workspace


@pytest.fixture
def registry(tmp_path: Path) -> ThreadRegistry:
    return ThreadRegistry(Database(tmp_path / "threads.db", MIGRATIONS))


def tree(registry: ThreadRegistry) -> None:
    """Root r with a and b, a with a1, a1 with a2; and another root."""
    for name, parent in (
        ("r", None), ("a", "r"), ("b", "r"), ("a1", "a"), ("a2", "a1"), ("other", None),
    ):  # fmt: skip
        registry.register(name, "directive:x", parent)


def ids(records: tuple[object, ...]) -> list[str]:
    return [one.thread_id for one in records]  # type: ignore[attr-defined]


def test_each_thread_knows_its_root_and_its_subtree(registry: ThreadRegistry) -> None:
    tree(registry)
    assert {one.root_id for one in registry.list_tree("r")} == {"r"}
    assert registry.get_thread("other").root_id == "other"
    assert ids(registry.list_tree("r")) == ["r", "a", "b", "a1", "a2"]
    assert ids(registry.list_tree("a")) == ["a", "a1", "a2"]
    assert registry.list_tree("missing") == ()


def test_who_is_below_whom(registry: ThreadRegistry) -> None:
    tree(registry)
    assert registry.is_below("a2", "r")
    assert registry.is_below("a2", "a")
    assert registry.is_below("a", "a")
    for thread_id, ancestor_id in (("a", "a2"), ("b", "a"), ("other", "r"), ("missing", "missing")):
        assert not registry.is_below(thread_id, ancestor_id)


@pytest.mark.parametrize("kill", [False, True])
def test_a_wish_to_stop_reaches_the_whole_subtree(registry: ThreadRegistry, kill: bool) -> None:
    tree(registry)
    for one in ("r", "a", "a1"):
        registry.claim(one)
    stranger = evolve(current_process(), pid=1, start_ticks=1)
    registry.claim("a2", stranger)
    registry.settle("a1", "completed", {})
    registry.request_cancel("a", kill=kill)
    registry.register("late", "directive:x", "a")  # behind the wish
    asked = [
        one.thread_id
        for one in registry.list_threads()
        if (one.kill_requested if kill else one.cancel_requested)
    ]
    assert sorted(asked) == ["a", "a2", "late"]
    assert ids(registry.pending_requests()) == ["a", "late"]
    assert ids(registry.pending_requests(stranger)) == ["a2"]


def test_the_store_wakes_each_owner_and_ends_who_has_not_begun(workspace: Workspace) -> None:
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    tree(store.registry)
    for one in ("r", "a", "a1", "a2"):
        store.make_folder(one)
    for one in ("r", "a1"):
        store.registry.claim(one)
    assert store.cancel("r").cancel_requested
    said = {one: (store.folder_of(one) / "status").read_text() for one in ("r", "a", "a1", "a2")}
    assert said == {
        "r": "stopping\n", "a": "cancelled\n", "a1": "stopping\n", "a2": "cancelled\n",
    }  # fmt: skip
    assert store.look("b").status == "cancelled"
    assert store.look("other").status == "created"
    store.close()


def test_a_token_is_used_up_by_the_one_who_has_it(registry: ThreadRegistry) -> None:
    registry.register("a", "directive:x")
    void = registry.mint_token("a")
    token = registry.mint_token("a")
    for wrong in (None, "", void, "ü", token + "x"):
        with pytest.raises(ThreadConflict, match="is another one"):
            registry.claim("a", token=wrong)
    assert registry.get_thread("a").status == "created"
    stored = registry._database.read("SELECT * FROM threads")[0]
    assert token not in map(str, stored)
    assert registry.claim("a", token=token) == 1
    with pytest.raises(ThreadConflict, match="can't be given a token"):
        registry.mint_token("a")
    assert registry._database.read("SELECT parent_token_hash FROM threads")[0][0] is None


def test_limits_and_the_end_stand_in_the_row(registry: ThreadRegistry) -> None:
    record = registry.register("a", "directive:x", limits={"turns": 3, "spend": 0.5})
    assert record.limits == {"turns": 3, "spend": 0.5}
    registry.set_limits("a", {"turns": 2})
    cost = Cost(1, 2, 3, 4)
    registry.settle("a", "completed", {}, head=(99, "digest"), snapshot=cost)
    record = registry.get_thread("a")
    assert (record.limits, record.transcript_head, record.cost) == (
        {"turns": 2}, (99, "digest"), cost,
    )  # fmt: skip


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
    registry = ThreadRegistry(Database(tmp_path / "threads.db", MIGRATIONS))
    roots = [registry.get_thread(one).root_id for one in ("r", "a", "a1", "lost")]
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
    registry = ThreadRegistry(database)
    registry.register("a", "directive:x", limits={"turns": 3})
    registry.settle("a", "completed", {"text": "well"})
    with database.write() as run:
        run.execute("PRAGMA ignore_check_constraints = ON")
        run.execute(damage)
    with pytest.raises(StateError, match="row of the thread a is damaged"):
        registry.get_result("a")
