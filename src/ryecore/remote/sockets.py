"""A connection of asyncio's as a stream: each packet wakes its reader once, and nothing else.

anyio's stream takes the socket out of the event loop's selector after each read and puts it back
for the next one, and yields to the loop before each write.
"""

import asyncio
from collections import deque
from typing import Final, cast

import anyio
from typing_extensions import override

__all__ = ["LoopStream"]

_MAX_WAITING_BYTES: Final = 256 * 1024
"""From so many bytes on that nobody has taken, nothing more is read."""


class LoopStream(asyncio.Protocol):
    """The bytes of one connection, for one reader and one writer. It has anyio's errors."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._has_ended = self._is_paused = False
        self._failure: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, host: str, port: int) -> "LoopStream":
        """Connect to a server.

        Raises:
            OSError: It can't be reached.
        """
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(cls, host, port, happy_eyeballs_delay=0.25)
        return stream

    @property
    def descriptor(self) -> int:
        """The descriptor of its socket."""
        return cast(int, self._open.get_extra_info("socket").fileno())

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that was not received, such as the end."""
        return not self._received and not self._has_ended

    @property
    def _open(self) -> asyncio.Transport:
        if self._transport is None:
            raise anyio.ClosedResourceError
        return self._transport

    async def send(self, data: bytes) -> None:
        """Send bytes; wait while the socket takes none."""
        if self._has_ended or self._open.is_closing():
            raise anyio.BrokenResourceError from self._failure
        self._open.write(data)
        if self._writer is not None:
            await self._writer

    async def receive(self) -> bytes:
        """Return what comes next.

        Raises:
            EndOfStream: The other end has closed the connection.
            BrokenResourceError: It broke.
        """
        while not self._received:
            if self._failure is not None:
                raise anyio.BrokenResourceError from self._failure
            if self._has_ended:
                raise anyio.EndOfStream
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._received.popleft()
        self._waiting_bytes -= len(data)
        if self._is_paused and self._waiting_bytes < _MAX_WAITING_BYTES:
            self._is_paused = False
            self._open.resume_reading()
        return data

    async def aclose(self) -> None:
        """Close the connection at once."""
        self._has_ended = True
        self._open.abort()

    # What asyncio calls

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _MAX_WAITING_BYTES and not self._is_paused:
            self._is_paused = True
            self._open.pause_reading()
        _wake(self._reader)

    @override
    def eof_received(self) -> None:
        self._has_ended = True
        _wake(self._reader)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended, self._failure = True, exc
        _wake(self._reader)
        self.resume_writing()

    @override
    def pause_writing(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()

    @override
    def resume_writing(self) -> None:
        writer, self._writer = self._writer, None
        _wake(writer)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
