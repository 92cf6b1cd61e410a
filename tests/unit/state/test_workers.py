"""Waits for locks and disks take none of the host's worker threads, and the host none of theirs."""

import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from anyio import to_thread

from ryecore.state.waiting import run_in_thread, run_off_loop

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

BURST = 500


async def off_loop(wait: Callable[[], bool]) -> bool:
    return await run_off_loop("machine", wait)


@pytest.mark.parametrize(
    ("crowd", "other"),
    [
        (run_in_thread, to_thread.run_sync),
        (off_loop, to_thread.run_sync),
        (to_thread.run_sync, run_in_thread),
        (to_thread.run_sync, off_loop),
        (run_in_thread, off_loop),
        (off_loop, run_in_thread),
    ],
)
async def test_a_burst_of_waits_keeps_no_other_work_waiting(
    crowd: Callable[..., Coroutine[Any, Any, bool]],
    other: Callable[..., Coroutine[Any, Any, int]],
) -> None:
    may_end = threading.Event()
    async with anyio.create_task_group() as group:
        for _ in range(BURST):
            group.start_soon(crowd, may_end.wait)
        await anyio.wait_all_tasks_blocked()
        try:
            with anyio.fail_after(30):
                assert await other(threading.get_ident) != threading.get_ident()
        finally:
            may_end.set()
