"""A server that runs elsewhere, reached over HTTP: answers are bounded, secrets never told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from attrs import frozen
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from ryecore.bounded_http import BodyBounds, bound_body
from ryecore.mcp_client.peer import MAX_MESSAGE_BYTES, Peer
from ryecore.mcp_client.servers import HttpServer

__all__ = ["open_connection"]

_Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
_CONNECT_TIMEOUT_S: Final = 10.0
_READ_TIMEOUT_S: Final = 300.0


@asynccontextmanager
async def open_connection(server: HttpServer, peer: Peer) -> AsyncIterator[_Streams]:
    """Connect to a server.

    Args:
        server: How it is reached.
        peer: Told why it can't be used any more.

    Yields:
        The streams of a session.
    """
    client = _client(server, peer)
    transport = (
        sse_client(server.url, httpx_client_factory=_Factory(client))
        if server.transport == "sse"
        else _streamable(server.url, client)
    )
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    async with transport as (read, write), anyio.create_task_group() as pump:
        pump.start_soon(_count, read, to_session, peer)
        try:
            yield from_server, write
        finally:
            pump.cancel_scope.cancel()
            to_session.close()
            from_server.close()


@asynccontextmanager
async def _streamable(url: str, client: httpx2.AsyncClient) -> AsyncIterator[_Streams]:
    async with (
        client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


@frozen
class _Factory:
    """Gives the SDK the client that was made already."""

    client: httpx2.AsyncClient

    def __call__(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return self.client


def _client(server: HttpServer, peer: Peer) -> httpx2.AsyncClient:
    async def check(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            peer.heard(f"HTTP {response.status_code} {response.reason_phrase}\n")
        bound_body(response, BodyBounds(MAX_MESSAGE_BYTES), peer.fail)

    # The one stream of `sse` stays open between calls, whose own timeout the session keeps.
    call_timeout_s = None if server.transport == "sse" else server.timeout_s
    return httpx2.AsyncClient(
        headers={**server.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=call_timeout_s or _READ_TIMEOUT_S),
        follow_redirects=False,
        event_hooks={"response": [check]},
    )


async def _count(
    read: ReadStream[SessionMessage | Exception],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    peer: Peer,
) -> None:
    """Pass messages on, and count those that nobody asked for."""
    async with to_session:
        async for item in read:
            if isinstance(item, SessionMessage) and isinstance(
                item.message, JSONRPCResponse | JSONRPCError
            ):
                peer.answered()
            elif peer.unasked():
                return
            try:
                await to_session.send(item)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
    peer.fail("closed the connection")
