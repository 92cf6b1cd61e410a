"""The protocol between the host and a kept connector: frames, on one socket for each call."""

import json
import socket
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import anyio

from ryecore.errors import ConfigError, McpError, McpToolChanged, MetadataError, RyeError

__all__ = [
    "START_STEP",
    "Kind",
    "encode_json",
    "error_document",
    "load_error",
    "receive_frame",
    "send_frame",
]

Kind = Literal[b"C", b"B", b"D", b"R", b"A", b"Q", b"Y", b"N"]
"""C: a call; B: it has begun; D: its document; R: a refusal; A: a refusal of a broken server, after
which another server may take the call; Q: a question to the host; Y: its answer; N: a report."""

START_STEP: Final = "Start the server by hand, as its item says, and see what it says."
"""The next step where a server, or its connector, ended."""

_FACTS: Final = ("server", "tool", "stderr", "is_unavailable")
_HEADER_BYTES: Final = 9
_CHUNK_BYTES: Final = 256 * 1024
_ERRORS: Final[Mapping[str, type[RyeError]]] = {
    kind.error_type: kind for kind in (McpError, McpToolChanged, ConfigError, MetadataError)
}


async def send_frame(connection: socket.socket, kind: Kind, payload: bytes = b"") -> None:
    """Send a frame on a socket that doesn't block."""
    left = memoryview(len(payload).to_bytes(8, "big") + kind + payload)
    while left:
        try:
            left = left[connection.send(left) :]
        except BlockingIOError:
            await anyio.wait_writable(connection)


async def receive_frame(
    connection: socket.socket, max_bytes: int | None = None
) -> tuple[bytes, bytes] | None:
    """Receive a frame on a socket that doesn't block; None where the other side is gone.

    A payload larger than `max_bytes` is an McpError; None is for the frames of a trusted sender.
    """
    header = await _receive(connection, _HEADER_BYTES)
    if header is None:
        return None
    size_bytes = int.from_bytes(header[:8], "big")
    if max_bytes is not None and size_bytes > max_bytes:
        raise McpError(
            f"The MCP server answered with {size_bytes} bytes, and {max_bytes} are kept.",
            next_step="Ask it for less, or raise max_output_bytes in the tool's config.",
            server="",
        )
    payload = await _receive(connection, size_bytes)
    return None if payload is None else (header[8:], payload)


async def _receive(connection: socket.socket, size_bytes: int) -> bytes | None:
    received = bytearray()
    while len(received) < size_bytes:
        try:
            chunk = connection.recv(min(_CHUNK_BYTES, size_bytes - len(received)))
        except BlockingIOError:
            await anyio.wait_readable(connection)
            continue
        except ConnectionError:
            return None
        if not chunk:
            return None
        received += chunk
    return bytes(received)


def encode_json(document: Mapping[str, object]) -> bytes:
    """Encode a document as JSON; a lone surrogate, which has no form in UTF-8, becomes `?`."""
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def error_document(error: RyeError) -> dict[str, object]:
    """Return an error as a document that `load_error` reads in another process.

    By hand: importing cattrs would take 12 ms of each call of a cold server.
    """
    facts = {name: error.facts[name] for name in _FACTS if name in error.facts}
    difference = error.facts.get("difference")
    if isinstance(difference, tuple):
        facts["difference"] = list(cast("tuple[str, ...]", difference))
    return {
        "success": False,
        "error": error.message,
        "error_type": error.error_type,
        "message": error.message,
        "next_step": error.next_step,
        **facts,
    }


def load_error(payload: bytes) -> RyeError:
    """Read an error from the document of another process."""
    document: dict[str, Any] = json.loads(payload)
    kind = _ERRORS.get(str(document.get("error_type")), McpError)
    facts: dict[str, object] = {name: document[name] for name in _FACTS if name in document}
    if "difference" in document:
        facts["difference"] = tuple(document["difference"])
    return kind(str(document.get("message")), next_step=str(document.get("next_step", "")), **facts)
