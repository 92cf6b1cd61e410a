import asyncio
import ssl

import anyio
import pytest

from ryecore.providers.connections import PerLoop, authorities


class Thing:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_loop_has_one_which_ends_with_it(backend: str) -> None:
    things = PerLoop(Thing, Thing.close)

    async def twice() -> Thing:
        first, second = await things.get(), await things.get()
        assert first is second
        assert first.closed == 0
        return first

    one = anyio.run(twice, backend=backend)
    other = anyio.run(twice, backend=backend)

    assert one is not other
    assert (one.closed, other.closed) == (1, 1)
    assert not things._held


@pytest.mark.anyio
async def test_closing_is_for_this_loop_and_can_be_done_twice() -> None:
    things = PerLoop(Thing, Thing.close)
    one = await things.get()

    await things.aclose()
    await things.aclose()

    assert one.closed == 1
    assert await things.get() is not one
    await things.aclose()


def test_a_thing_is_closed_even_when_the_loop_ends_by_an_error() -> None:
    things = PerLoop(Thing, Thing.close)
    made: list[Thing] = []

    async def fail() -> None:
        made.append(await things.get())
        raise KeyError

    with pytest.raises(KeyError):
        anyio.run(fail)

    assert made[0].closed == 1


def test_loops_that_are_closed_without_an_end_are_let_go() -> None:
    things = PerLoop(Thing, Thing.close)

    async def ask() -> None:
        await things.get()

    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask())
        loop.close()  # and not asyncio.run, which closes generators first

    assert len(things._held) == 1
    anyio.run(ask)
    assert not things._held


def test_all_pools_share_authorities_that_are_read_once() -> None:
    assert authorities() is authorities()


def test_a_server_that_nobody_vouches_for_or_of_another_name_is_refused() -> None:
    assert authorities().verify_mode is ssl.CERT_REQUIRED
    assert authorities().check_hostname
