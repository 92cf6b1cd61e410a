"""The bodies of requests to a node: read within bounds, and counted while they are held."""

from collections.abc import Mapping
from typing import Final, Self

import anyio
from starlette.requests import ClientDisconnect, Request

from ryecore.node.problems import NodeProblem, refusal
from ryecore.policy.cancelling import watched

__all__ = ["BRIEF_BYTES", "HeldBodies", "HeldBody", "drain", "read_bounded"]

_MAX_BODIES_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of all bodies that are held at once."""

_READ_TIMEOUT_S: Final = 300.0
"""How long a body may take to come, in seconds."""

_DRAIN_TIMEOUT_S: Final = 5.0
BRIEF_BYTES: Final = 64 * 1024
"""A body of at most so many bytes is read as JSON at once, and not in a thread."""


class HeldBodies:
    """The bytes of all bodies of requests that are answered now."""

    def __init__(self) -> None:
        self.size_bytes = 0


class HeldBody:
    """The bytes of a body, counted among those of all bodies while its request is answered."""

    def __init__(self, bodies: HeldBodies) -> None:
        self._bodies = bodies
        self._size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.size_bytes -= self._size_bytes

    def grow(self, size_bytes: int) -> None:
        """Count further bytes.

        Raises:
            NodeProblem: `busy`: the node holds as many as it takes.
        """
        if self._bodies.size_bytes + size_bytes > _MAX_BODIES_BYTES:
            raise refusal(
                "busy",
                "The node reads as many bodies as it can hold.",
                next_step="Try again later.",
                retry_after_s=1,
            )
        self._bodies.size_bytes += size_bytes
        self._size_bytes += size_bytes


async def read_bounded(
    request: Request, headers: Mapping[str, str], max_bytes: int, held: HeldBody
) -> bytes:
    """Read a body, counted and bounded as it comes."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes)
    elif not length and "transfer-encoding" not in headers:
        request.state.body_has_ended = True
        return b""
    body = b""
    with anyio.CancelScope() as scope:

        def start_timer() -> None:
            scope.deadline = min(scope.deadline, anyio.current_time() + _READ_TIMEOUT_S)

        # A short body has come with its head, and is read without a timer.
        body = await watched(_read_parts(request, max_bytes, held), start_timer)
    if scope.cancelled_caught:
        raise refusal("invalid", "The body didn't come in time.")
    request.state.body_has_ended = True
    return body


async def _read_parts(request: Request, max_bytes: int, held: HeldBody) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        held.grow(len(chunk))
        parts.append(chunk)
        if not message.get("more_body", False):
            return b"".join(parts)


async def drain(request: Request, max_bytes: int) -> bool:
    """Read the rest of a refused body, so that its sender reads the answer.

    A connection that is closed on unread bytes may lose the answer on its way.

    Returns:
        Whether the body has ended. One that is longer than any that counts is read no further.
    """
    if getattr(request.state, "body_has_ended", False):
        return True
    left = max(max_bytes, BRIEF_BYTES)
    with anyio.move_on_after(_DRAIN_TIMEOUT_S):
        while left > 0:
            message = await request.receive()
            if message["type"] != "http.request" or not message.get("more_body"):
                return True
            left -= len(message.get("body", b""))
    return False


def _too_large(max_bytes: int) -> NodeProblem:
    return refusal(
        "too_large",
        f"The body is larger than {max_bytes:,} bytes.",
        next_step="Send less at once.",
    )
