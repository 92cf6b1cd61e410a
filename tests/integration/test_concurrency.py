"""Many executions at once, and nothing left of them."""

import os
import threading

import anyio
import pytest

from tests.unit.lillux.system import children
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


def descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # the listing's own
            continue
    return found


async def nothing_is_left(before: set[str], children_before: set[int]) -> None:
    """Wait until no descriptor and no child, zombies among them, is there that wasn't before.

    What an earlier test left may go meanwhile. The reactor's thread closes the descriptors of runs
    that have ended when it comes to it, and nothing tells of that.
    """
    with anyio.move_on_after(10):
        while descriptors() - before:
            await anyio.sleep(0.01)
    assert not descriptors() - before
    assert not children() - children_before


async def test_500_executions_at_once_leave_no_descriptor_thread_or_zombie(workspace: Workspace):
    ref = workspace.shell("a/t", 'read -r line; echo "$line"')
    answers: dict[int, object] = {}
    async with workspace.open() as rye:
        await rye.execute(ref, {"n": -1})  # the reactor, the loop's mailbox and a worker thread
        before, threads, alive = descriptors(), threading.active_count(), children()

        async def call(number: int) -> None:
            answers[number] = (await rye.execute(ref, {"n": number})).data

        async with anyio.create_task_group() as tasks:
            for number in range(500):
                tasks.start_soon(call, number)
        assert answers == {number: {"n": number} for number in range(500)}
        assert threading.active_count() <= threads + 1
        await nothing_is_left(before, alive)


async def test_many_tools_that_nobody_remembers_yet_are_made_ready_at_once(workspace: Workspace):
    refs = [workspace.shell(f"a/t{number}", f"echo number {number}") for number in range(20)]
    answers: list[tuple[str, str]] = []
    async with workspace.open() as rye, anyio.create_task_group() as tasks:

        async def call(ref: str) -> None:
            answers.append((ref, (await rye.execute(ref)).data["stdout"].strip()))

        for _ in range(5):
            for ref in refs:
                tasks.start_soon(call, ref)
    expected = [(ref, f"number {ref.removeprefix('tool:a/t')}") for ref in refs]
    assert sorted(answers) == sorted(expected * 5)


async def test_executions_that_are_cancelled_all_at_once_leave_nothing(workspace: Workspace):
    ref = workspace.shell("a/t", "read -r < <(sleep 600)")
    async with workspace.open() as rye:
        await rye.execute(ref, timeout_s=0.05)
        before, alive = descriptors(), children()
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(rye.execute, ref)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await nothing_is_left(before, alive)


async def test_changes_while_many_run_give_one_version_or_the_other(workspace: Workspace):
    ref = workspace.shell("a/t", "echo one")
    seen: set[str] = set()
    async with workspace.open() as rye, anyio.create_task_group() as tasks:

        async def call() -> None:
            seen.add((await rye.execute(ref)).data["stdout"])

        for number in range(60):
            tasks.start_soon(call)
            if number == 30:
                await anyio.lowlevel.checkpoint()
                workspace.shell("a/t", "echo two")
    assert seen <= {"one\n", "two\n"}
