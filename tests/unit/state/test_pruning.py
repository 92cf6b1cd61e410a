"""Threads that ended long ago go, whole families at once; nothing that is left points to them."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import ConfigError, ThreadNotFound
from ryecore.policy.budget import Amount
from ryecore.state.exports import ExportFolder, export_path
from ryecore.state.model import Predecessor, Status
from ryecore.state.pruning import Retention, parse_age
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking

DAY_S = 86_400
MONTH = Retention(30 * DAY_S)


class Yard:
    """A project's threads, some of which ended long ago."""

    def __init__(self, root: Path) -> None:
        self.ai = root / "project" / ".ai"
        self.user = root / "user" / ".ai"
        self.store = ThreadStore.open(self.ai, self.user)
        (self.path,) = self.store.folder.glob(".*/threads.db")

    def add(
        self, thread_id: str, days_ago: float | None = 40, status: Status = "completed",
        **more: Any,
    ) -> str:  # fmt: skip
        registry = self.store.registry
        run_blocking(registry.register(thread_id, "directive:acme/x", **more))
        folder = self.store.make_folder(thread_id)
        (folder / "transcript.jsonl").write_text("x" * 1000)
        ExportFolder(self.ai, "process").write(thread_id, "Hello.\n", load_run_key(self.user))
        if days_ago is not None:
            run_blocking(registry.settle(thread_id, status, {"data": 1}))
            self.run(
                "UPDATE threads SET completed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?)"
                " WHERE thread_id = ?", f"-{days_ago} days", thread_id,
            )  # fmt: skip
        return thread_id

    def run(self, statement: str, *values: object) -> list[Any]:
        with sqlite3.connect(self.path) as opened:
            return opened.execute(statement, values).fetchall()

    def prune(self, retention: Retention = MONTH) -> set[str]:
        run_blocking(self.store.pruning.finish())
        plan = run_blocking(self.store.pruning.plan(retention))
        return {
            one for family in plan.families if run_blocking(self.store.pruning.prune(family))
            for one in family.thread_ids
        }  # fmt: skip

    def left(self) -> set[str]:
        """The threads that are left, anywhere; rows, folders and exports agree."""
        rows = {one for (one,) in self.run("SELECT thread_id FROM threads")}
        folders = {
            str(one.parent.relative_to(self.store.folder))
            for one in self.store.folder.glob("**/transcript.jsonl")
        }
        exports = export_path(self.ai, "x").parent
        files = {str(one.relative_to(exports).with_suffix("")) for one in exports.glob("**/*.md")}
        assert rows == folders == files
        assert self.run("SELECT * FROM pruned") == []
        trash = self.store.private_folder / "pruned"
        assert not trash.exists() or not any(trash.iterdir())
        return rows


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    (tmp_path / "project").mkdir()
    return Yard(tmp_path)


def test_only_what_ended_long_enough_ago_goes(yard: Yard) -> None:
    old = yard.add("acme/old-1")
    for name, days_ago in (("acme/new-1", 29), ("acme/runs-1", None)):
        yard.add(name, days_ago)
    plan = run_blocking(yard.store.pruning.plan(MONTH))
    (family,) = plan.families
    assert family.thread_ids == (old,)
    assert 1000 < family.size_bytes < 2000
    assert yard.prune() == {old}
    assert yard.left() == {"acme/new-1", "acme/runs-1"}
    with pytest.raises(ThreadNotFound):
        run_blocking(yard.store.look(old))
    assert yard.run("SELECT * FROM results WHERE thread_id = ?", old) == []
    assert yard.prune() == set()


def test_a_family_goes_as_a_whole_or_stays(yard: Yard) -> None:
    for root, days_ago in (("kept", 5), ("runs", None), ("gone", 40)):
        yard.add(f"{root}/a-1", None)
        yard.add(f"{root}/child-1", 90, parent_id=f"{root}/a-1")
        yard.add(
            f"{root}/next-1", days_ago, follows=Predecessor(f"{root}/child-1", f"{root}/child-1")
        )
        yard.add(f"{root}/fork-1", 90, follows=Predecessor(f"{root}/next-1", None))
        run_blocking(yard.store.registry.settle(f"{root}/a-1", "completed", {}))
        yard.run(
            "UPDATE threads SET completed_at = '2020-01-01T00:00:00.000Z' WHERE thread_id = ?",
            f"{root}/a-1",
        )
    assert {one.partition("/")[0] for one in yard.prune()} == {"gone"}
    left = yard.left()
    assert {one.partition("/")[0] for one in left} == {"kept", "runs"}
    assert len(left) == 8


