"""Requests to a server, and its responses, beginning with the version that both speak."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
from mcp.client.session import ClientSession
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    UNSUPPORTED_PROTOCOL_VERSION,
    JSONRPCRequest,
    UnsupportedProtocolVersionErrorData,
)
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ryecore.errors import McpError
from ryecore.mcp_client.peer import Peer, PendingRequests

__all__ = [
    "MALFORMED_RESPONSE",
    "TrackedStream",
    "agree_on_version",
    "await_response",
    "is_closed",
    "reason_of",
]


class TrackedStream:
    """The stream that a session writes to, which notes each request before it is sent.

    With `sends`, a message counts as sent once the stream has taken it.
    """

    def __init__(
        self, stream: WriteStream[SessionMessage], pending: PendingRequests, *, sends: bool
    ) -> None:
        self._stream = stream
        self._pending = pending
        self._sends = sends

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        if isinstance(item.message, JSONRPCRequest):
            self._pending.note_submitted(item.message.id)
            if self._sends:
                self._pending.mark_sent(item.message.id)  # even a cancelled send may have sent it
        await self._stream.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


T = TypeVar("T")

MALFORMED_RESPONSE: Final = (RuntimeError, ValueError)
"""The exceptions of the SDK for a response that is not one of the protocol."""


async def agree_on_version(client: ClientSession, peer: Peer, *, newest_first: bool) -> None:
    """Agree on a version, by `initialize` or by `server/discover`.

    The second is tried where the first is refused, with whatever error: servers before 2026-07-28
    don't know `server/discover`, and those that know only that version don't know `initialize`.
    `McpError` says that there is no common version, or that the connection broke off.

    Args:
        client: The SDK's session.
        peer: The server.
        newest_first: Whether `server/discover` is tried first, as the specification asks of clients
            over HTTP. A server that was started may end at a request that it doesn't know.

    Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning.
    """
    ways = [client.initialize, client.discover]
    first, second = reversed(ways) if newest_first else ways
    refused = await _try(first, peer)
    if refused is None:
        return
    if peer.next_step:  # it needs other credentials, not another version
        raise peer.error(f"can't be used: {_refusal_of(refused)}")
    try:
        again = await _try(second, peer)
    except McpError:
        problem = f"can't be used: {_refusal_of(refused)}; then it {peer.problem}"
        raise peer.error(problem, _versions_step(refused)) from None
    if again is None:
        peer.forget_output()
        return
    greeted, discovered = (again, refused) if newest_first else (refused, again)
    refusal = f"can't be used: {_refusal_of(greeted)}"
    if _refusal_of(discovered) != _refusal_of(greeted):
        refusal += f"; asked by server/discover: {_refusal_of(discovered)}"
    raise peer.error(refusal, _versions_step(refused, again))


async def _try(ask: Callable[[], Awaitable[object]], peer: Peer) -> Exception | None:
    """Return the refusal of a request; None where it went well."""
    try:
        await await_response(peer, ask)
    except (MCPError, *MALFORMED_RESPONSE) as error:
        return error
    except McpError as broke:
        if isinstance(refused := broke.__cause__, MCPError) and not is_closed(refused):
            problem = f"can't be used: {_refusal_of(refused)}; then it {peer.problem}"
            raise peer.error(problem, _versions_step(refused)) from None
        raise
    return None


def _refusal_of(error: Exception) -> str:
    if not isinstance(error, MCPError):
        return reason_of(error)
    supported = _supported_by(error)
    return error.error.message + (f" (it speaks {', '.join(supported)})" if supported else "")


def _supported_by(error: MCPError) -> list[str]:
    """Return the versions of the protocol that an error names."""
    try:
        return UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return []


def _versions_step(*errors: Exception) -> str:
    """Return the next step for a version mismatch, for which the SDK raises RuntimeError."""
    if any(
        error.error.code == UNSUPPORTED_PROTOCOL_VERSION
        if isinstance(error, MCPError)
        else isinstance(error, RuntimeError)
        for error in errors
    ):
        spoken = ", ".join(KNOWN_PROTOCOL_VERSIONS)
        return f"Use a version of the server that speaks one of MCP's versions {spoken}."
    return ""


async def await_response(peer: Peer, ask: Callable[[], Awaitable[T]]) -> T:
    """Send a request, and wait for its response as long as the server can be used."""
    responses: list[T] = []
    error: Exception | None = None
    async with anyio.create_task_group() as group:

        async def give_up() -> None:
            await peer.broken.wait()
            group.cancel_scope.cancel()

        group.start_soon(give_up)
        try:
            responses.append(await ask())
        except Exception as problem:  # not through the group, which would wrap it
            error = problem
        group.cancel_scope.cancel()
    if responses:
        return responses[0]
    if isinstance(error, MCPError) and is_closed(error):
        peer.fail(f"broke off: {error.error.message}")
    if peer.broken.is_set() or error is None:
        raise peer.error(peer.problem) from error
    raise error


def is_closed(error: MCPError) -> bool:
    """Return whether the SDK reports a closed connection; servers use the same code otherwise."""
    return error.error.code == CONNECTION_CLOSED and error.error.message == "Connection closed"


def reason_of(problem: Exception) -> str:
    """Return the problem of a response in a few words."""
    if isinstance(problem, ValidationError):
        first = problem.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(problem)
