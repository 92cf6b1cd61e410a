"""One connection to a node: requests by HTTP/1.1, one after the other.

Requests have all of their body in memory; answers come in pieces, parsed by httptools.

Source: RFC 9112.
"""

import select
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import anyio
import httpx2
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import current_token
from anyio.streams.tls import TLSStream
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

__all__ = ["Connection", "connect"]

_JOINED_BYTES: Final = 64 * 1024
_MAX_HEAD_BYTES: Final = 100 * 1024
"""The most bytes that stand before, between and behind the parts of a body."""


async def connect(
    host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float | None
) -> "Connection":
    """Connect to a server.

    Args:
        host: Its name or address.
        port: Its port.
        tls: How its certificate is checked; None for plain HTTP.
        timeout_s: How long it may take, in seconds; None for no bound.

    Raises:
        httpx2.TransportError: It can't be reached, or its certificate isn't trusted.
    """
    stream: ByteStream | None = None
    try:
        with _within(timeout_s, httpx2.ConnectTimeout):
            if tls is None and hasattr(current_token().native_token, "add_reader"):
                return await _connect_on_asyncio(host, port)
            stream = await anyio.connect_tcp(host, port)
            raw = stream.extra(SocketAttribute.raw_socket).fileno()  # noqa: S610 - of anyio
            if tls is not None:
                tls.set_alpn_protocols(["http/1.1"])
                stream = await TLSStream.wrap(
                    stream, hostname=host, ssl_context=tls, standard_compatible=False
                )
            return Connection(stream, raw)
    except BaseException as problem:
        if stream is not None:
            await anyio.aclose_forcefully(stream)
        if isinstance(problem, OSError | anyio.BrokenResourceError | anyio.EndOfStream):
            raise httpx2.ConnectError(str(problem)) from problem
        raise


async def _connect_on_asyncio(host: str, port: int) -> "Connection":
    from ryecore.remote.sockets import LoopStream  # noqa: PLC0415 - where asyncio runs

    try:
        stream = await LoopStream.connect(host, port)
    except socket.gaierror:
        raise
    except OSError as problem:  # one for each address
        raise httpx2.ConnectError("All connection attempts failed") from problem
    return Connection(stream, stream.descriptor)


class _Stream(Protocol):
    """The bytes of a connection, with anyio's errors."""

    async def send(self, item: bytes, /) -> None: ...

    async def receive(self) -> bytes: ...

    async def aclose(self) -> None: ...


class Connection:
    """A connection, for one request at a time.

    Attributes:
        status: The status of the answer.
        headers: Its headers.
    """

    def __init__(self, stream: _Stream, descriptor: int) -> None:
        self._stream = stream
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._parser = HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._has_head = self._is_complete = self._stays_open = False
        self._awaited_bytes = 0
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    @property
    def is_usable(self) -> bool:
        """Whether its answer was read whole, and it can be used again."""
        return self._is_complete and self._stays_open

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come since the answer, such as the end of the connection."""
        return getattr(self._stream, "is_quiet", True) and not self._poll.poll(0)

    async def send(self, head: Iterable[bytes], body: bytes, timeout_s: float | None) -> None:
        """Send a request.

        Args:
            head: Its lines.
            body: Its body.
            timeout_s: How long each write may take, in seconds; None for no bound.
        """
        lines = [*head, b"\r\n"]
        text = b"\r\n".join(lines)
        if text.count(b"\n") != len(lines) or text.count(b"\r") != len(lines):
            raise httpx2.LocalProtocolError("A header holds the end of a line.")
        self._has_head = self._is_complete = False
        first = _JOINED_BYTES - len(text)  # in one packet with the head, where it is short
        try:
            with _within(timeout_s, httpx2.WriteTimeout):
                await self._stream.send(text + body[: max(first, 0)])
            if len(body) > first:
                with _within(timeout_s, httpx2.WriteTimeout):
                    await self._stream.send(body[max(first, 0) :])
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it may have answered before it read everything

    async def read_head(self, timeout_s: float | None) -> None:
        """Read the head of the answer."""
        while not self._has_head:
            await self._receive(timeout_s)

    async def read_piece(self, timeout_s: float | None) -> bytes:
        """Return what comes next of the answer's body; nothing at its end."""
        while not self._pieces and not self._is_complete:
            await self._receive(timeout_s)
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    async def close(self) -> None:
        """Close the connection at once, also in a cancelled task."""
        self._is_complete = False
        with anyio.CancelScope() as scope:
            scope.cancel()
            await self._stream.aclose()

    async def _receive(self, timeout_s: float | None) -> None:
        try:
            with _within(timeout_s, httpx2.ReadTimeout):
                data = await self._stream.receive()
        except anyio.EndOfStream:
            self._end()
            return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as problem:
            raise httpx2.ReadError(str(problem)) from problem
        self._awaited_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            reason = problem.__context__ or problem
            raise httpx2.RemoteProtocolError(f"the answer isn't HTTP: {reason}") from None
        if self._awaited_bytes > _MAX_HEAD_BYTES:
            raise httpx2.RemoteProtocolError("the head of the answer is too long")

    def _end(self) -> None:
        """Take the end of the connection, which is that of a body of unknown length."""
        names = {name for name, _ in self.headers}
        if not self._has_head or names & {b"content-length", b"transfer-encoding"}:
            raise httpx2.RemoteProtocolError(
                "Server disconnected without sending a complete response."
            )
        self._is_complete, self._stays_open = True, False

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin an answer."""
        if self._has_head:
            raise ValueError("there are two answers to one request")
        self.headers, self._pieces = [], []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self._has_head:  # else it is one of a trailer
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the head of an answer; one with a status below 200 comes before it."""
        self.status = self._parser.get_status_code()
        if self.status == 101:
            raise ValueError("another protocol was chosen")
        self._has_head = self.status >= 200
        self._stays_open = self._parser.should_keep_alive()
        self._awaited_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._pieces.append(body)
        self._awaited_bytes = 0

    def on_message_complete(self) -> None:
        """Take the end of an answer."""
        self._is_complete = self._has_head


@contextmanager
def _within(timeout_s: float | None, kind: type[httpx2.TimeoutException]) -> Iterator[None]:
    """Raise an error of httpx2 where a time has passed."""
    if timeout_s is None:
        yield
        return
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError:
        raise kind(f"it took more than {timeout_s:g} s") from None
