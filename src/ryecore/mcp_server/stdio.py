"""The server on standard input and output, for a client that has started it.

Unlike the SDK's own transport it reads without a thread, so that it can end at once, and it bounds
a line.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ryecore.errors import ConfigError
from ryecore.strict_json import replace_surrogates

__all__ = ["serve_stdio"]

MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_SURELY_FITS_BYTES: Final = 4096
"""The bytes that a ready pipe or socket takes without blocking."""

_FLUSH_S: Final = 2.0

_logger = logging.getLogger(__name__)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the client at standard input and output, until it closes the input.

    Meanwhile everything but the protocol that is printed goes to standard error.

    Args:
        server: The server of `create_server`.

    Raises:
        ConfigError: One of them is closed.
    """
    with _wire() as (source, sink):
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as pumps:
            with anyio.CancelScope() as reading:
                pumps.start_soon(_read_messages, source, to_server, reading)
                pumps.start_soon(_write_messages, sink, from_server, pumps.cancel_scope)
                await server.run(incoming, outgoing, server.create_initialization_options())
            # A client that doesn't read can't keep the server from ending.
            pumps.cancel_scope.deadline = anyio.current_time() + _FLUSH_S
            reading.cancel()


@contextmanager
def _wire() -> Iterator[tuple[int, int]]:
    """Reserve two descriptors for the protocol; other output goes to standard error."""
    if None in (sys.stdin, sys.stdout):  # closed before Python began; others have the numbers now
        raise ConfigError(
            "MCP can't be served: this process has no standard input or output.",
            next_step="Have an MCP client start this, or pass --http PORT.",
        )
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for descriptor in (nothing, source, sink):
            os.close(descriptor)


async def _read_messages(
    source: int,
    to_server: MemoryObjectSendStream[SessionMessage | Exception],
    reading: anyio.CancelScope,
) -> None:
    line = bytearray()
    is_too_long = False
    async with to_server:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while chunk := await _read(source):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    line += end
                    if not is_too_long and line.strip():
                        await to_server.send(_message(bytes(line)))
                    is_too_long = False
                    line.clear()
                line += rest
                if len(line) > MAX_MESSAGE_BYTES:
                    if not is_too_long:
                        _logger.error("a message has more than %s bytes", MAX_MESSAGE_BYTES)
                    is_too_long = True
                    line.clear()


async def _read(source: int) -> bytes:
    """Read some bytes; none at the end, or where standard input can't be read."""
    with suppress(PermissionError):  # a file, or the null device, is always ready
        await anyio.wait_readable(source)
    try:
        return os.read(source, _CHUNK_BYTES)
    except OSError:
        return b""


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as problem:
        with suppress(ValueError, RecursionError):
            whole = _replace_surrogates(line)
            return SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))
        _logger.warning("skipped a line that isn't a message: %.80r", line)
        return problem


def _replace_surrogates(line: bytes) -> bytes:
    """Return a line with a question mark for each lone surrogate of a text that was cut.

    Otherwise the request couldn't be read, and the client would wait for its response for ever.
    """
    return json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace")


def _line(item: SessionMessage) -> bytes:
    """Return a message as JSON; one with a lone surrogate doesn't end the server."""
    try:
        return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        plain = item.message.model_dump(by_alias=True, exclude_unset=True)
        return json.dumps(replace_surrogates(plain), default=str).encode()


async def _write_messages(
    sink: int, from_server: MemoryObjectReceiveStream[SessionMessage], all_: anyio.CancelScope
) -> None:
    async with from_server:
        async for item in from_server:
            left = memoryview(_line(item) + b"\n")
            try:
                while left:
                    with suppress(PermissionError):
                        await anyio.wait_writable(sink)
                    left = left[os.write(sink, left[:_SURELY_FITS_BYTES]) :]
            except OSError:  # the client has gone
                all_.cancel()
                return
