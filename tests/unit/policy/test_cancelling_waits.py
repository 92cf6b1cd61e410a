"""Awaiting something, and being told when it has to wait."""

from collections.abc import Awaitable, Generator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ryecore.policy.cancelling import watched

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class _Told:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


async def test_what_never_waits_is_told_of_never() -> None:
    told = _Told()

    async def answer() -> int:
        return 3

    assert await watched(answer(), told) == 3
    assert told.times == 0


async def test_each_wait_is_told_of_before_it_begins() -> None:
    told = _Told()
    counted: list[int] = []

    async def wait() -> str:
        for _ in range(3):
            counted.append(told.times)
            await anyio.lowlevel.checkpoint()
        return "done"

    assert await watched(wait(), told) == "done"
    assert counted[0] == 0
    assert counted == sorted(set(counted)), "each round waits at least once"
    assert told.times > counted[-1]


async def test_what_it_raises_is_raised_after_a_wait_too() -> None:
    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await watched(fail(), _Told())


async def test_a_deadline_that_is_set_at_the_first_wait_ends_it() -> None:
    """Scopes that it has entered itself by then are left in their order."""
    left: list[str] = []
    with anyio.CancelScope() as scope:

        def start() -> None:
            scope.deadline = anyio.current_time() - 1

        async def wait() -> None:
            with anyio.CancelScope():
                try:
                    await anyio.sleep_forever()
                finally:
                    left.append("inner")

        await watched(wait(), start)
    assert scope.cancelled_caught
    assert left == ["inner"]


async def test_a_cancellation_from_outside_reaches_it() -> None:
    ended = anyio.Event()

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with anyio.create_task_group() as group:

        def stop() -> None:
            group.cancel_scope.cancel()

        await watched(wait(), stop)
    assert ended.is_set()


def test_closing_it_closes_what_it_awaits() -> None:
    closed: list[bool] = []

    class Paused(Awaitable[None]):
        def __await__(self) -> Generator[object, object, None]:
            try:
                yield self
            finally:
                closed.append(True)

    async def outer() -> None:
        await watched(Paused(), _Told())

    waiting = outer()
    waiting.send(None)
    waiting.close()
    assert closed == [True]


def test_an_iterator_that_takes_no_answers_is_awaited_too() -> None:
    class Once:
        def __await__(self) -> Any:
            return iter([1, 2])

    told = _Told()

    async def outer() -> None:
        await watched(Once(), told)

    waiting = outer()
    assert [waiting.send(None), waiting.send(None)] == [1, 2]
    assert told.times == 1
    with pytest.raises(StopIteration):
        waiting.send(None)
