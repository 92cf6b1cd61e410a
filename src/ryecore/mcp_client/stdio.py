"""A server that runs as a child process, with messages as bounded lines.

It belongs to this process's group, so that a signal to the group reaches the server and what the
server has started. The SDK's own transport gives it a session of its own, and keeps a line of any
length in memory.
"""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from ryecore.mcp_client.exchange import TrackedStream
from ryecore.mcp_client.peer import MAX_MESSAGE_BYTES, Peer
from ryecore.mcp_client.wire import START_STEP

__all__ = ["Streams", "connect_process"]

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], TrackedStream]
"""The streams of a session: what it reads from, and what it writes to."""

_CHUNK_BYTES: Final = 64 * 1024
_MAX_DRAINED: Final = 16
_GRACE_S: Final = 1.0
_MAX_SHOWN_CHARS: Final = 200


@asynccontextmanager
async def connect_process(
    process: subprocess.Popen[bytes], peer: Peer, *, leads_group: bool
) -> AsyncIterator[Streams]:
    """Connect the standard streams of a started server to a session, and end the server after it.

    `peer` collects its other output, and why it ended. `leads_group` says whether this process
    leads a group of its own, which may be signalled.
    """
    stdin, stdout, stderr = (_unblocked(one) for one in _pipes(process))
    drain, peer.drain = peer.drain, partial(_drain, stderr, peer)
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as pumps:
        pumps.start_soon(_read_messages, stdout, to_session, peer, process)
        pumps.start_soon(_read_errors, stderr, peer)
        pumps.start_soon(_write_messages, stdin, from_session, peer)
        try:
            yield from_server, TrackedStream(to_server, peer.pending, sends=False)
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, leads_group=leads_group)
            peer.drain()
            peer.drain = drain  # before another file has this descriptor
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            pumps.cancel_scope.cancel()
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int, int]:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise AssertionError("it was started with pipes")
    return process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()


def _unblocked(descriptor: int) -> int:
    os.set_blocking(descriptor, False)
    return descriptor


async def _read(descriptor: int) -> bytes:
    """Read some bytes; none at the end."""
    while True:
        await anyio.wait_readable(descriptor)
        with suppress(BlockingIOError):
            return os.read(descriptor, _CHUNK_BYTES)


async def _read_messages(
    stdout: int,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    peer: Peer,
    process: subprocess.Popen[bytes],
) -> None:
    line = bytearray()
    async with to_session:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while chunk := await _read(stdout):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    line += end
                    if line.strip() and not await _take(bytes(line), to_session, peer):
                        return
                    line.clear()
                line += rest
                if len(line) > MAX_MESSAGE_BYTES:
                    peer.fail(f"wrote a line of more than {MAX_MESSAGE_BYTES >> 20} MiB")
                    return
            peer.fail(await _describe_end(process), START_STEP)


async def _take(
    line: bytes, to_session: MemoryObjectSendStream[SessionMessage | Exception], peer: Peer
) -> bool:
    """Pass a line's message to the session; return whether the server may continue."""
    message = _message(line)
    if message is None:
        # Some servers print a banner. It is shown where the server then doesn't respond.
        start = line[:_CHUNK_BYTES].decode(errors="replace")
        peer.add_output(peer.without_secrets(start)[:_MAX_SHOWN_CHARS] + "\n")
        return not peer.note_unrequested()
    if isinstance(message, JSONRPCResponse | JSONRPCError):
        peer.note_response()
    elif peer.note_unrequested():
        return False
    await to_session.send(SessionMessage(message))
    return True


def _message(line: bytes) -> JSONRPCMessage | None:
    """Parse a line: its message, or an error under the request's id for an unreadable response.

    Any other line gives None.
    """
    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    try:
        document = json.loads(line.decode(errors="replace"))
        # A lone surrogate, which JavaScript leaves where it cuts a text, is replaced.
        whole = json.dumps(document, ensure_ascii=False).encode(errors="replace")
    except (ValueError, RecursionError):
        return None
    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(whole, by_name=False)
    if not isinstance(document, dict) or "method" in document or document.get("id") is None:
        return None
    problem = ErrorData(
        code=PARSE_ERROR, message="The server's response is not one of the protocol."
    )
    with suppress(ValueError):  # its id is not one of JSON-RPC
        return JSONRPCError(jsonrpc="2.0", id=document["id"], error=problem)
    return None


async def _describe_end(process: subprocess.Popen[bytes]) -> str:
    if not await _ended_within(process, _GRACE_S):
        return "closed its output"
    if process.returncode < 0:
        return f"was ended by signal {-process.returncode}"
    return f"ended with exit code {process.returncode}"


async def _read_errors(stderr: int, peer: Peer) -> None:
    while chunk := await _read(stderr):
        peer.add_output(chunk.decode(errors="replace"))


def _drain(stderr: int, peer: Peer) -> None:
    """Read what a server has written to its standard error, as far as a pipe holds that."""
    with suppress(BlockingIOError):
        for _ in range(_MAX_DRAINED):
            if not (chunk := os.read(stderr, _CHUNK_BYTES)):
                return
            peer.add_output(chunk.decode(errors="replace"))


async def _write_messages(
    stdin: int, from_session: MemoryObjectReceiveStream[SessionMessage], peer: Peer
) -> None:
    async with from_session:
        async for item in from_session:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            left = memoryview(text.encode() + b"\n")
            while left:
                if peer.broken.is_set():  # its calls have failed as not sent
                    return
                try:
                    left = left[os.write(stdin, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(stdin)
                except OSError:
                    peer.fail("closed its input", START_STEP)
                    return
                if len(left) <= 1 and isinstance(item.message, JSONRPCRequest):
                    peer.pending.mark_sent(item.message.id)  # at most its line end is missing


async def _end(process: subprocess.Popen[bytes], *, leads_group: bool) -> None:
    """End a server as the protocol asks: close its input, then TERM, then KILL; then wait."""
    if process.stdin is not None:
        process.stdin.close()
    if not await _ended_within(process, _GRACE_S):
        if leads_group:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.killpg(0, signal.SIGTERM)
        else:
            process.terminate()
        if not await _ended_within(process, _GRACE_S):
            process.kill()
            await _ended_within(process, _GRACE_S)


async def _ended_within(process: subprocess.Popen[bytes], time_s: float) -> bool:
    if process.poll() is not None:
        return True
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # there is no such process
        return False
    try:
        with anyio.move_on_after(time_s):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    return process.poll() is not None
