"""What tests ask of event loops: on which they run, and for how long one stood still."""

import gc
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import pytest

from tests.matrix import IS_SOAK

__all__ = ["ON_BOTH_LOOPS", "LoopLoad", "choose_loops", "loop_load", "spare_loops"]

ON_BOTH_LOOPS: Final = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
"""A test that is to run on both all the same. The module says `asyncio` by its own fixture."""

_LOOPS: Final = ["asyncio", "trio"]

_BEAT_S: Final = 0.001


def choose_loops(metafunc: pytest.Metafunc) -> None:
    """Run an async test on one of the loops, half of the tests on either; in the soak, on both.

    Tests marked `both_loops` run on both, a table of cases on one after the other: those of code
    that waits, cancels, starts tasks or ends what it started. A module may choose by a fixture
    `anyio_backend` of its own.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    if (
        "anyio_backend" not in metafunc.fixturenames
        or hasattr(metafunc.module, "anyio_backend")
        or any("anyio_backend" in mark.args[0] for mark in marks)
    ):
        return
    on_both = IS_SOAK or metafunc.definition.get_closest_marker("both_loops")
    turn = zlib.crc32(metafunc.definition.nodeid.encode()) % 2
    metafunc.parametrize("anyio_backend", _LOOPS if on_both else [_LOOPS[turn]])


def spare_loops(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items that can be left out where each case of a table would run on both loops.

    The cases take turns, so that the table runs on both; in the soak nothing is left out.
    """
    cases: defaultdict[object, dict[str, list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("both_loops"):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            if params.get("anyio_backend") in _LOOPS:
                case = repr({**params, "anyio_backend": None})
                cases[item.parent, item.originalname].setdefault(case, []).append(item)
    spare = []
    for table in cases.values():
        if len(table) > 1 and not IS_SOAK:
            for number, both in enumerate(table.values()):
                spare += [one for at, one in enumerate(both) if at != number % len(both)]
    return spare


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

    From here on Python's garbage collector passes over what was imported before. That stays so:
    when it has everything to look through again, each full collection of the tests that follow
    takes more than a second.
    """
    load = LoopLoad()
    gc.collect()
    gc.freeze()
    async with anyio.create_task_group() as group:
        group.start_soon(load.beat)
        await anyio.sleep(0)
        try:
            yield load
            await anyio.sleep(2 * _BEAT_S)  # what came last is measured too
        finally:
            group.cancel_scope.cancel()
