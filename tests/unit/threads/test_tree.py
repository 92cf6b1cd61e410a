"""The tree of threads as the store knows it, and while it runs."""

import time
from collections.abc import Iterator

import anyio
import pytest

from ryecore.errors import ThreadNotFound
from ryecore.state.model import Cost, Predecessor, ThreadRecords
from ryecore.state.waiting import run_blocking
from ryecore.threads.tree import load_tree, watch_tree
from ryecore.threads.tree_node import TreeNode
from tests.unit.threads.thread_tree import ThreadTree
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.fixture
def threads(workspace: Workspace) -> Iterator[ThreadTree]:
    threads = ThreadTree(workspace)
    yield threads
    threads.store.close()


def shape(node: TreeNode) -> object:
    return {node.thread_id: [shape(one) for one in node.children]}


def test_a_tree_is_what_threads_have_started_with_what_they_used(threads: ThreadTree) -> None:
    threads.start("elsewhere")
    threads.start("root", limits={"turns": 8, "tokens": 1000, "spend": 0.5})
    for name in ("a", "b"):
        threads.start(name, "root")
    threads.start("a-1", "a")
    run_blocking(threads.store.registry.set_cost("a-1", Cost(2, 30, 4, 500)))
    threads.end("b", "error", {"status": "error", "error": "It broke.\nBadly."})
    run_blocking(threads.store.cancel("a"))
    tree = run_blocking(load_tree(threads.store, "root"))
    assert shape(tree) == {"root": [{"a": [{"a-1": []}]}, {"b": []}]}
    a, b = tree.children
    (one,) = a.children
    assert (one.turns, one.tokens, one.spend_microcents) == (2, 34, 500)
    assert (tree.limits.turns, tree.limits.spend_microcents) == (8, 50_000_000)
    assert b.note == "It broke.\nBadly."
    assert a.note == one.note == "It was asked to stop."
    assert abs(tree.started_at - time.time()) < 60
    assert tree.ended_at is None
    assert b.ended_at is not None
    assert shape(run_blocking(load_tree(threads.store, "a"))) == {"a": [{"a-1": []}]}


def test_what_continues_the_root_stands_below_it_and_any_other_beside_it(
    threads: ThreadTree,
) -> None:
    threads.start("root")
    threads.start("child", "root")
    threads.hand_off("child", "child-2", "root")
    threads.hand_off("root", "root-2")
    threads.start("late", "root-2")
    tree = run_blocking(load_tree(threads.store, "root"))
    assert shape(tree) == {"root": [{"child": []}, {"child-2": []}, {"root-2": [{"late": []}]}]}
    assert tree.note == "It continues as root-2."
    assert shape(run_blocking(load_tree(threads.store, "root-2"))) == {"root-2": [{"late": []}]}


def test_threads_that_resumed_the_root_stand_below_it_and_forks_do_not(
    threads: ThreadTree,
) -> None:
    threads.start("root")
    threads.start("child", "root")
    threads.end("root", "error", {"status": "error", "error": "It broke."})
    threads.start("resumed", follows=Predecessor("root", "root"))
    threads.start("late", "resumed")
    threads.start("forked", follows=Predecessor("root", None))
    threads.hand_off("resumed", "next")
    threads.end("next")
    threads.start("again", follows=Predecessor("next", "root"))
    tree = run_blocking(load_tree(threads.store, "root"))
    below = [{"child": []}, {"resumed": [{"late": []}]}, {"next": []}, {"again": []}]
    assert shape(tree) == {"root": below}
    assert tree.note == "It broke."
    assert shape(run_blocking(load_tree(threads.store, "next"))) == {"next": [{"again": []}]}


def test_there_is_no_tree_of_a_thread_that_is_not_there(threads: ThreadTree) -> None:
    for name in ("nobody", "../x"):
        with pytest.raises(ThreadNotFound):
            run_blocking(load_tree(threads.store, name))


async def test_a_tree_is_drawn_until_all_of_it_has_ended(threads: ThreadTree) -> None:
    threads.start("root")
    threads.start("child", "root")
    drawn: list[str] = []
    first, second = anyio.Event(), anyio.Event()

    def draw(tree: TreeNode) -> None:
        drawn.append(" ".join(one.status for one in tree.walk()))
        first.set()
        if drawn[-1] == "completed running":  # the end of its root ends no tree
            second.set()

    async def work() -> None:
        await first.wait()
        await anyio.to_thread.run_sync(threads.end, "root")
        await second.wait()
        await anyio.to_thread.run_sync(threads.end, "child")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        with anyio.fail_after(20):
            assert (await watch_tree(threads.store, "root", draw, every_s=0.1)).ended
    assert drawn[0] == "running running"
    assert drawn[-1] == "completed completed"


async def test_a_thread_that_tells_of_a_change_is_drawn_at_once(threads: ThreadTree) -> None:
    threads.start("root")

    def draw(tree: TreeNode) -> None:
        if not tree.ended:
            threads.end("root")

    with anyio.fail_after(60):
        await watch_tree(threads.store, "root", draw, every_s=3600)


async def test_what_goes_on_with_a_thread_after_it_was_read_is_drawn_too(
    threads: ThreadTree,
) -> None:
    threads.start("root")
    threads.end("root", "continued")
    drawn: list[str] = []

    def draw(tree: TreeNode) -> None:
        drawn.append(" ".join(one.status for one in tree.walk()))
        if drawn[-1] == "continued":
            threads.start("root-2", follows=Predecessor("root", "root"))
            run_blocking(threads.store.registry.link_continuation("root", "root-2"))
        elif drawn[-1] == "continued running":
            threads.end("root-2")

    with anyio.fail_after(20):
        await watch_tree(threads.store, "root", draw, every_s=0.1)
    assert drawn[-1] == "continued completed"


def test_a_tree_of_a_thousand_threads_is_read(threads: ThreadTree) -> None:
    register = threads.store.registry.register
    run_blocking(register("t-0", "directive:x"))
    for n in range(1, 1000):
        run_blocking(register(f"t-{n}", "directive:x", f"t-{(n - 1) // 10}"))
    assert sum(1 for _ in run_blocking(load_tree(threads.store, "t-0")).walk()) == 1000


def test_trees_and_lists_print_as_the_command_line_shows_them(threads: ThreadTree) -> None:
    threads.start("root")
    threads.start("child", "root")
    threads.end("child")
    tree = run_blocking(load_tree(threads.store, "root"))
    printed = str(tree).splitlines()
    assert "└─ ✓ acme/child" in printed[2]
    assert "2 threads" in str(tree)
    found = ThreadRecords(run_blocking(threads.store.registry.list_threads()), total=3)
    lines = str(found).splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [
        ["✓", "child", "completed"],
        ["▸", "root", "running"],
    ]
    assert lines[2] == "2 of 3 threads"
    assert str(found[0]) == lines[0]
    assert "directive:acme/child" in found._repr_html_()
    assert str(ThreadRecords()) == "no threads"
