"""Tests of the responses of a node that are more than a document."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from starlette.types import Message

from ryecore.node.events import NodeEvent
from ryecore.node.responses import EventStream

pytestmark = pytest.mark.anyio


async def test_events_are_closed_with_the_connection_that_they_are_sent_to() -> None:
    closed, sending = anyio.Event(), anyio.Event()

    async def events() -> AsyncGenerator[NodeEvent]:
        try:
            yield NodeEvent(1, "status", {"status": "running"})
        finally:
            closed.set()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            sending.set()
            await anyio.sleep_forever()  # as where the other end reads no more

    async def receive() -> Message:
        await sending.wait()
        return {"type": "http.disconnect"}

    stream = EventStream(events())
    with anyio.fail_after(10):
        await stream({"type": "http"}, receive, send)

    assert closed.is_set()
