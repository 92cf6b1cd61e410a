"""Syncs of logs beside an event loop."""

import asyncio
import os
from pathlib import Path

import anyio
import pytest

from ryecore.lillux.log_sync import LogSync
from tests.killing import forked

pytestmark = pytest.mark.anyio


def log_and_mark(folder: Path) -> tuple[str, str]:
    (folder / "log").write_text("content")
    (folder / "mark").touch()
    return str(folder / "log"), str(folder / "mark")


@pytest.mark.both_loops
async def test_a_log_is_synced_unless_its_mark_says_that_it_has_to_be_written_again(
    tmp_path: Path,
) -> None:
    log, mark = log_and_mark(tmp_path)
    assert await LogSync(log, mark).is_on_disk()
    assert await LogSync(str(tmp_path / "removed"), mark).is_on_disk()
    os.truncate(mark, 1)
    assert not await LogSync(log, mark).is_on_disk()


@pytest.mark.both_loops
async def test_a_sync_that_fails_tells_all_processes_though_nobody_waits_for_it(
    tmp_path: Path,
) -> None:
    fifo, mark = tmp_path / "fifo", tmp_path / "mark"
    os.mkfifo(fifo)
    mark.touch()
    sync = LogSync(str(fifo), str(mark))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await sync.is_on_disk()
    assert scope.cancelled_caught
    await anyio.to_thread.run_sync(fifo.write_text, "")  # it is opened; no pipe can be synced
    assert not await sync.is_on_disk()  # asked again
    assert mark.stat().st_size == 1
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        await LogSync(str(loop), str(mark)).is_on_disk()


@pytest.mark.both_loops
async def test_the_loop_runs_while_many_logs_are_synced(tmp_path: Path) -> None:
    fifos = [tmp_path / f"fifo{number}" for number in range(40)]  # more than there are threads
    _, mark = log_and_mark(tmp_path)
    for fifo in fifos:
        os.mkfifo(fifo)
    done: list[bool] = []

    async def wait_for(sync: LogSync) -> None:
        done.append(await sync.is_on_disk())

    syncs = [LogSync(str(fifo), mark) for fifo in fifos]
    async with anyio.create_task_group() as tasks:
        for sync in syncs:
            tasks.start_soon(wait_for, sync)
        await anyio.wait_all_tasks_blocked()
        assert done == []
        for fifo in fifos:
            await anyio.to_thread.run_sync(fifo.write_text, "")
    assert done == [False] * len(fifos)


def test_a_forked_child_syncs_with_threads_of_its_own(tmp_path: Path) -> None:
    log, mark = log_and_mark(tmp_path)

    async def sync() -> bool:
        return await LogSync(log, mark).is_on_disk()

    assert asyncio.run(sync())
    assert forked(lambda: str(asyncio.run(sync()))) == (0, "True")
