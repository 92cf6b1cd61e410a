"""The server at the other end of a connection: its version, unanswered requests, and errors.

Errors quote the end of its output.

For each request it is tracked whether it may have reached the server: one that has not can be
repeated. The SDK numbers requests itself and doesn't expose the numbers, so a request is identified
by the context of the task that sends it.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
from attrs import define, field
from mcp.client.session import ClientSession
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    UNSUPPORTED_PROTOCOL_VERSION,
    JSONRPCRequest,
    RequestId,
    UnsupportedProtocolVersionErrorData,
)
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ryecore.display.sanitize import shorten
from ryecore.errors import McpError

__all__ = [
    "MALFORMED_RESPONSE",
    "MAX_MESSAGE_BYTES",
    "Peer",
    "PendingRequest",
    "PendingRequests",
    "TrackedStream",
    "agree_on_version",
    "await_response",
    "reason_of",
]


@define(eq=False)
class PendingRequest:
    """A request that is being sent.

    `is_sent` says whether the server may have received all of it; `status`, with which HTTP status
    it refused it unread, or 0.
    """

    is_sent: bool = False
    status: int = 0

    @property
    def may_have_run(self) -> bool:
        """Whether the server may have begun to process it."""
        return self.is_sent and not self.status


_current: Final[ContextVar[PendingRequest | None]] = ContextVar("request", default=None)


class PendingRequests:
    """The requests of a session that wait for a response."""

    def __init__(self) -> None:
        self._by_id: dict[RequestId, PendingRequest] = {}

    @contextmanager
    def track(self) -> Iterator[PendingRequest]:
        """Track the one request that the block sends."""
        request = PendingRequest()
        token = _current.set(request)
        try:
            yield request
        finally:
            _current.reset(token)
            for number, one in tuple(self._by_id.items()):
                if one is request:
                    del self._by_id[number]

    def note_submitted(self, message: object) -> None:
        """Note which request the running task is about to send."""
        request = _current.get()
        if request is not None and isinstance(message, JSONRPCRequest):
            self._by_id[message.id] = request

    def mark_sent(self, number: RequestId) -> None:
        """Note that the server may have received all of a request."""
        if request := self._by_id.get(number):
            request.is_sent = True

    def mark_unsent(self, number: object) -> None:
        """Note that a request could not be sent after all."""
        if isinstance(number, int | str) and (request := self._by_id.get(number)):
            request.is_sent = False

    def mark_refused(self, number: object, status: int) -> None:
        """Note that the server refused a request unread."""
        if isinstance(number, int | str) and (request := self._by_id.get(number)):
            request.status = status


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
        self._pending.note_submitted(item.message)
        if self._sends and isinstance(item.message, JSONRPCRequest):
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


MAX_MESSAGE_BYTES: Final = 15 * 1024 * 1024
"""The largest message: a result, wrapped, still fits into 16 MiB."""

_MAX_UNREQUESTED: Final = 10_000
_MAX_OUTPUT_CHARS: Final = 4096
_MIN_SECRET: Final = 6
_AT_FAULT_STEP: Final = "Update the server, or tell whoever maintains it."


@define
class Peer:
    """The server at the other end of a connection.

    `broken` is set once it can't be used any more, with `problem` and `next_step` to say why.
    Errors leave out the `secrets`.
    """

    name: str
    secrets: Collection[str] = field(repr=False, default=())
    broken: anyio.Event = field(factory=anyio.Event)
    problem: str = ""
    next_step: str = ""
    pending: PendingRequests = field(factory=PendingRequests)
    _output: str = ""
    _unrequested: int = 0

    def fail(self, problem: str, next_step: str = "") -> None:
        """Mark it as unusable; the first problem counts."""
        if not self.problem:
            self.problem = problem
            self.next_step = self.next_step or next_step
        self.broken.set()

    def add_output(self, text: str) -> None:
        """Keep the end of what it writes beside the protocol, such as its standard error."""
        # Secrets go first: the rest of a secret that was cut in two would not be recognised.
        self._output = self.without_secrets(self._output + text)[-_MAX_OUTPUT_CHARS:]

    def note_response(self) -> None:
        """Note that it sent a response."""
        self._unrequested = 0

    def note_unrequested(self) -> bool:
        """Note a message that isn't a response; return whether there are too many of them."""
        self._unrequested += 1
        if self._unrequested > _MAX_UNREQUESTED:
            self.fail(f"sent more than {_MAX_UNREQUESTED} messages that nobody asked for")
            return True
        return False

    def error(self, problem: str, next_step: str = "") -> McpError:
        """Return an error about it, with the end of its output and without its secrets."""
        said = self._output.strip()
        problem = shorten(self.without_secrets(problem))
        text = f"The MCP server '{self.name}' {problem}." + (f" It said: {said}" if said else "")
        return McpError(
            self.without_secrets(text),
            next_step=next_step or self.next_step or _AT_FAULT_STEP,
            server=self.name,
        )

    def without_secrets(self, text: str) -> str:
        """Return a text without the secrets, whether they stand there as such or as JSON."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "***").replace(json.dumps(secret)[1:-1], "***")
        return text


T = TypeVar("T")

MALFORMED_RESPONSE: Final = (RuntimeError, ValueError)
"""The exceptions of the SDK for a response that is not one of the protocol."""


async def agree_on_version(client: ClientSession, peer: Peer) -> None:
    """Agree on a version: by `initialize`, which servers since 2024 know, else by `discover`.

    A server that speaks only 2026-07-28 may refuse `initialize` with any error, or answer it with
    its own version. `McpError` says that there is no common version, or that the connection broke
    off.
    """
    try:
        await await_response(peer, client.initialize)
    except McpError as broke:
        if isinstance(refused := broke.__cause__, MCPError) and not _is_closed(refused):
            problem = f"can't be used: {_refusal_of(refused)}; then it {peer.problem}"
            raise peer.error(problem, _versions_step(refused)) from None
        raise
    except (MCPError, *MALFORMED_RESPONSE) as error:
        first = error
    else:
        return
    refusal = f"can't be used: {_refusal_of(first)}"
    if peer.next_step:  # it needs other credentials, not another version
        raise peer.error(refusal)
    try:
        await await_response(peer, client.discover)
    except (MCPError, *MALFORMED_RESPONSE) as error:
        if _refusal_of(error) != _refusal_of(first):
            refusal += f"; asked by server/discover: {_refusal_of(error)}"
        raise peer.error(refusal, _versions_step(first, error)) from None
    except McpError:
        raise peer.error(f"{refusal}; then it {peer.problem}", _versions_step(first)) from None


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
    if isinstance(error, MCPError) and _is_closed(error):
        peer.fail(f"broke off: {error.error.message}")
    if peer.broken.is_set() or error is None:
        raise peer.error(peer.problem) from error
    raise error


def _is_closed(error: MCPError) -> bool:
    """Return whether the SDK reports a closed connection; servers use the same code otherwise."""
    return error.error.code == CONNECTION_CLOSED and error.error.message == "Connection closed"


def reason_of(problem: Exception) -> str:
    """Return the problem of a response in a few words."""
    if isinstance(problem, ValidationError):
        first = problem.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(problem)
