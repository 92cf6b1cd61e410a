"""What clients want to hear of: changed lists and resources, and log messages from a level on."""

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    EmptyResult,
    NotificationParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from ryecore.mcp_server.changes import ChangeNotifier
from ryecore.mcp_server.peers import MAX_SUBSCRIPTIONS, Peers
from ryecore.mcp_server.resources import Resources, not_found

__all__ = ["Subscriptions"]


class Subscriptions:
    """The subscriptions of clients, of both eras of the protocol."""

    def __init__(self, peers: Peers, notifier: ChangeNotifier, resources: Resources) -> None:
        self._peers = peers
        peers.on_forget = lambda peer: notifier.end(peer.subscribed)
        self._notifier = notifier
        self._resources = resources
        self._listen = ListenHandler(notifier.bus)

    async def initialized(
        self, ctx: ServerRequestContext[Any, Any], _params: NotificationParams
    ) -> None:
        """Note a client, which hears of changed lists from now on."""
        self._peers.of(ctx)

    async def subscribe(
        self, ctx: ServerRequestContext[Any, Any], params: SubscribeRequestParams
    ) -> EmptyResult:
        """Tell a client of changes of a resource, from now on."""
        uri = params.uri
        if not await self._resources.is_there(uri):
            raise not_found(uri, ctx.protocol_version)
        peer = self._peers.of(ctx)
        if peer is not None and uri not in peer.subscribed:
            if not self._peers.subscribe(ctx, uri):
                raise _too_many()
            await self._notifier.begin((uri,))
        return EmptyResult()

    async def unsubscribe(
        self, ctx: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        """Tell a client no more of changes of a resource."""
        peer = self._peers.of(ctx)
        if peer is not None and params.uri in peer.subscribed:
            peer.subscribed.discard(params.uri)
            self._notifier.end((params.uri,))
        return EmptyResult()

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Tell a client of 2026 of what it asks for, until it closes the request."""
        uris = tuple(params.notifications.resource_subscriptions or ())
        if len(uris) > MAX_SUBSCRIPTIONS:
            raise _too_many()
        try:
            await self._notifier.begin(uris)
            return await self._listen(ctx, params)
        finally:
            self._notifier.end(uris)

    async def set_level(
        self, ctx: ServerRequestContext[Any, Any], params: SetLevelRequestParams
    ) -> EmptyResult:
        """Send a client only log messages of this level and of more severe ones."""
        peer = self._peers.of(ctx)
        if peer is not None:
            peer.level = params.level
        return EmptyResult()

    def forget(self, lifespan: object) -> None:
        """Forget the clients of a transport that has ended."""
        self._peers.forget(lifespan)


def _too_many() -> MCPError:
    return MCPError(code=INVALID_REQUEST, message="There are too many subscriptions.")
