"""What runs in a Rye without anybody waiting for it."""

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from ryecore.runs.tasks import Tasks

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_who_stops_the_tasks_leaves_alone_what_the_user_does() -> None:
    tasks, ended = Tasks(), []

    async def run() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("task")

    async def stop(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await tasks.stop()
        task_status.started()

    await tasks.open()
    async with anyio.create_task_group() as others:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await others.start(stop)
        assert ended == ["task"]
        await anyio.lowlevel.checkpoint()  # this body goes on
        ended.append("body")
    assert not tasks.are_possible
    await tasks.close()
    assert ended == ["task", "body"]


async def test_a_task_that_has_not_begun_is_cancelled_too() -> None:
    tasks, ran = Tasks(), []

    async def run() -> None:
        await anyio.lowlevel.checkpoint()
        ran.append("x")

    await tasks.open()
    tasks.start_soon(run)
    await tasks.close()
    assert ran == []


async def test_what_a_task_starts_as_it_is_stopped_is_stopped_too() -> None:
    tasks = Tasks()
    await tasks.open()
    begun = anyio.Event()

    async def last_wish() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            tasks.start_soon(anyio.sleep_forever)

    tasks.start_soon(last_wish)
    await begun.wait()
    with anyio.fail_after(5):
        await tasks.stop()
    await tasks.close()
