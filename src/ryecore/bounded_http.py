"""Bounds on the bodies of HTTP responses of model servers and MCP servers.

A response is bounded here as bytes, before an SDK joins, decodes or parses them. Compressed bodies
are refused, because their unpacked size has no bound; every request asks for `identity`. Headers
are bounded by the HTTP library, at 100 KiB.

Source: decision 82.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import httpx2

from ryecore.frozen import frozen

__all__ = [
    "BodyBounds",
    "BoundedTransport",
    "ResponseOutOfBounds",
    "bound_body",
    "check_size",
    "out_of_bounds",
]

MAX_ERROR_BYTES: Final = 64 * 1024
_PIECE_BYTES: Final = 64 * 1024
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_MAX_END_BYTES: Final = 4
# A comment goes with the line end before it: the one behind it may be the half of an event's end.
# Behind a lone \r, dropping a line could join two line ends to one.
_COMMENT: Final = re.compile(
    rb"\A(?::[^\r\n]*(?:\r\n|\n|\r))+|(?<!\r)(?:\r\n|\n|\r):[^\r\n]*(?=[\r\n])"
)
_MAX_CAUSES: Final = 16


class ResponseOutOfBounds(httpx2.TransportError):
    """A server's response is larger than the bounds, or compressed.

    `problem` says what is wrong with it, as the end of a sentence about the server.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


@frozen
class BodyBounds:
    """The bounds of a response.

    Attributes:
        max_bytes: The largest body, or event of an event stream.
        max_stream_bytes: The largest event stream as a whole; None for no bound.
        max_json_values: How many JSON values a body or an event may hold, roughly: parsed, a small
            value takes many times its bytes. None for no bound.
        max_copied_bytes: How large a body or an event may be times the number of its lines: an SDK
            may copy what it has at each line. None for no bound.
    """

    max_bytes: int
    max_stream_bytes: int | None = None
    max_json_values: int | None = None
    max_copied_bytes: int | None = None


class BoundedTransport(httpx2.AsyncBaseTransport):
    """A transport whose responses are bounded."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, bounds: BodyBounds) -> None:
        self._transport = transport
        self._bounds = bounds

    def bounded_by(self, bounds: BodyBounds) -> "BoundedTransport":
        """Return a transport with the same connections and other bounds."""
        return BoundedTransport(self._transport, bounds)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        request.headers["accept-encoding"] = "identity"
        response = await self._transport.handle_async_request(request)
        try:
            bound_body(response, self._bounds)
        except ResponseOutOfBounds:
            await response.aclose()
            raise
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def bound_body(
    response: httpx2.Response,
    bounds: BodyBounds,
    on_excess: Callable[[str], None] | None = None,
) -> None:
    """Bound a response. Of an error's body, only the beginning is read.

    `on_excess` is called with what is wrong, before `ResponseOutOfBounds` is raised: at once for a
    compressed response, while reading for one that is too large.
    """
    body = response.stream
    if not isinstance(body, httpx2.AsyncByteStream):
        return
    codings = response.headers.get_list("content-encoding", split_commas=True)
    if response.status_code >= 300:
        # The status tells what happened, in whatever form the text is.
        for name in ("content-encoding", "content-length"):
            response.headers.pop(name, None)
        is_readable = all(one.strip().lower() in ("", "identity") for one in codings)
        response.stream = _ErrorBody(body, MAX_ERROR_BYTES if is_readable else 0)
        return
    limit = _Limit(bounds, on_excess)
    if any(one.strip().lower() not in ("", "identity") for one in codings):
        limit.refuse("answered in a compressed form, though identity was asked for")
    content_type = response.headers.get("content-type", "")
    if content_type.strip().lower().startswith("text/event-stream"):
        response.stream = _EventBody(body, limit)
    else:
        response.stream = _Body(body, limit)


def out_of_bounds(error: BaseException) -> ResponseOutOfBounds | None:
    """Return the response out of bounds that caused an error; None for another cause."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None or isinstance(cause, ResponseOutOfBounds):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


