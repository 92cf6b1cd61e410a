"""Threads are stopped from this process, from another one, and with what surrounds them."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import anyio.to_thread
import pytest

from ryecore import Rye
from ryecore.errors import StateError
from ryecore.state.waiting import run_blocking
from tests.forking import Forked
from tests.thread_host import PlannedWorkspace
from tests.unit.lillux.system import open_fds, wait_for_fds, wait_until_dead
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

PATIENCE_S = 60
"""A wish arrives at once: much less than the lease, after which each owner looks by itself."""


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


def waiting_parent(planned: PlannedWorkspace, **fork: object) -> str:
    """A parent whose child waits at a gate for ever."""
    child = planned.write("child", ["gate", {"name": "child"}], limits='spend="0.5"')
    return planned.write("parent", ["rye_execute", {"item_id": child, "thread": "fork", **fork}])


@contextmanager
def host(planned: PlannedWorkspace, *refs: str) -> Iterator[Forked]:
    """Another process that runs threads as tasks."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = planned.host(list(refs), text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def settled(planned: PlannedWorkspace) -> dict[str, str]:
    """The status of each directive's thread, once it is sure that nothing of any stays open."""
    store = planned.store()
    rows = run_blocking(store.registry.list_threads())
    for row in rows:
        assert row.ended, row
        if row.fence <= 1:  # it ended before it was claimed, so it never had an account
            continue
        account = run_blocking(store.ledger.account(row.thread_id))
        assert account.state == row.status
        assert not any((account.held.tokens, account.reserved.tokens)), account
        assert not any((account.held.spend_microcents, account.reserved.spend_microcents)), account
        charges = run_blocking(store.ledger.charges(row.thread_id))
        assert account.own.spend_microcents == sum(one.actual.spend_microcents for one in charges)
        assert run_blocking(store.ledger.tree(row.thread_id)).spent == account.total
    store.close()
    return {row.item_id.rpartition("/")[2]: row.status for row in rows}


async def root_of(rye: Rye) -> str:
    (root,) = [one for one in await rye.threads.list() if one.parent_id is None]
    return root.thread_id


@pytest.mark.parametrize("how", ["cancel", "kill"])
async def test_another_process_stops_a_whole_tree_at_once(
    planned: PlannedWorkspace, how: str
) -> None:
    ref = waiting_parent(planned)
    with host(planned, ref) as running:
        with anyio.fail_after(PATIENCE_S / 2):
            await planned.begun("child")
            async with planned.open() as rye:
                root = await root_of(rye)
                await getattr(rye.threads, how)(root)
                report = await rye.threads.wait(root)
        out, error = await anyio.to_thread.run_sync(running.communicate)
        assert running.returncode == 0, error  # the host itself goes on
    wanted = "cancelled" if how == "cancel" else "killed"
    assert report.status == wanted
    assert f'"state": "{wanted}"' in out
    assert settled(planned) == {"parent": wanted, "child": wanted}


@pytest.mark.parametrize("way", ["handle", "close", "task", "kill"])
async def test_whatever_ends_a_thread_here_leaves_nothing(
    planned: PlannedWorkspace, way: str
) -> None:
    ref = waiting_parent(planned)
    before = open_fds()
    with anyio.fail_after(PATIENCE_S / 2):
        async with planned.open() as rye:
            if way == "task":
                async with anyio.create_task_group() as group:
                    group.start_soon(lambda: rye.execute(ref, thread="fork"))
                    await planned.begun("child")
                    group.cancel_scope.cancel()
            else:
                thread = await rye.start(ref)
                await planned.begun("child")
                if way == "handle":
                    await thread.cancel()
                    assert (await thread.result()).ended == "cancelled"
                elif way == "kill":
                    await thread.kill()
                    assert (await thread.result()).ended == "killed"
    wanted = "killed" if way == "kill" else "cancelled"
    assert settled(planned) == {"parent": wanted, "child": wanted}
    wait_for_fds(before)


async def test_a_parent_that_is_stopped_stops_its_child_in_another_process(
    planned: PlannedWorkspace,
) -> None:
    ref = waiting_parent(planned, **{"async": True})
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            thread = await rye.start(ref)
            await planned.begun("child")
            (child,) = await thread.children()
            assert child.pid != os.getpid()
            await thread.cancel()
            assert (await thread.result()).ended == "cancelled"
    assert child.pid is not None
    wait_until_dead(child.pid)
    assert settled(planned) == {"parent": "cancelled", "child": "cancelled"}


async def test_who_waits_for_children_is_cancelled_with_them(planned: PlannedWorkspace) -> None:
    ref = waiting_parent(planned, **{"async": True})
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye, anyio.create_task_group() as group:
            group.start_soon(lambda: rye.execute(ref, thread="fork"))
            await planned.begun("child")
            await until_said(planned, "parent")
            group.cancel_scope.cancel()
    assert settled(planned) == {"parent": "cancelled", "child": "cancelled"}


async def until_said(planned: PlannedWorkspace, name: str) -> None:
    """Wait until a thread's model has said its last word."""
    from ryecore.lillux import watch

    store = planned.store()
    (row,) = [one for one in await store.registry.list_threads() if one.item_id.endswith(name)]
    path = store.folder_of(row.thread_id) / "transcript.jsonl"
    store.close()
    async with watch(path) as watcher:
        while path.read_text().count('"cognition_out"') < 2:  # the call, and the word
            await watcher.changed()


async def test_a_thousand_threads_are_watched_by_one_watcher(planned: PlannedWorkspace) -> None:
    ref = planned.write("waiting", ["gate", {"name": "all"}])
    async with planned.open() as rye:
        first = await rye.start(ref)
        await planned.begun("all")
        watchers = _inotify()
        more = [await rye.start(ref) for _ in range(20)]
        # Each waits at a gate, which is the test's own watcher.
        assert _inotify() - watchers <= len(more)
        store = planned.store()
        for one in (first, *more):
            await store.cancel(one.thread_id)  # as another process does
        with anyio.fail_after(PATIENCE_S / 2):
            assert {(await one.result()).ended for one in (first, *more)} == {"cancelled"}
        store.close()


def _inotify() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own, and what a thread has just closed
            count += "inotify" in os.readlink(f"/proc/self/fd/{name}")
    return count


async def test_another_process_hands_a_thread_off(planned: PlannedWorkspace) -> None:
    ref = planned.write("long", ["gate", {"name": "first"}], ["mark", {"text": "second"}])
    with host(planned, ref) as running, anyio.fail_after(PATIENCE_S):
        await planned.begun("first")
        async with planned.open() as rye:
            root = await root_of(rye)
            done = await rye.execute(
                "tool:rye/agent/threads/orchestrator",
                {"operation": "handoff_thread", "thread_id": root},
            )
            assert done.success, done
            planned.allow("first")
            report = await rye.threads.wait(root)
            assert report.status == "continued"
            following = report.record.continuation_thread_id
            assert following is not None
            assert (await rye.threads.wait(following)).status == "completed"
            with pytest.raises(StateError, match="can't be handed off"):
                await rye.threads._service().hand_off(root, None)  # type: ignore[arg-type]
        await anyio.to_thread.run_sync(running.communicate)
    store = planned.store()
    row = await store.registry.get_thread(following)
    assert (row.continuation_of, row.chain_root_id) == (root, root)
    assert (planned.root / "marks").read_text() == "second\n"
    old, new = await store.ledger.account(root), await store.ledger.account(following)
    assert new.ceiling.spend_microcents == old.ceiling.spend_microcents - old.own.spend_microcents
    store.close()
