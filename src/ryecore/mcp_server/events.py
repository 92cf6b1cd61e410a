"""The messages that a client may ask for again, after its stream over HTTP was broken off. Bounded.

The SDK names streams by the ids of requests, which are the same in each session. So each session
has a store of its own, and all share one bound.
"""

import secrets
from collections import OrderedDict
from typing import Final

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage

from ryecore.frozen import frozen

__all__ = ["EventLog", "SessionEvents"]

_MAX_EVENTS: Final = 10_000
_MAX_BYTES: Final = 64 * 1024 * 1024


@frozen(eq=False)
class _Event:
    session: object
    stream_id: str
    message: JSONRPCMessage | None
    size_bytes: int


class EventLog:
    """The messages of all sessions; for new ones the oldest are forgotten.

    Args:
        max_events: How many are kept.
        max_bytes: How large they may be together, as JSON.
    """

    def __init__(self, max_events: int = _MAX_EVENTS, max_bytes: int = _MAX_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._events: OrderedDict[str, _Event] = OrderedDict()
        self._streams: dict[tuple[object, str], OrderedDict[str, _Event]] = {}
        """The same by the stream of their session, so that no read walks those of others."""

        self._bytes = 0
        self._count = 0
        self._prefix = secrets.token_hex(4)

    def add(self, session: object, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message, and return the id of its event."""
        size = 0 if message is None else len(message.model_dump_json(by_alias=True))
        self._count += 1
        event_id = f"{self._prefix}-{self._count}"
        event = _Event(session, stream_id, message, size)
        self._events[event_id] = event
        self._streams.setdefault((session, stream_id), OrderedDict())[event_id] = event
        self._bytes += size
        while self._events and (
            len(self._events) > self._max_events or self._bytes > self._max_bytes
        ):
            self._forget_oldest()
        return event_id

    def _forget_oldest(self) -> None:
        _, oldest = self._events.popitem(last=False)
        self._bytes -= oldest.size_bytes
        key = (oldest.session, oldest.stream_id)
        stream = self._streams[key]
        stream.popitem(last=False)
        if not stream:
            del self._streams[key]

    def after(
        self, session: object, event_id: str
    ) -> tuple[str, list[tuple[str, JSONRPCMessage]]] | None:
        """Return the stream of a session's event, and the messages that came after it there.

        None where the event isn't one of this session, or was forgotten.
        """
        last = self._events.get(event_id)
        if last is None or last.session is not session:
            return None
        found: list[tuple[str, JSONRPCMessage]] = []
        for key, event in reversed(self._streams[session, last.stream_id].items()):
            if key == event_id:
                break
            if event.message is not None:
                found.append((key, event.message))
        found.reverse()
        return last.stream_id, found


class SessionEvents(EventStore):
    """The messages of one session."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message; None begins a stream."""
        return self._log.add(self, stream_id, message)

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send what came after an event in its stream, and return the stream."""
        found = self._log.after(self, last_event_id)
        if found is None:
            return None
        stream_id, messages = found
        for event_id, message in messages:
            await send_callback(EventMessage(message, event_id))
        return stream_id
