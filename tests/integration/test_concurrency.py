"""Many executions at once, and nothing left of them."""

import gc
import os
import threading
from pathlib import Path

import anyio
import pytest

from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


def descriptors() -> set[str]:
    gc.collect()  # an event loop before this one may still hold its own
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # the listing's own
            continue
    return found


def children() -> list[int]:
    """Processes, zombies among them, whose parent is this one."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


async def test_500_executions_at_once_leave_no_descriptor_thread_or_zombie(workspace: Workspace):
    ref = workspace.shell("a/t", 'read -r line; echo "$line"')
    answers: dict[int, object] = {}
    async with workspace.open() as rye:
        await rye.execute(ref, {"n": -1})  # the reactor, the loop's mailbox and a worker thread
        before = descriptors(), threading.active_count(), children()

        async def call(number: int) -> None:
            answers[number] = (await rye.execute(ref, {"n": number})).data

        async with anyio.create_task_group() as tasks:
            for number in range(500):
                tasks.start_soon(call, number)
        assert answers == {number: {"n": number} for number in range(500)}
        assert descriptors() == before[0]
        assert threading.active_count() <= before[1] + 1
        assert children() == before[2]


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
        before = descriptors(), children()
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(rye.execute, ref)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (descriptors(), children()) == before


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
