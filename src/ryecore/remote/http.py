"""The HTTP library as the client of a node uses it, and what its failures say."""

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.request import getproxies

import httpx2

from ryecore.display.sanitize import shorten, to_one_line
from ryecore.remote.config import is_loopback
from ryecore.remote.transport import NodeTransport

__all__ = [
    "certificate_problem",
    "connect_timeout",
    "head_lines",
    "make_http",
    "make_request",
    "parse_url",
    "quoted",
    "reason_of",
]

_CONNECT_TIMEOUT_S: Final = 10.0
_MAX_QUOTED_CHARS: Final = 500
_HEADERS: Final = (
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"ryecore"),
)

parse_url: Final = lru_cache(256)(httpx2.URL)


def make_http(url: str) -> httpx2.AsyncBaseTransport:
    """Return what sends requests to one node."""
    tls = (
        httpx2.create_ssl_context()
        if url.startswith("https:")
        else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    # A proxy of the environment is for other machines.
    if is_loopback(url) or not getproxies():
        return NodeTransport(httpx2.URL(url), tls)
    return _Proxied(
        httpx2.AsyncClient(
            verify=tls,
            follow_redirects=False,
            # Each call that waits for its result holds a connection; the node bounds their number.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
        )
    )


class _Proxied(httpx2.AsyncBaseTransport):
    """Requests as the environment's variables for proxies say."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._client.send(request, stream=True)

    async def aclose(self) -> None:
        await self._client.aclose()


def make_request(
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    timeouts: Mapping[str, float | None],
) -> httpx2.Request:
    """Return a request.

    Args:
        method: The method.
        url: The URL, percent-encoded.
        body: The body.
        headers: Its headers but those that each request has.
        timeouts: Its timeouts, as httpx2 has them.
    """
    return httpx2.Request(
        method,
        parse_url(url),
        headers=_all_headers(method, url, body, headers),  # to add some takes httpx2 long
        stream=httpx2.ByteStream(body),
        extensions={"timeout": timeouts},
    )


def head_lines(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> list[bytes]:
    """Return the lines of the head of the request that `make_request` makes."""
    first = b"%s %s HTTP/1.1" % (method.encode("ascii"), parse_url(url).raw_path)
    return [first, *(b"%s: %s" % one for one in _all_headers(method, url, body, headers))]


def _all_headers(
    method: str, url: str, body: bytes, headers: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    found = [*_HEADERS, (b"Host", parse_url(url).netloc)]
    found += [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    if body or method == "POST":
        found.append((b"Content-Length", b"%d" % len(body)))
    return found


def connect_timeout(timeout_s: float) -> dict[str, float | None]:
    """Return the timeouts of a request, of which all but the connection are its caller's."""
    return httpx2.Timeout(None, connect=min(timeout_s, _CONNECT_TIMEOUT_S)).as_dict()


def quoted(text: str) -> str:
    """Return a text of the other end for an error's: on one line, and its beginning."""
    return to_one_line(shorten(text, _MAX_QUOTED_CHARS))


def reason_of(problem: BaseException) -> str:
    """Return why a request failed, as the end of a sentence."""
    text = quoted(str(problem))
    return text.rstrip(".") or f"the connection failed ({type(problem).__name__})"


def certificate_problem(problem: BaseException) -> str | None:
    """Return why a certificate isn't trusted; None for another failure."""
    cause: BaseException | None = problem
    for _ in range(8):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return quoted(cause.verify_message)
        cause = None if cause is None else cause.__cause__ or cause.__context__
    return None
