"""How long a server is tried that can't be reached, by a clock that jumps."""

import anyio
import trio.testing

from ryecore.mcp_client.followed import ReconnectBackoff


def test_a_server_is_tried_ever_more_rarely_and_for_two_minutes() -> None:
    async def tries() -> list[float]:
        backoff, began = ReconnectBackoff(), anyio.current_time()
        found = []
        while await backoff.wait():
            found.append(round(anyio.current_time() - began, 1))
        return found

    found = run(tries)
    assert found[:4] == [0.1, 0.3, 0.7, 1.5]
    assert found[-1] - found[-2] == 5.0
    assert 120 < found[-1] <= 125


def test_only_a_session_that_lasted_begins_the_search_anew() -> None:
    async def pauses() -> list[float]:
        backoff, found = ReconnectBackoff(), []
        for lasted_s in (0, 1, 11, 1):
            began = anyio.current_time()
            assert await backoff.wait()
            found.append(round(anyio.current_time() - began, 1))
            with backoff.session():
                await anyio.sleep(lasted_s)
        return found

    assert run(pauses) == [0.1, 0.2, 0.4, 0.1]


def run(work):
    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(work, backend="trio", backend_options={"clock": clock})
