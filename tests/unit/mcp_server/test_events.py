"""The messages that a client may ask for again."""

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
