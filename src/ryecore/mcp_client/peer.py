"""The server at the other end of a connection, and the requests that it has not answered.

For each request it is tracked whether it may have reached the server: one that has not can be
repeated. The SDK numbers requests itself and doesn't expose the numbers, so a request is identified
by the context of the task that sends it.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

import anyio
from attrs import define, field
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, RequestId

from ryecore.errors import McpError

__all__ = ["MAX_MESSAGE_BYTES", "Deliveries", "Delivery", "Outbox", "Peer"]


@define(eq=False)
class Delivery:
    """One request that is being sent.

    Attributes:
        is_sent: Whether the server may have received all of it.
        status: The HTTP status with which the server refused it unread; 0 where it did not.
    """

    is_sent: bool = False
    status: int = 0

    @property
    def may_have_run(self) -> bool:
        """Whether the server may have begun to process it."""
        return self.is_sent and not self.status


_current: Final[ContextVar[Delivery | None]] = ContextVar("delivery", default=None)


class Deliveries:
    """The requests of a session that have not been answered yet."""

    def __init__(self) -> None:
        self._by_id: dict[RequestId, Delivery] = {}

    @contextmanager
    def following(self) -> Iterator[Delivery]:
        """Follow the one request that the block sends."""
        delivery = Delivery()
        token = _current.set(delivery)
        try:
            yield delivery
        finally:
            _current.reset(token)
            for number, one in tuple(self._by_id.items()):
                if one is delivery:
                    del self._by_id[number]

    def submitted(self, message: object) -> None:
        """Note which request the running task is about to send."""
        delivery = _current.get()
        if delivery is not None and isinstance(message, JSONRPCRequest):
            self._by_id[message.id] = delivery

    def sent(self, number: RequestId) -> None:
        """Note that the server may have received all of a request."""
        if delivery := self._by_id.get(number):
            delivery.is_sent = True

    def unsent(self, number: object) -> None:
        """Note that a request could not be sent after all."""
        if isinstance(number, int | str) and (delivery := self._by_id.get(number)):
            delivery.is_sent = False

    def refused(self, number: object, status: int) -> None:
        """Note that the server refused a request unread."""
        if isinstance(number, int | str) and (delivery := self._by_id.get(number)):
            delivery.status = status


class Outbox:
    """The stream that a session writes to, which notes each request before it is sent.

    Args:
        stream: The stream of the transport.
        deliveries: The session's requests.
        sends: Whether a message counts as sent once the stream has taken it.
    """

    def __init__(
        self, stream: WriteStream[SessionMessage], deliveries: Deliveries, *, sends: bool
    ) -> None:
        self._stream = stream
        self._deliveries = deliveries
        self._sends = sends

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        self._deliveries.submitted(item.message)
        if self._sends and isinstance(item.message, JSONRPCRequest):
            self._deliveries.sent(item.message.id)  # even a cancelled send may have sent it
        await self._stream.send(item)

    async def aclose(self) -> None:
        """Close it."""
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
"""How large one message may be; a result that is wrapped then still fits into 16 MiB."""

_MAX_UNASKED: Final = 10_000
_MAX_SAID: Final = 4096
_MIN_SECRET: Final = 6


@define
class Peer:
    """A server.

    Attributes:
        name: What errors call it.
        secrets: Values that no error repeats.
        broken: Set once it can't be used any more.
        problem: Why; empty until then.
        next_step: The next step that follows from its answers; empty for none.
        deliveries: The requests that it hasn't answered.
    """

    name: str
    secrets: Collection[str] = field(repr=False, default=())
    broken: anyio.Event = field(factory=anyio.Event)
    problem: str = ""
    next_step: str = ""
    deliveries: Deliveries = field(factory=Deliveries)
    _said: str = ""
    _unasked: int = 0

    def fail(self, problem: str) -> None:
        """Say why it can't be used any more; the first reason counts."""
        self.problem = self.problem or problem
        self.broken.set()

    def heard(self, text: str) -> None:
        """Keep what it said beside the protocol; the end of it."""
        # Secrets go first: what is left of one that was cut in two would not be known as one.
        self._said = self.without_secrets(self._said + text)[-_MAX_SAID:]

    def answered(self) -> None:
        """It answered."""
        self._unasked = 0

    def unasked(self) -> bool:
        """It sent something that is no answer; whether that is too much by now."""
        self._unasked += 1
        if self._unasked > _MAX_UNASKED:
            self.fail(f"sent more than {_MAX_UNASKED} messages that nobody asked for")
            return True
        return False

    def error(self, problem: str, next_step: str = "") -> McpError:
        """An error about it, with the end of what it said, and without its secrets."""
        said = self._said.strip()
        text = f"The MCP server '{self.name}' {problem}." + (f" It said: {said}" if said else "")
        return McpError(
            self.without_secrets(text), next_step=next_step or self.next_step, server=self.name
        )

    def without_secrets(self, text: str) -> str:
        """A text in which no secret of this server stands, plainly or as JSON writes it."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "***").replace(json.dumps(secret)[1:-1], "***")
        return text
