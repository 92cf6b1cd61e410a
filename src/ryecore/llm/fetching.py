"""The content of a URL, bounded, and from public addresses only."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

import anyio

from ryecore.errors import InputError, MissingExtra

if TYPE_CHECKING:
    import httpcore2

__all__ = ["fetch", "is_public"]

_TIMEOUT_S: Final = 60.0
_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_KEPT: Final = "/?:@!$&'()*+,;=%~"  # of a path or a query, as they are written
_NAT64: Final = IPv6Network("64:ff9b::/96")


async def fetch(url: str, max_bytes: int, *, allow_private: bool = False) -> bytes:
    """Return the content of a URL.

    Addresses are checked where a connection is made, so that neither a redirect nor a name that
    resolves to another address the second time leads elsewhere. No proxy is used.

    Raises:
        InputError: It can't be fetched, is too large, or leads to a private address.
        MissingExtra: The extra `remote` isn't installed.
    """
    try:
        import httpcore2  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise MissingExtra(
            "To fetch a URL needs the package httpcore2, which is not installed.",
            next_step="pip install 'ryecore[remote]', or pass the bytes.",
            extra="remote",
        ) from None
    shown = _shown(url)
    try:
        with anyio.fail_after(_TIMEOUT_S):
            async with httpcore2.AsyncConnectionPool(
                ssl_context=_tls(), network_backend=_backend(allow_private)
            ) as pool:
                return await _follow(pool, url, max_bytes)
    except InputError:
        raise
    except TimeoutError:
        why = f"it took more than {_TIMEOUT_S:.0f} s"
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
    except Exception as problem:  # those of the HTTP library have no common class
        if type(problem).__module__.partition(".")[0] != "httpcore2":
            raise
        why = str(problem) or type(problem).__name__
    raise InputError(f"{shown} can't be fetched: {why}.", next_step="Pass the bytes, or a path.")


async def _follow(pool: "httpcore2.AsyncConnectionPool", url: str, max_bytes: int) -> bytes:
    for _ in range(_MAX_REDIRECTS + 1):
        parts = urlsplit(url)
        if parts.scheme.lower() not in ("http", "https") or not parts.hostname or parts.username:
            raise InputError(
                f"{_shown(url)} isn't a URL that is fetched.",
                next_step="Pass a URL with https:// and without a name and password.",
            )
        url = _ascii(parts)
        headers: dict[bytes | str, bytes | str] = {
            "accept-encoding": "identity",
            "user-agent": "ryecore",
            "host": urlsplit(url).netloc,
        }
        async with pool.stream("GET", url, headers=headers) as response:
            found = {name.lower(): value for name, value in response.headers}
            location = found.get(b"location")
            if response.status in _REDIRECTS and location is not None:
                target = urljoin(url, location.decode(errors="replace"))
                if parts.scheme.lower() == "https" and not target.lower().startswith("https:"):
                    raise InputError(
                        f"{_shown(url)} leads from https to {_shown(target)}.",
                        next_step="Pass the bytes, or a URL that stays with https.",
                    )
                url = target
                continue
            if response.status != 200:
                raise InputError(
                    f"{_shown(url)} was answered with the status {response.status}.",
                    next_step="See that the URL is right and needs no login.",
                )
            if found.get(b"content-encoding", b"identity") != b"identity":
                raise InputError(
                    f"{_shown(url)} was answered in a compressed form, though none was asked for.",
                    next_step="Pass the bytes, or a path.",
                )
            content = bytearray()
            async for chunk in response.aiter_stream():
                content += chunk
                if len(content) > max_bytes:
                    raise InputError(
                        f"{_shown(url)} has more than {max_bytes:,} bytes.",
                        next_step="Pass a smaller one, or max_bytes.",
                    )
            return bytes(content)
    raise InputError(
        f"{_shown(url)} was redirected more than {_MAX_REDIRECTS} times.",
        next_step="Pass the URL to which it leads.",
    )


def is_public(address: str) -> bool:
    """Return whether an address is one of the public internet, also if it wraps another one."""
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if found in _NAT64:
            inner = IPv4Address(int(found) & 0xFFFFFFFF)
        if inner:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast and not found.is_reserved


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _backend(allow_private: bool) -> "httpcore2.AsyncNetworkBackend":
    import httpcore2  # noqa: PLC0415 - an extra

    connect: Callable[..., Awaitable[httpcore2.AsyncNetworkStream]]
    connect = getattr(httpcore2.AnyIOBackend(), "connect_tcp")  # noqa: B009 - untyped there

    class PublicBackend(httpcore2.AsyncNetworkBackend):
        """Connects to the addresses that were checked, and to no others."""

        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109 - the library's own interface
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> httpcore2.AsyncNetworkStream:
            infos = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
            refused = [one for one in addresses if not (allow_private or is_public(one))]
            if refused or not addresses:
                raise InputError(
                    f"{host} is at {refused[0] if refused else 'no address'}, which isn't public: "
                    "it is not fetched.",
                    next_step="Pass the bytes; or Media(url, allow_private=True), if the URL is "
                    "your own.",
                )
            for address in addresses[:-1]:
                try:
                    return await connect(address, port, timeout, local_address, socket_options)
                except httpcore2.ConnectError:
                    continue
            return await connect(addresses[-1], port, timeout, local_address, socket_options)

    return PublicBackend()


def _ascii(parts: SplitResult) -> str:
    """Return a URL as it is sent, for people write the letters of their language."""
    netloc = parts.netloc
    if not netloc.isascii():
        port = "" if parts.port is None else f":{parts.port}"
        netloc = (parts.hostname or "").encode("idna").decode() + port
    path, query = quote(parts.path, safe=_KEPT), quote(parts.query, safe=_KEPT)
    return urlunsplit((parts.scheme, netloc, path, query, ""))


def _shown(url: str) -> str:
    """Return a URL without its query, which may hold a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0][:200]
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"[:200]
