"""Connections to providers' servers: bounded answers, one pool for each event loop."""

import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import ClassVar, Final, Generic, Self, TypedDict, TypeVar

import anyio
import httpx2
from anyio.lowlevel import EventLoopToken, current_token

from ryecore.bounded_http import BodyBounds, BoundedTransport
from ryecore.llm.network import check_model_requests_allowed
from ryecore.providers.errors import check_key

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_TEXT_BYTES",
    "ConnectionOptions",
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

_CONNECT_S: Final = 10.0
_LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
_EVENTS_A_STREAM: Final = 4
_MAX_JSON_VALUES: Final = 1_000_000
_MAX_COPIED_BYTES: Final = 2**32


def make_transport(proxy: str | None, max_answer_bytes: int) -> BoundedTransport:
    """Return a pool of connections that ignores the environment and follows no redirect.

    `max_answer_bytes` bounds an unstreamed answer, and one event of a stream; a whole stream may
    have four times as much.
    """
    transport = httpx2.AsyncHTTPTransport(
        verify=authorities(), trust_env=False, proxy=proxy, limits=_LIMITS
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
    """An object for each event loop, such as a pool of connections, made in its loop.

    A provider may serve several loops, one after another or in threads of their own. Each loop's
    object is closed by `aclose` or at the end of the loop, whichever comes first.
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


class ConnectionOptions(TypedDict, total=False):
    """The options that every provider has; `PooledProvider` describes them."""

    base_url: str | None
    timeout_s: float
    provider_id: str
    headers: Mapping[str, str] | None
    proxy: str | None
    max_answer_bytes: int


class PooledProvider(ABC, Generic[_T]):
    """A provider that holds connections, one pool for each event loop, and no key.

    It reads no key, address, header or proxy from the environment, follows no redirect, keeps no
    cookie, and doesn't retry.

    Args:
        base_url: The server's address; None for the vendor's own.
        timeout_s: How long to wait for the next bytes, in seconds.
        provider_id: Its name in plans, events and reasoning parts; by default, the vendor's.
        headers: Additional headers for every request.
        proxy: A proxy's address; None for none.
        max_answer_bytes: The bound in bytes of an unstreamed answer, of a file, and of one event of
            a stream; a whole stream may have four times as much. By default, `MAX_ANSWER_BYTES`,
            or less where models don't make media.
    """

    _VENDOR_ID: ClassVar[str]
    _VENDOR_URL: ClassVar[str]
    _MAX_ANSWER_BYTES: ClassVar[int] = MAX_ANSWER_BYTES

    def __init__(
        self,
        *,
        base_url: str | None = None,
        timeout_s: float = 600.0,
        provider_id: str = "",
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        max_answer_bytes: int | None = None,
    ) -> None:
        self._provider_id = provider_id or self._VENDOR_ID
        self._base_url = base_url or self._VENDOR_URL
        self._timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        self._headers = dict(headers or {})
        self._proxy = proxy
        self._max_answer_bytes = max_answer_bytes or self._MAX_ANSWER_BYTES
        self._pools = PerLoop(self._open_pool, self._close_pool)

    @abstractmethod
    def _open_pool(self) -> _T:
        """Return a pool of connections for the running event loop."""

    @abstractmethod
    async def _close_pool(self, pool: _T) -> None: ...

    def _http_pool(self) -> httpx2.AsyncClient:
        """Return a client whose calls share connections, but never a session's cookies."""
        return httpx2.AsyncClient(
            timeout=self._timeout,
            transport=make_transport(self._proxy, self._max_answer_bytes),
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

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
