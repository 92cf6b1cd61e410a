"""The connections to one node: one for each request at once, each used again for a while.

A pool for many hosts looks at all of its connections twice for each request, which took a third of
the caller's time of 200 calls at once. Here the one that was used last is taken.
"""

import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

import httpx2

from ryecore.bounded_http import check_size
from ryecore.frozen import frozen
from ryecore.remote.http11 import Connection, connect
from ryecore.remote.protocol.signatures import combine_headers

__all__ = ["Answer", "NodeBody", "NodeTransport"]

Timeouts: TypeAlias = Mapping[str, float | None]
Trace: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[None]]

_MAX_IDLE: Final = 100
"""The most connections that are kept for later requests."""

_IDLE_S: Final = 5.0
"""How long a connection is kept that nothing uses, in seconds; a node closes it then, too."""


@frozen(slots=False)
class Answer:
    """An answer that was read whole.

    Attributes:
        status: Its status.
        headers: Its headers, by their names in lower case.
        content: Its body.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes


class NodeTransport(httpx2.AsyncBaseTransport):
    """Requests to one origin, over HTTP/1.1.

    Args:
        url: A URL of the origin.
        tls: How its certificate is checked.
    """

    def __init__(self, url: httpx2.URL, tls: ssl.SSLContext) -> None:
        self._host = url.raw_host.decode("ascii")
        self._tls = tls if url.scheme == "https" else None
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._idle: deque[tuple[float, Connection]] = deque()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request whose body is in memory; return its response once its head has come."""
        timeouts: Timeouts = request.extensions.get("timeout", {})
        target, body = request.url.raw_path, await request.aread()
        head = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), target)]
        head += [b"%s: %s" % header for header in request.headers.raw]
        connection = await self._begin(head, body, timeouts, request.extensions.get("trace"))
        return self._response(connection, timeouts)

    async def exchange(
        self, head: Sequence[bytes], body: bytes, max_bytes: int, timeouts: Timeouts,
        trace: Trace | None,
    ) -> "Answer | httpx2.Response":  # fmt: skip
        """Send a request, and read all of its answer; without the objects that httpx2 makes.

        Args:
            head: Its lines.
            body: Its body.
            max_bytes: The most bytes of the answer's body.
            timeouts: Its timeouts, as httpx2 has them.
            trace: Called at its steps, as httpx2 does.

        Returns:
            The answer; an error, or an answer in a coding, as a response that is still to be read.

        Raises:
            httpx2.TransportError: There is no answer, or one that is larger.
        """
        connection = await self._begin(head, body, timeouts, trace)
        is_coded = any(name == b"content-encoding" for name, _ in connection.headers)
        if connection.status >= 300 or is_coded:
            return self._response(connection, timeouts)
        pieces: list[bytes] = []
        size_bytes = 0
        try:
            while piece := await connection.read_piece(timeouts.get("read")):
                size_bytes += len(piece)
                check_size(size_bytes, max_bytes)
                pieces.append(piece)
        finally:
            await self.give_back(connection)
        headers = combine_headers(connection.headers)
        return Answer(connection.status, headers, b"".join(pieces))

    async def _begin(
        self, head: Sequence[bytes], body: bytes, timeouts: Timeouts, trace: Trace | None
    ) -> Connection:
        """Send a request, and return its connection once the head of the answer has come."""
        connection = await self._take(timeouts.get("connect"))
        try:
            if trace is not None:
                await trace("http11.send_request_headers.started", {})
            await connection.send(head, body, timeouts.get("write"))
            if trace is not None:
                await trace("http11.receive_response_headers.started", {})
            await connection.read_head(timeouts.get("read"))
        except BaseException:
            await connection.close()
            raise
        return connection

    def _response(self, connection: Connection, timeouts: Timeouts) -> httpx2.Response:
        return httpx2.Response(
            connection.status,
            headers=connection.headers,
            stream=NodeBody(self, connection, timeouts.get("read")),
        )

    async def _take(self, timeout_s: float | None) -> Connection:
        now_s = time.monotonic()
        while self._idle:
            since_s, connection = self._idle.pop()
            if now_s - since_s <= _IDLE_S and connection.is_quiet:
                return connection
            await connection.close()
        return await connect(self._host, self._port, self._tls, timeout_s)

    async def give_back(self, connection: Connection) -> None:
        """Keep a connection whose response was read, or close it where it can't be used again."""
        now_s = time.monotonic()
        if connection.is_usable:
            self._idle.append((now_s, connection))
        else:
            await connection.close()
        while self._idle and (len(self._idle) > _MAX_IDLE or now_s - self._idle[0][0] > _IDLE_S):
            _, oldest = self._idle.popleft()
            await oldest.close()

    async def aclose(self) -> None:
        """Close the connections that nothing uses."""
        while self._idle:
            _, connection = self._idle.pop()
            await connection.close()


class NodeBody(httpx2.AsyncByteStream):
    """The body of a response, whose connection is given back at its end."""

    def __init__(
        self, transport: NodeTransport, connection: Connection, timeout_s: float | None
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._timeout_s = timeout_s
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._connection.read_piece(self._timeout_s):
            yield piece

    async def aclose(self) -> None:
        """Give the connection back."""
        if not self._is_closed:
            self._is_closed = True
            await self._transport.give_back(self._connection)
