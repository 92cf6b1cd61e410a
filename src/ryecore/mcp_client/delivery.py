"""Track whether a request may have reached the server: a call that did not can be repeated.

The SDK numbers its requests itself and doesn't expose the numbers. A request is identified here by
the context of the task that sends it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

from attrs import define
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, RequestId

__all__ = ["Deliveries", "Delivery", "Outbox"]


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
