"""Responses of a node that are more than a document: an object, and a stream of events.

Source: docs/design/remote.md#requests.
"""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import BinaryIO, Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ryecore.node.events import NodeEvent
from ryecore.state.waiting import run_in_thread

__all__ = ["EventStream", "ObjectResponse", "read_range"]

_CHUNK_BYTES: Final = 256 * 1024
_KEEP_ALIVE_S: Final = 15.0
_RANGE: Final = re.compile(r"bytes=(0|[1-9][0-9]{0,15})-([0-9]{0,16})", re.ASCII)


def read_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Return the first byte of a range and the one behind its last; None for the whole.

    A header of another form counts as none.

    Raises:
        ValueError: The range begins behind the end.

    Source: RFC 9110, section 14.2.
    """
    found = _RANGE.fullmatch(header or "")
    if found is None:
        return None
    first = int(found[1])
    last = int(found[2]) if found[2] else size_bytes - 1
    if found[2] and last < first:
        return None
    if first >= size_bytes:
        raise ValueError("the range begins behind the end")
    return first, min(last, size_bytes - 1) + 1


class ObjectResponse(Response):
    """An object, or a range of it, read in chunks while it is sent."""

    media_type = "application/octet-stream"

    def __init__(self, file: BinaryIO, size_bytes: int, part: tuple[int, int] | None) -> None:
        first, end = part or (0, size_bytes)
        headers = {"Content-Length": str(end - first), "Accept-Ranges": "bytes"}
        if part is not None:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{size_bytes}"
        super().__init__(status_code=200 if part is None else 206, headers=headers)
        self._file, self._first, self._left = file, first, end - first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. A file that is shorter than it was ends the connection."""
        with self._file as file:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            file.seek(self._first)
            left = self._left
            while left:
                chunk = await run_in_thread(file.read, min(_CHUNK_BYTES, left))
                if not chunk:
                    raise OSError("an object became shorter while it was sent")
                left -= len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": left > 0})
            if not self._left:
                await send({"type": "http.response.body", "body": b""})


class EventStream(Response):
    """Events as they come, by SSE; a comment each 15 s shows that the connection lives."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[NodeEvent]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more, or the client has gone."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = anyio.Lock()

        async def write(text: str, *, more: bool = True) -> None:
            async with sending:
                message = {"type": "http.response.body", "body": text.encode(), "more_body": more}
                await send(message)

        async def keep_alive() -> None:
            while True:
                await anyio.sleep(_KEEP_ALIVE_S)
                await write(": alive\n\n")

        async def notice_end() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        async with aclosing(self._events) as events, anyio.create_task_group() as tasks:
            tasks.start_soon(keep_alive)
            tasks.start_soon(notice_end)
            async for one in events:
                data = json.dumps(one.data, separators=(",", ":"))
                await write(f"id: {one.id}\nevent: {one.event}\ndata: {data}\n\n")
            await write("", more=False)
            tasks.cancel_scope.cancel()