def test_sums_of_what_is_left_stay_exact(yard: Yard) -> None:
    ledger, registry = yard.store.ledger, yard.store.registry
    for root, days_ago in (("kept", 5), ("gone", 40)):
        yard.add(f"{root}/a-1", None)
        run_blocking(ledger.register(f"{root}/a-1", Amount(1_000, 1_000)))
        yard.add(f"{root}/b-1", None, parent_id=f"{root}/a-1")
        run_blocking(ledger.reserve(
            f"{root}/b-1", f"{root}/a-1", Amount(500, 500),
            reserves_spend=True, reserves_tokens=True,
        ))  # fmt: skip
        run_blocking(ledger.hold(f"{root}/b-1", 1, 1, Amount(100, 100)))
        for leaf in ("b-1", "a-1"):
            run_blocking(registry.settle(f"{root}/{leaf}", "completed", {}))
            yard.run(
                "UPDATE threads SET completed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?)"
                " WHERE thread_id = ?", f"-{days_ago} days", f"{root}/{leaf}",
            )  # fmt: skip
    before = yard.run("SELECT * FROM accounts WHERE thread_id LIKE 'kept/%' ORDER BY thread_id")
    assert yard.prune() == {"gone/a-1", "gone/b-1"}
    assert before == yard.run("SELECT * FROM accounts ORDER BY thread_id")
    assert yard.run("SELECT DISTINCT thread_id FROM charges") == [("kept/b-1",)]


@pytest.mark.parametrize("status", ["error", "killed"])
def test_what_may_be_resumed_stays_twice_as_long(yard: Yard, status: Status) -> None:
    yard.add("acme/failed-1", 40, status)
    yard.add("acme/failed-2", 61, status)
    yard.add("acme/resumed-1", 40, status)
    yard.add("acme/resumed-2", 40, follows=Predecessor("acme/resumed-1", "acme/resumed-1"))
    yard.add("acme/handed-1", 40, status)
    yard.add("acme/handed-2", 40, follows=Predecessor("acme/handed-1", "acme/handed-1"))
    run_blocking(yard.store.registry.link_continuation("acme/handed-1", "acme/handed-2"))
    yard.add("acme/forked-1", 40, status)
    yard.add("acme/forked-2", 40, follows=Predecessor("acme/forked-1", None))
    assert run_blocking(yard.store.pruning.plan(MONTH)).kept_resumable == 3
    resumed, handed = ({f"acme/{name}-1", f"acme/{name}-2"} for name in ("resumed", "handed"))
    assert yard.prune() == {"acme/failed-2"} | resumed | handed
    late = {"acme/failed-1", "acme/forked-1", "acme/forked-2"}
    assert yard.prune(Retention(30 * DAY_S, include_resumable=True)) == late


def test_the_latest_are_kept_whatever_their_age(yard: Yard) -> None:
    for days_ago in range(40, 45):
        yard.add(f"acme/x-{days_ago}", days_ago)
    assert yard.prune(Retention(DAY_S, keep=2)) == {"acme/x-42", "acme/x-43", "acme/x-44"}


def test_what_is_taken_up_since_the_plan_stays(yard: Yard) -> None:
    yard.add("acme/old-1")
    (family,) = run_blocking(yard.store.pruning.plan(MONTH)).families
    yard.add("acme/new-1", None, follows=Predecessor("acme/old-1", "acme/old-1", frozenset()))
    assert not run_blocking(yard.store.pruning.prune(family))
    assert yard.left() == {"acme/old-1", "acme/new-1"}


def test_nothing_goes_on_from_what_is_gone(yard: Yard) -> None:
    yard.add("acme/old-1")
    yard.prune()
    for beside in (None, frozenset[str]()):
        with pytest.raises(ThreadNotFound):
            run_blocking(
                yard.store.registry.register(
                    "acme/new-1",
                    "directive:acme/x",
                    follows=Predecessor("acme/old-1", None, beside),
                )
            )


