"""Connections to providers' servers: bounded answers, one pool for each event loop."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import lru_cache
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import anyio
import httpx2
from anyio.lowlevel import EventLoopToken, current_token

from ryecore.bounded_http import BodyBounds, BoundedTransport
from ryecore.llm.network import check_model_requests_allowed
from ryecore.providers.errors import check_key

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_TEXT_BYTES",
    "PerLoop",
    "PooledProvider",
    "authorities",
    "make_transport",
]


@lru_cache(maxsize=1)
def authorities() -> ssl.SSLContext:
    """The machine's authorities; read once, since that takes longer than to open a connection.

    They hold nothing of a call, and any number of pools, loops and threads may share them.
    """
    return httpx2.create_ssl_context(trust_env=False)


MAX_ANSWER_BYTES: Final = 24 * 1024 * 1024
"""The default bound, in bytes, of an answer that comes whole and of one event of a stream."""

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""The same for models that make no media."""

_EVENTS_A_STREAM: Final = 4
_MAX_JSON_VALUES: Final = 1_000_000
_MAX_COPIED_BYTES: Final = 2**32


def make_transport(
    proxy: str | None, max_answer_bytes: int, limits: httpx2.Limits
) -> BoundedTransport:
    """Return a pool of connections that ignores the environment and follows no redirect.

    Args:
        proxy: A proxy's address; None for none.
        max_answer_bytes: How large an answer may be that comes whole, or one event of a stream, in
            bytes. A whole stream may have four times as much.
        limits: The bounds of the number of connections.
    """
    transport = httpx2.AsyncHTTPTransport(
        verify=authorities(), trust_env=False, proxy=proxy, limits=limits
    )
    bounds = BodyBounds(
        max_answer_bytes,
        max_answer_bytes * _EVENTS_A_STREAM,
        _MAX_JSON_VALUES,
        _MAX_COPIED_BYTES,
    )
    return BoundedTransport(transport, bounds)


_T = TypeVar("_T")


class PerLoop(Generic[_T]):
    """Something that belongs to an event loop, such as a pool of connections.

    A provider may serve one loop after another, and several in their own threads. Each gets its
    own. It is closed by `aclose` or when its loop ends, whichever comes first.

    Args:
        make: Makes one; called in the loop that it is for.
        close: Closes one.
    """

    def __init__(self, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[EventLoopToken, tuple[_T, AsyncGenerator[_T, None]]] = {}

    async def get(self) -> _T:
        """The one of the running loop; made where there is none yet."""
        token = current_token()
        held = self._held.get(token)
        if held is None:
            self._forget_closed_loops()
            # A loop that ends closes its asynchronous generators: this is how the end is heard of.
            keeper = self._keep(token)
            held = self._held[token] = (await anext(keeper), keeper)
        return held[0]

    async def aclose(self) -> None:
        """Close the one of the running loop. The next `get` makes a new one."""
        held = self._held.pop(current_token(), None)
        if held is not None:
            await held[1].aclose()

    def _forget_closed_loops(self) -> None:
        """Let go of what stood in loops that were closed without closing their generators."""
        for token in tuple(self._held):
            is_closed = getattr(token.native_token, "is_closed", None)
            if is_closed is not None and is_closed():
                self._held.pop(token, None)

    async def _keep(self, token: EventLoopToken) -> AsyncGenerator[_T, None]:
        one = self._make()
        try:
            yield one
        finally:
            self._held.pop(token, None)
            await self._close(one)


_CLOSING_S: Final = 5.0


class PooledProvider(Generic[_T]):
    """A provider that holds connections, one pool for each event loop, and no key.

    Args:
        provider_id: What plans, events and reasoning parts call it.
        make: Makes a pool; called in the event loop that it is for.
        close: Closes one.
    """

    def __init__(
        self, provider_id: str, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]
    ) -> None:
        self._provider_id = provider_id
        self._pools = PerLoop(make, close)

    @property
    def provider_id(self) -> str:
        """What plans, events and reasoning parts call it."""
        return self._provider_id

    def _check(self, model: str, key: str) -> None:
        """Refuse what must not be sent at all."""
        check_model_requests_allowed(self._provider_id, model)
        check_key(key, self._provider_id, model)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. A later call opens new ones."""
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await self._pools.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
