"""The mailbox of an event loop: each task gets its result, whoever else looks into it."""

import time

import anyio
import pytest

from ryecore.lillux import ProcessSpec, run_process

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def shell(script: str) -> ProcessSpec:
    return ProcessSpec("/bin/sh", ("-c", script), cwd="/", env={"PATH": "/usr/bin:/bin"})


async def test_a_result_reaches_its_task_though_another_one_begins_as_it_arrives() -> None:
    ended = anyio.Event()

    async def first() -> None:
        await run_process(shell("exit 0"))
        ended.set()

    async def second() -> None:
        time.sleep(0.3)  # the first one's result arrives before the loop can look
        await run_process(shell("sleep 100"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(second)
            await ended.wait()
            tasks.cancel_scope.cancel()
    assert ended.is_set()
