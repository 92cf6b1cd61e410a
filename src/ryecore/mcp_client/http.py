"""A server reached over HTTP: its responses are bounded, and its refusals interpreted.

Source:
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management.
"""

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from ryecore.bounded_http import BodyBounds, bound_body
from ryecore.errors import McpError
from ryecore.frozen import frozen
from ryecore.mcp_client.exchange import TrackedStream
from ryecore.mcp_client.peer import MAX_MESSAGE_BYTES, Peer
from ryecore.mcp_client.servers import HttpServer
from ryecore.mcp_client.tokens import is_scope, may_carry_tokens

__all__ = ["is_session_unknown", "number_of", "open_connection"]

_Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
_CONNECT_TIMEOUT_S: Final = 10.0
_READ_TIMEOUT_S: Final = 300.0
_UNAVAILABLE: Final = (502, 503, 504)
"""The statuses by which a gateway says that it can't reach the server.

Source: RFC 9110, section 15.6.
"""
_SESSION_ID: Final = "mcp-session-id"


@asynccontextmanager
async def open_connection(
    server: HttpServer, peer: Peer, auth: httpx2.Auth | None = None
) -> AsyncIterator[_Streams]:
    """Connect to a server; `peer` is marked as unusable when the connection breaks."""
    client = _Client(server, peer, auth)
    transport = (
        sse_client(server.url, httpx_client_factory=_Factory(client))
        if server.transport == "sse"
        else _streamable(server.url, client)
    )
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    async with transport as (read, write), anyio.create_task_group() as pump:
        pump.start_soon(_forward, read, to_session, peer)
        try:
            yield from_server, TrackedStream(write, peer.pending, sends=True)
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
    """A factory that gives the SDK the client that exists already."""

    client: httpx2.AsyncClient

    def __call__(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return self.client


class _Client(httpx2.AsyncClient):
    """A client that notes which requests the server refused without reading them."""

    def __init__(self, server: HttpServer, peer: Peer, auth: httpx2.Auth | None) -> None:
        # The one stream of `sse` stays open between calls; the session times each call.
        call_timeout_s = None if server.transport == "sse" else server.timeout_s
        super().__init__(
            headers={**server.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=call_timeout_s or _READ_TIMEOUT_S),
            follow_redirects=False,
            event_hooks={"response": [self._bound]},
            auth=auth,
        )
        self._server = server
        self._is_sse = server.transport == "sse"
        self._peer = peer

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, and note it as unsent where no connection can be made."""
        self._peer.is_unavailable = False
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as problem:
            self._peer.pending.mark_unsent(number_of(request.content))
            self._peer.is_unavailable = True
            self._peer.fail(
                f"can't be reached: {problem or 'it took too long'}",
                "See that it runs at config.url of its item, and that the network allows it.",
            )
            raise
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as problem:
            self._peer.fail(f"broke off: {problem or type(problem).__name__}", "Call it again.")
            raise
        except McpError as problem:  # no authorization could be had
            self._peer.note(f"The authorization failed: {problem.message}")
            response = httpx2.Response(401, request=request)
        if response.status_code >= 400:
            await self._note_refusal(response)
        return response

    async def _bound(self, response: httpx2.Response) -> None:
        bound_body(response, BodyBounds(MAX_MESSAGE_BYTES), self._peer.fail)

    async def _note_refusal(self, response: httpx2.Response) -> None:
        status, request = response.status_code, response.request
        if status == 405 and request.method == "GET" and not self._is_sse:
            return  # as the protocol lets a server answer that sends no events of its own
        self._peer.is_unavailable = status in _UNAVAILABLE
        self._peer.note(f"HTTP {status}", f" {response.reason_phrase}")
        if status in (401, 403):
            from mcp.client.auth.utils import (  # noqa: PLC0415 - imports much, only for refusals
                extract_scope_from_www_auth,
            )

            scope = extract_scope_from_www_auth(response) or ""
            self._peer.next_step = _credentials_step(status, self._server, self._peer.name, scope)
        if request.method != "POST":
            return
        number = number_of(request.content)
        body = await response.aread() if status < 500 else b""
        if is_session_unknown(status, body, number, has_session=_SESSION_ID in request.headers):
            self._peer.pending.mark_refused(number, status)
            self._peer.fail(f"no longer knows the session (HTTP {status})", "Call it again.")
        elif status in (401, 403) or (self._is_sse and status < 500):
            self._peer.pending.mark_refused(number, status)
        if self._is_sse:  # its transport would wait for a response for ever
            self._peer.fail(f"refused a message (HTTP {status} {response.reason_phrase})")


def _credentials_step(status: int, server: HttpServer, name: str, scope: str = "") -> str:
    """Return the next step for a server that wants other credentials, or those of a scope."""
    if not server.headers:
        if not may_carry_tokens(server.url):
            return "It wants credentials, which go over https alone: correct config.url."
        if server.oauth is not None and server.oauth.grant != "authorization_code":
            return "Correct config.oauth of its item, and set the variables that it names."
        scopes = f" --scope {shlex.quote(scope)}" if scope and is_scope(scope) else ""
        return (
            f"Log in: rye mcp login {name}{scopes}. If it wants a token that you have: let its "
            'item send it, as config: {headers: {Authorization: "Bearer ${A_TOKEN}"}} with '
            'env_config: {env: {A_TOKEN: "${A_TOKEN}"}}, sign it, and set A_TOKEN.'
        )
    names = ", ".join(server.headers)
    wanted = "with the rights for this" if status == 403 else "that it accepts"
    return (
        f"It refuses what config.headers of the server's item sends ({names}): set the variables "
        f"that they name to credentials {wanted}, or correct the headers and sign the item again."
    )


async def _forward(
    read: ReadStream[SessionMessage | Exception],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    peer: Peer,
) -> None:
    """Pass messages on, and count those that aren't a response."""
    async with to_session:
        async for item in read:
            if isinstance(item, SessionMessage) and isinstance(
                item.message, JSONRPCResponse | JSONRPCError
            ):
                peer.note_response()
            elif peer.note_unrequested():
                return
            try:
                await to_session.send(item)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
    peer.fail("closed the connection", "See that the server runs, and call it again.")


_METHOD_NOT_FOUND: Final = -32601


def number_of(message: bytes) -> object:
    """Return the id of a JSON-RPC message; None where it has none."""
    document = _document(message)
    return document.get("id") if document is not None else None


def is_session_unknown(status: int, body: bytes, number: object, *, has_session: bool) -> bool:
    """Return whether a server refused a request unread because it doesn't know its session.

    The specification says 404. Servers that were started again also say 400, and some 401. An error
    under the request's own id comes from a server that has read it, and so knows the session.
    """
    if not has_session:
        return False
    document = _document(body) or {}
    error = document.get("error")
    is_answer = isinstance(error, dict) and document.get("id") == number
    match status:
        case 404 | 410:
            return not (isinstance(error, dict) and error.get("code") == _METHOD_NOT_FOUND)
        case 400:
            return number is not None and not is_answer
        case 401:
            return not is_answer and b"session" in body.lower()
        case _:
            return False


def _document(text: bytes) -> dict[str, object] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
