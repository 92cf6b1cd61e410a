"""What tests ask of event loops: on which they run, and for how long one stood still."""

import gc
import os
import time
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import pytest

__all__ = ["ON_BOTH_LOOPS", "LoopLoad", "loop_load", "one_loop_each"]

ON_BOTH_LOOPS: Final = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
"""A test that is to run on both all the same. The module says `asyncio` by its own fixture."""

_LOOPS: Final = ["asyncio", "trio"]

_BEAT_S: Final = 0.001


def one_loop_each(metafunc: pytest.Metafunc) -> None:
    """Run each test on one of the loops, half of them on either; in the soak, on both.

    For modules whose tests try another process: `pytest_generate_tests = one_loop_each`.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    if "anyio_backend" in metafunc.fixturenames and not any(
        "anyio_backend" in mark.args[0] for mark in marks
    ):
        turn = zlib.crc32(metafunc.function.__name__.encode()) % 2
        loops = _LOOPS if os.environ.get("RYE_SOAK") else [_LOOPS[turn]]
        metafunc.parametrize("anyio_backend", loops)


class LoopLoad:
    """How long an event loop's thread computed without a pause, at most.

    That is processor time of this thread: other threads, other programs and waits don't count.

    Attributes:
        worst_s: The longest time between two beats, in seconds.
    """

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def beat(self) -> None:
        """Measure until cancelled."""
        while True:
            began_s = time.thread_time()
            await anyio.sleep(_BEAT_S)
            self.worst_s = max(self.worst_s, time.thread_time() - began_s)


@asynccontextmanager
async def loop_load() -> AsyncGenerator[LoopLoad, None]:
    """Measure how long this event loop's thread computes without a pause, meanwhile.

    What was imported before isn't looked through by Python's garbage collector meanwhile.
    """
    load = LoopLoad()
    gc.collect()
    gc.freeze()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(load.beat)
            await anyio.sleep(0)
            try:
                yield load
                await anyio.sleep(2 * _BEAT_S)  # what came last is measured too
            finally:
                group.cancel_scope.cancel()
    finally:
        gc.unfreeze()
