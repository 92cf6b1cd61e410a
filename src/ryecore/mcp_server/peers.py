"""The clients of protocols before 2026: whom to notify, their subscriptions and log levels.

Since 2026 a client listens by a request of its own, and says the level with each request.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

from attrs import define, field
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types import (
    LOG_LEVEL_META_KEY,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = ["MAX_SUBSCRIPTIONS", "Peer", "Peers", "send_log", "wants_level"]

LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
"""The levels of log messages, the least severe first."""

_MAX_PEERS: Final = 1024
MAX_SUBSCRIPTIONS: Final = 10_000
"""How many resources a client may subscribe to."""


@define(eq=False)
class Peer:
    """A client that has a connection.

    Attributes:
        session: Its session, for notifications.
        level: The least severe level of log messages that it wants.
        subscribed: The URIs of the resources that it wants to hear of.
    """

    session: ServerSession
    level: LoggingLevel = "info"
    subscribed: set[str] = field(factory=set)


class Peers:
    """The clients, by their connection; the one that was silent longest is forgotten first."""

    def __init__(self) -> None:
        self.on_forget: Callable[[Peer], None] = lambda _: None
        """Called with each client that is forgotten."""
        self._peers: OrderedDict[tuple[int, str], Peer] = OrderedDict()

    def __iter__(self) -> Iterator[Peer]:
        return iter([*self._peers.values()])

    def of(self, ctx: ServerRequestContext[Any, Any]) -> Peer | None:
        """Return the client of a request; None for one of 2026, which has no connection."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None
        key = _key(ctx)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(ctx.session)
            while len(self._peers) > _MAX_PEERS:
                self.on_forget(self._peers.popitem(last=False)[1])
        peer.session = ctx.session
        self._peers.move_to_end(key)
        return peer

    def subscribe(self, ctx: ServerRequestContext[Any, Any], uri: str) -> bool:
        """Note that a client wants to hear of a resource; False where it has too many."""
        peer = self.of(ctx)
        if peer is None or (len(peer.subscribed) >= MAX_SUBSCRIPTIONS):
            return False
        peer.subscribed.add(uri)
        return True

    def forget(self, lifespan: object) -> None:
        """Forget the clients of a transport that has ended."""
        for key in [*self._peers]:
            if key[0] == id(lifespan):
                self.on_forget(self._peers.pop(key))


def _key(ctx: ServerRequestContext[Any, Any]) -> tuple[int, str]:
    """Return what tells connections apart: the transport, and over HTTP the session."""
    request = ctx.request
    session_id = "" if request is None else request.headers.get("mcp-session-id", "")
    return id(ctx.lifespan_context), session_id


def wants_level(ctx: ServerRequestContext[Any, Any], peers: Peers, level: LoggingLevel) -> bool:
    """Return whether the client of a request wants log messages of a level."""
    peer = peers.of(ctx)
    if peer is None:
        wanted = (ctx.meta or {}).get(LOG_LEVEL_META_KEY)
        return wanted in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)
    return LEVELS.index(level) >= LEVELS.index(peer.level)


async def send_log(
    ctx: ServerRequestContext[Any, Any],
    peers: Peers,
    level: LoggingLevel,
    data: object,
    logger: str | None = None,
) -> None:
    """Send a log message to the client of a request, if it wants messages of this level."""
    if not wants_level(ctx, peers, level):
        return
    # Not by `send_log_message`, which warns that clients since 2026 ask for messages otherwise.
    params = LoggingMessageNotificationParams(level=level, data=data, logger=logger)
    message = LoggingMessageNotification(params=params)
    await ctx.session.send_notification(message, ctx.request_id)
