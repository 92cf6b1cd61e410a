"""The threads of a project: what happens to one from two sides at once."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Thread

import pytest

from ryecore.errors import StateError, ThreadConflict, ThreadNotFound
from ryecore.policy.context import thread_variables
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.unit.threads.thread_tree import ThreadTree
from tests.workspace import Workspace


def claim(store: ThreadStore, thread_id: str, both: Barrier, claimed: list[int]) -> None:
    both.wait()
    with suppress(ThreadConflict):
        claimed.append(run_blocking(store.registry.claim(thread_id)))


@pytest.mark.parametrize(
    ("named", "next_step"),
    [
        ("acme/train", "An item of that name runs in 5d1c-1."),
        ("acme/trai", "See which there are: rye threads list --all"),
        ("acme/ask", "Write more of the one you mean. Only acme/ask/ask-2 has not ended."),
        ("5d1c", "Write more of the one you mean."),
        ("k-2", "See which there are: rye threads list --all"),
        ("sk-2x", "See which there are: rye threads list --all"),
        ("ll-6", "Write more of the one you mean. Only acme/all/all-6 has not ended."),
    ],
)
def test_an_id_that_names_no_single_thread_is_refused_with_what_may_be_meant(
    workspace: Workspace, named: str, next_step: str
) -> None:
    threads = ThreadTree(workspace)
    registry = threads.store.registry
    for thread_id, ref in (("5d1c-1", "tool:acme/train"), ("5d1c-2", "tool:acme/other")):
        run_blocking(registry.register(thread_id, ref))
    for thread_id in ("acme/ask/ask-1", "acme/ask/ask-2", "acme/all/all-6", "acme/call/call-6"):
        threads.start(thread_id)
    for thread_id in ("acme/ask/ask-1", "acme/call/call-6"):
        threads.end(thread_id)
    with pytest.raises(ThreadNotFound) as refused:
        run_blocking(threads.store.find(named))
    assert refused.value.next_step == next_step
    threads.store.close()


def test_an_id_is_known_by_its_beginning_or_its_end(workspace: Workspace) -> None:
    threads = ThreadTree(workspace)
    for thread_id in ("acme/ask/ask-1795896645", "acme/ask/ask-1795896646", "acme/ask"):
        threads.start(thread_id)
    find = threads.store.find
    for part, whole in (
        ("acme/ask", "acme/ask"),
        ("acme/ask/ask-1795896645", "acme/ask/ask-1795896645"),
        ("1795896646", "acme/ask/ask-1795896646"),
        ("6645", "acme/ask/ask-1795896645"),
    ):
        assert run_blocking(find(part)) == whole
    threads.store.close()


@pytest.mark.parametrize("kill", [False, True])
def test_who_stops_and_who_claims_at_once_never_collide(workspace: Workspace, kill: bool) -> None:
    one, other = (
        ThreadStore.open(workspace.path(""), workspace.path("", "user")) for _ in range(2)
    )
    for number in range(60):
        thread_id = f"t-{number}"
        one.make_folder(thread_id)
        run_blocking(one.registry.register(thread_id, "tool:x"))
        both = Barrier(2)
        claimed: list[int] = []
        claiming = Thread(target=claim, args=(other, thread_id, both, claimed))
        claiming.start()
        both.wait()
        run_blocking(one.kill(thread_id, grace_s=0) if kill else one.cancel(thread_id))
        claiming.join()
        record = run_blocking(one.look(thread_id))
        assert record.status == ("running" if claimed else "killed" if kill else "cancelled")
        assert record.kill_requested if kill else record.cancel_requested
    one.close()
    other.close()


@pytest.mark.parametrize("at", ["acme", "acme/g", "acme/g/g-1", "acme/g/g-1/output.log"])
def test_no_thread_is_written_behind_a_link_that_a_clone_brought(
    workspace: Workspace, tmp_path: Path, at: str
) -> None:
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = store.folder / at
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StateError, match=r"link.*(Move|Remove|move)"):
        store.make_folder("acme/g/g-1")
    assert not any(elsewhere.iterdir())
    link.unlink()
    for number in range(2, 4):
        store.make_folder(f"acme/g/g-{number}")
    (store.folder / "acme").rename(store.folder / "moved")
    (store.folder / "acme").symlink_to(elsewhere)
    (elsewhere / "g").mkdir()
    with pytest.raises(StateError, match=r"link.*(Move|Remove|move)"):
        store.make_folder("acme/g/g-4")
    assert not any((elsewhere / "g").iterdir())
    store.close()


def test_a_wake_changes_nothing_behind_a_link(workspace: Workspace, tmp_path: Path) -> None:
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    mine = tmp_path / "mine"
    mine.mkdir()
    before = mine.stat()
    run_blocking(store.registry.register("one", "tool:x"))
    run_blocking(store.registry.claim("one"))
    (store.folder / "one").symlink_to(mine)
    assert run_blocking(store.cancel("one")).cancel_requested
    assert mine.stat() == before
    store.close()


def test_a_result_is_not_copied_through_a_link(workspace: Workspace, tmp_path: Path) -> None:
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))
    mine = tmp_path / "mine"
    mine.mkdir()
    run_blocking(store.registry.register("acme/one", "tool:x"))
    fence = run_blocking(store.registry.claim("acme/one"))
    (store.folder / "acme").mkdir()
    (store.folder / "acme/one").symlink_to(mine)
    run_blocking(store.settle("acme/one", "completed", {"data": 1}, fence))
    assert run_blocking(store.registry.get_result("acme/one")) == {"data": 1}
    assert not any(mine.iterdir())
    store.close()


def test_a_kill_spares_the_thread_of_the_same_id_in_another_project(tmp_path: Path) -> None:
    stores, tools = [], []
    for name in ("one", "other"):
        store = ThreadStore.open(tmp_path / name / ".ai", tmp_path / "user")
        run_blocking(store.registry.register("acme/t/t-1", "tool:acme/t"))
        variables = thread_variables(store.project, "acme/t/t-1")
        tools.append(subprocess.Popen(["sleep", "300"], env=os.environ | variables))
        stores.append(store)
    run_blocking(stores[0].kill("acme/t/t-1", grace_s=0))
    assert tools[0].wait(10) == -signal.SIGKILL
    assert tools[1].poll() is None
    run_blocking(stores[1].kill("acme/t/t-1", grace_s=0))
    assert tools[1].wait(10) == -signal.SIGKILL
    for store in stores:
        store.close()