class _Limit:
    """Counts the bytes of the body or event that is read, and refuses one that is too large."""

    __slots__ = ("_bounds", "_lines", "_on_excess", "_values")

    def __init__(self, bounds: BodyBounds, on_excess: Callable[[str], None] | None) -> None:
        self._bounds = bounds
        self._on_excess = on_excess
        self.begin()

    def begin(self) -> None:
        """Begin to count a new body or event."""
        self._lines = self._values = 0

    def refuse(self, problem: str) -> None:
        """Refuse the response."""
        if self._on_excess is not None:
            self._on_excess(problem)
        raise ResponseOutOfBounds(problem)

    def check(self, piece: bytes | bytearray, size_bytes: int, what: str = "") -> None:
        """Count another piece of a body or an event."""
        bounds = self._bounds
        if size_bytes > bounds.max_bytes:
            self.refuse(_excess(bounds.max_bytes, what))
        if bounds.max_json_values is not None:
            # What opens values and what separates them.
            self._values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
            if self._values > bounds.max_json_values:
                self.refuse(f"answered with {what}more than {bounds.max_json_values} JSON values")
        if bounds.max_copied_bytes is not None:
            self._lines += piece.count(b"\n") + piece.count(b"\r")
            if self._lines * size_bytes > bounds.max_copied_bytes:
                self.refuse(f"answered with {what}{_mib(size_bytes)} in {self._lines} lines")

    def check_stream(self, size_bytes: int) -> None:
        """Check the size of a whole event stream."""
        most = self._bounds.max_stream_bytes
        if most is not None and size_bytes > most:
            self.refuse(f"answered with a stream of more than {_mib(most)}")


class _Body(httpx2.AsyncByteStream):
    """Yield a body in large pieces, however small the server's are."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: _Limit) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        piece = bytearray()
        async with _chunks(self._body) as chunks:
            async for chunk in chunks:
                size_bytes += len(chunk)
                self._limit.check(chunk, size_bytes)
                piece += chunk
                if len(piece) >= _PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
        if piece:
            yield bytes(piece)

    async def aclose(self) -> None:
        await self._body.aclose()


class _EventBody(httpx2.AsyncByteStream):
    """Yield an event stream in whole events, so that an SDK doesn't copy each piece by piece.

    Comments, which keep a connection alive, are left out: some SDKs don't know them.
    """

    def __init__(self, body: httpx2.AsyncByteStream, limit: _Limit) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        limit = self._limit
        size_bytes = 0
        pending = bytearray()
        async with _chunks(self._body) as chunks:
            async for chunk in chunks:
                size_bytes += len(chunk)
                limit.check_stream(size_bytes)
                searched = max(0, len(pending) - _MAX_END_BYTES)
                pending += chunk
                end = _last_event_end(pending, searched)
                if not end:
                    limit.check(chunk, len(pending), "an event of ")
                    continue
                events = _COMMENT.sub(b"", pending[:end])
                if events.strip():
                    yield bytes(events)
                del pending[:end]
                limit.begin()
                limit.check(pending, len(pending), "an event of ")
        if pending:
            yield bytes(_COMMENT.sub(b"", pending))

    async def aclose(self) -> None:
        await self._body.aclose()


class _ErrorBody(httpx2.AsyncByteStream):
    """Yield the beginning of an error's body."""

    def __init__(self, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        piece = bytearray()
        async with _chunks(self._body) as chunks:
            async for chunk in chunks:
                piece += chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    break
        yield bytes(piece)

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def _chunks(body: httpx2.AsyncByteStream) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the chunks of a body, and close its generator at the end."""
    chunks = aiter(body)
    try:
        yield chunks
    finally:
        aclose = getattr(chunks, "aclose", None)
        if aclose is not None:
            await aclose()


def _last_event_end(pending: bytearray, searched: int) -> int:
    """Return the index at which the last whole event ends; 0 where none does."""
    found = 0
    for end in _EVENT_ENDS:
        place = pending.rfind(end, searched)
        if place >= 0:
            found = max(found, place + len(end))
    return found


def check_size(size_bytes: int, max_bytes: int) -> None:
    """Refuse a body that is read whole, if it is too large.

    Raises:
        ResponseOutOfBounds: It has more than `max_bytes`.
    """
    if size_bytes > max_bytes:
        raise ResponseOutOfBounds(_excess(max_bytes))


def _excess(max_bytes: int, what: str = "") -> str:
    return f"answered with {what}more than {_mib(max_bytes)}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes} bytes"
