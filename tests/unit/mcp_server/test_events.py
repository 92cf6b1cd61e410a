"""The messages that a client may ask for again."""

import time
from typing import Any

import pytest
from mcp_types import JSONRPCResponse

from ryecore.mcp_server.events import EventLog, SessionEvents

pytestmark = pytest.mark.anyio


def message(number: int, text: str = "") -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": text})


async def replayed(store: SessionEvents, event_id: str) -> tuple[str | None, list[Any]]:
    found: list[Any] = []

    async def send(event: Any) -> None:
        found.append(event.message.id)

    return await store.replay_events_after(event_id, send), found


async def test_what_came_after_an_event_of_its_stream_is_sent_again() -> None:
    log = EventLog()
    one, two = SessionEvents(log), SessionEvents(log)
    first = await one.store_event("1", None)
    await one.store_event("1", message(1))
    await two.store_event("1", message(2))
    await one.store_event("2", message(3))
    last = await one.store_event("1", message(4))
    assert await replayed(one, first) == ("1", [1, 4])
    assert await replayed(one, last) == ("1", [])
    assert await replayed(two, first) == (None, [])
    assert await replayed(one, "unknown") == (None, [])


async def test_the_oldest_are_forgotten_by_number_and_by_size() -> None:
    store = SessionEvents(EventLog(max_events=2))
    ids = [await store.store_event("1", message(number)) for number in range(3)]
    assert await replayed(store, ids[0]) == (None, [])
    assert await replayed(store, ids[1]) == ("1", [2])
    store = SessionEvents(EventLog(max_bytes=1000))
    first = await store.store_event("1", message(1))
    await store.store_event("1", message(2, "x" * 2000))
    assert await replayed(store, first) == (None, [])


def test_a_read_takes_no_longer_for_what_other_sessions_have() -> None:
    def reads_s(others: int) -> float:
        log, own = EventLog(), object()
        last = log.add(own, "s", None)
        log.add(own, "s", message(1))
        for number in range(others):
            log.add(object(), str(number), message(2))
        began = time.perf_counter()
        for _ in range(100):
            found = log.after(own, last)
            assert found is not None
            assert len(found[1]) == 1
        return time.perf_counter() - began

    # With 9,000 others, a walk over all of them takes some hundred times as long.
    assert min(reads_s(9_000) for _ in range(3)) < 20 * min(reads_s(0) for _ in range(3))