def test_the_folder_of_another_thread_within_one_stays(yard: Yard) -> None:
    yard.add("acme/old-1")
    yard.add("acme/old-1/old-2", 5)
    assert yard.prune() == set()
    assert yard.left() == {"acme/old-1", "acme/old-1/old-2"}


@pytest.mark.parametrize("at", ["rename", "unlink", "rmtree", "mkdir"])
def test_who_is_killed_between_two_steps_is_finished_by_the_next(
    yard: Yard, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.add("acme/old-1")
    yard.add("acme/old-2", parent_id="acme/old-1")
    yard.run("UPDATE threads SET completed_at = '2020-01-01T00:00:00.000Z'")

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    (family,) = run_blocking(yard.store.pruning.plan(MONTH)).families
    with monkeypatch.context() as patch:
        patch.setattr("ryecore.state.pruning.shutil.rmtree", die)
        if at != "rmtree":
            patch.setattr(f"ryecore.state.pruning.Path.{at}", die)
        with pytest.raises(Killed):
            run_blocking(yard.store.pruning.prune(family))
    assert run_blocking(yard.store.registry.list_threads()) == ()
    yard.add("acme/old-3", 5)
    assert yard.prune() == set()
    assert yard.left() == {"acme/old-3"}


def test_a_new_thread_of_a_pruned_id_keeps_its_files(yard: Yard) -> None:
    yard.add("acme/old-1")
    yard.run("INSERT INTO pruned VALUES ('acme/old-1')")
    run_blocking(yard.store.pruning.finish())
    assert yard.left() == {"acme/old-1"}


def test_no_link_is_followed_and_what_is_no_record_stays(yard: Yard, tmp_path: Path) -> None:
    yard.add("acme/old-1")
    yard.add("other/old-1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    mine = export_path(yard.ai, "acme/old-1")
    mine.write_text("Mine.\n")
    linked = export_path(yard.ai, "other/old-1")
    linked.rename(elsewhere / linked.name)
    linked.parent.rmdir()
    linked.parent.symlink_to(elsewhere)
    assert yard.prune() == {"acme/old-1", "other/old-1"}
    assert mine.read_text() == "Mine.\n"
    assert (elsewhere / linked.name).exists()


def test_of_threads_that_ended_at_once_the_latest_registered_are_kept(yard: Yard) -> None:
    for number in range(3):
        yard.add(f"acme/x-{number}")
    yard.run("UPDATE threads SET completed_at = '2020-01-01T00:00:00.000Z'")
    assert yard.prune(Retention(DAY_S, keep=1)) == {"acme/x-0", "acme/x-1"}


def test_nothing_is_removed_behind_a_link_that_a_clone_brought(yard: Yard, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "old-1").mkdir(parents=True)
    (elsewhere / "old-1/precious").touch()
    yard.add("acme/old-1")
    yard.add("acme/old-2")
    (yard.store.folder / ".pruned").symlink_to(elsewhere)
    assert yard.prune(Retention(30 * DAY_S, keep=1)) == {"acme/old-1"}
    yard.add("acme/old-1")
    (yard.store.folder / "acme").rename(tmp_path / "acme")
    (yard.store.folder / "acme").symlink_to(elsewhere)
    assert yard.prune() == {"acme/old-1", "acme/old-2"}
    assert (elsewhere / "old-1/precious").exists()


@pytest.mark.parametrize(
    "text", ["", "30", "d", "-1d", "0d", "30 days", "1.5d", "999999w", None, 5]
)
def test_an_age_has_a_number_and_a_unit(text: object) -> None:
    with pytest.raises(ConfigError, match="used as an age"):
        parse_age(text)


def test_ages_are_seconds() -> None:
    assert [parse_age(one) for one in ("90s", "15m", "12h", "30d", "8w")] == [
        90, 900, 43_200, 2_592_000, 4_838_400,
    ]  # fmt: skip


def test_a_refused_age_names_every_unit_that_is_accepted() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_age("0m")
    named = re.findall(r"\b([a-z]) \(", refused.value.next_step)
    assert named == ["s", "m", "h", "d", "w"]
    assert [parse_age(f"1{unit}") for unit in named] == [1, 60, 3_600, 86_400, 604_800]
    page = Path("docs/how-to/prune-threads.md").read_text()
    assert all(f"`{unit}` (" in page for unit in named)
