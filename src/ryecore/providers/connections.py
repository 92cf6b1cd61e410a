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
    """Return the machine's certificate authorities, which are slow to read and read once.

    They hold no state of a call: any number of pools, loops and threads may share them.
    """
    return httpx2.create_ssl_context(trust_env=False)


MAX_ANSWER_BYTES: Final = 24 * 1024 * 1024
"""The default bound in bytes of an unstreamed answer, and of one event of a stream."""

MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
"""The same bound for models that don't make media."""

_EVENTS_A_STREAM: Final = 4
_MAX_JSON_VALUES: Final = 1_000_000
_MAX_COPIED_BYTES: Final = 2**32


def make_transport(
    proxy: str | None, max_answer_bytes: int, limits: httpx2.Limits
) -> BoundedTransport:
    """Return a pool of connections that ignores the environment and follows no redirect.

    Args:
        max_answer_bytes: The bound in bytes of an unstreamed answer, and of one event of a stream.
            A whole stream may have four times as much.
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
    """An object for each event loop, such as a pool of connections.

    A provider may serve several loops, one after another or in threads of their own. Each loop's
    object is closed by `aclose` or at the end of the loop, whichever comes first.

    Args:
        make: Makes an object; called in its loop.
    """

    def __init__(self, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[EventLoopToken, tuple[_T, AsyncGenerator[_T, None]]] = {}

    async def get(self) -> _T:
        """Return the object of the running loop, made at the first call."""
        token = current_token()
        held = self._held.get(token)
        if held is None:
            self._forget_closed_loops()
            # A loop that ends closes its asynchronous generators, which reports its end.
            keeper = self._keep(token)
            held = self._held[token] = (await anext(keeper), keeper)
        return held[0]

    async def aclose(self) -> None:
        """Close the object of the running loop. The next `get` makes a new one."""
        held = self._held.pop(current_token(), None)
        if held is not None:
            await held[1].aclose()

    def _forget_closed_loops(self) -> None:
        """Drop the objects of loops that were closed without closing their generators."""
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
        provider_id: Its name in plans, events and reasoning parts.
        make: Makes a pool; called in its event loop.
        close: Closes a pool.
    """

    def __init__(
        self, provider_id: str, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]
    ) -> None:
        self._provider_id = provider_id
        self._pools = PerLoop(make, close)

    @property
    def provider_id(self) -> str:
        """Its name in plans, events and reasoning parts."""
        return self._provider_id

    def _check(self, model: str, key: str) -> None:
        """Refuse a key that can't be sent, and any request while requests to models are refused."""
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
