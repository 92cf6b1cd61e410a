"""The server over streamable HTTP, for clients of a running server. Needs asyncio."""

import hmac
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ryecore.errors import InputError
from ryecore.serving import listen, serve_app, url_of

__all__ = ["serve_http"]

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - only ever asked for by name
_MAX_BODY_BYTES: Final = 32 * 1024 * 1024


async def serve_http(
    server: Server[Any],
    *,
    token: str | None,
    host: str = "127.0.0.1",
    port: int = 0,
    allowed_hosts: Iterable[str] = (),
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until cancelled, which cancels the calls of clients too.

    Args:
        server: The server of `create_server`.
        token: The bearer token that every request needs; None for none, on this machine alone.
        host: The address to listen at.
        port: The port; 0 for any free one.
        allowed_hosts: Further names that clients may address this host by.
        announce: Called with the URL once the server listens.

    Raises:
        InputError: There is no token, at an address that others can reach.
        ConfigError: The server can't listen there.
    """
    if token is None and host not in _LOOPBACK:
        raise InputError(
            f"Without a token, anybody who reaches {host} could run tools here.",
            next_step="Use a token, or listen at 127.0.0.1.",
        )
    listening = listen(host, port)
    app: ASGIApp = server.streamable_http_app(
        host=host,
        transport_security=_security(host, allowed_hosts),
        max_request_body_size=_MAX_BODY_BYTES,
    )
    if token is not None:
        app = _BearerToken(app, token)
    url = f"{url_of(listening, host)}/mcp"
    await serve_app(app, listening, announce=lambda: announce(url), silenced=("mcp",))


def _security(host: str, more: Iterable[str]) -> TransportSecuritySettings:
    """Return the names that requests may address this host by, against DNS rebinding."""
    names = {*_LOOPBACK, *more}
    names |= {socket.gethostname(), socket.getfqdn()} if host in _EVERYWHERE else {host}
    shown = sorted(f"[{name}]" if ":" in name else name for name in names)
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{name}{port}" for name in shown for port in (":*", "")],
        allowed_origins=[
            f"{scheme}://{name}{port}"
            for scheme in ("http", "https")  # a proxy in front of it may speak TLS
            for name in shown
            for port in (":*", "")
        ],
    )


class _BearerToken:
    """A wrapper of an app that refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            is_known = hmac.compare_digest(token.encode("latin-1", "replace"), self._expected)
            if not is_known or scheme.lower() != "bearer":  # in any case
                refusal = JSONResponse(
                    {"error": "A bearer token is needed."},
                    status_code=401,
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
