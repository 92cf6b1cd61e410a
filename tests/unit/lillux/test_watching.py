import os
import signal
import threading
from pathlib import Path

import anyio
import pytest

from ryecore.lillux import wait_for_change, watch

from .system import open_fds

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_file_is_written_replaced_removed_and_made_again(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("1")
    async with watch(file) as watcher:
        assert await watcher.changed(timeout_s=0) == ()
        other.write_text("not watched")
        assert await watcher.changed(timeout_s=0) == ()
        for change in (
            lambda: file.write_text("2"),
            lambda: other.rename(file),
            file.unlink,
            file.touch,
        ):
            change()
            assert await watcher.changed(timeout_s=30) == (str(file),)
            assert await watcher.changed(timeout_s=0) == ()


async def test_changes_are_iterated(tmp_path: Path) -> None:
    file = tmp_path / "not/there/yet"
    seen = 0
    async with watch(file, tmp_path / "never") as watcher, anyio.create_task_group() as group:

        async def write() -> None:
            file.parent.mkdir(parents=True)
            file.touch()

        group.start_soon(write)
        async for changes in watcher:
            assert changes == (str(file),)
            seen += 1
            if seen == 3:
                break
            file.write_text("more")


async def test_a_waiting_task_can_be_cancelled(tmp_path: Path) -> None:
    async with watch(tmp_path) as watcher:
        with anyio.move_on_after(0.01) as scope:
            await watcher.changed()
        assert scope.cancelled_caught
        (tmp_path / "entry").touch()
        assert await watcher.changed(timeout_s=30) == (str(tmp_path),)


async def test_a_closed_watcher_says_so(tmp_path: Path) -> None:
    async with watch(tmp_path) as watcher:
        pass
    with pytest.raises(ValueError, match="closed"):
        await watcher.changed()


async def test_closing_gives_the_descriptor_back(tmp_path: Path) -> None:
    before = open_fds()
    for _ in range(10):
        watch(tmp_path).close()
    with anyio.fail_after(30):  # a thread closes them
        # Fewer, where a run of an earlier test has closed its own.
        while open_fds() > before:
            await anyio.sleep(0.001)


def test_a_thread_can_wait(tmp_path: Path) -> None:
    file = tmp_path / "file"
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            file.write_text("x")
            stop.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert wait_for_change([file, tmp_path / "other"], timeout_s=30) == (str(file),)
    finally:
        stop.set()
        writer.join()
    assert wait_for_change([tmp_path / "other"], timeout_s=0.01) == ()


def test_a_waiting_thread_hears_signals(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(InterruptedError):
            wait_for_change([tmp_path])
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
