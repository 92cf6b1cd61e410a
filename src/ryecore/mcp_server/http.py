"""The server over streamable HTTP, for clients of a running server. Needs asyncio."""

import hmac
import re
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ryecore.errors import InputError
from ryecore.mcp_server.events import EventLog, SessionEvents
from ryecore.mcp_server.server import ProjectServer
from ryecore.serving import listen, serve_app, url_of

__all__ = ["serve_http"]

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - only ever asked for by name
_MAX_BODY_BYTES: Final = 32 * 1024 * 1024
_RETRY_MS: Final = 1000
"""After how long a client reconnects whose stream was closed so that it polls."""
_ANY: Final = "*"
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.%]+\]|[^:\[\]/@]+)(?::[0-9]{1,5})?", re.ASCII)
"""A host and its port; the host is what must be known."""
_EXPOSED: Final = ("Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate")
"""The headers of a response that a web page may read."""
_PREFLIGHT_S: Final = 600


async def serve_http(
    server: Server[Any],
    *,
    token: str | None,
    host: str = "127.0.0.1",
    port: int = 0,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until cancelled, which cancels the calls of clients too.

    Args:
        server: The server of `create_server`.
        token: The bearer token that every request needs; None for none, only on this machine.
        host: The address to listen at.
        port: The port; 0 for any free one.
        allowed_hosts: Further names that clients may address this host by.
        allowed_origins: The origins of web pages that may call the server, such as
            `https://app.example`; `*` for all, which needs a token.
        announce: Called with the URL once the server listens.

    Raises:
        InputError: There is no token, at an address that others can reach, or for all web pages.
        ConfigError: The server can't listen there.
    """
    origins = frozenset(allowed_origins)
    if token is None and host not in _LOOPBACK:
        raise InputError(
            f"Without a token, anybody who reaches {host} could run tools here.",
            next_step="Use a token, or listen at 127.0.0.1.",
        )
    if token is None and _ANY in origins:
        raise InputError(
            "Without a token, any web page could run tools here.",
            next_step="Use a token, or name the origins that may call the server.",
        )
    if token is None and isinstance(server, ProjectServer):
        server.serve_anonymous_clients()
    listening = listen(host, port)
    sessions = _Sessions(
        server,
        retry_interval=_RETRY_MS,
        security_settings=_security(host, allowed_hosts, origins),
        max_request_body_size=_MAX_BODY_BYTES,
    )
    app: ASGIApp = Starlette(
        routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(sessions))],
        lifespan=lambda _: sessions.run(),
    )
    if token is not None:
        app = _BearerToken(app, token)
    app = _HostGuard(app, _host_names(host, allowed_hosts), origins)
    app = _TrimmedHeaders(app, without_origin=_ANY in origins)
    if origins:  # outermost: a preflight has no token, and a page has to read a refusal
        app = CORSMiddleware(
            app,
            allow_origins=sorted(origins),
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=(_ANY,),  # of each argument that a tool wants in a header, too
            expose_headers=_EXPOSED,
            max_age=_PREFLIGHT_S,
        )
    url = f"{url_of(listening, host)}/mcp"
    await serve_app(app, listening, announce=lambda: announce(url), silenced=("mcp",))


def _host_names(host: str, more: Iterable[str]) -> frozenset[str]:
    """Return the names that requests may address this host by, against DNS rebinding."""
    names = {*_LOOPBACK, *more}
    names |= {socket.gethostname(), socket.getfqdn()} if host in _EVERYWHERE else {host}
    return frozenset(f"[{name}]" if ":" in name else name for name in names)


def _security(host: str, more: Iterable[str], origins: Iterable[str]) -> TransportSecuritySettings:
    """Return the same for the SDK, whose own check takes what begins with an allowed name."""
    shown = sorted(_host_names(host, more))
    own = [
        f"{scheme}://{name}{port}"
        for scheme in ("http", "https")  # a proxy in front of it may speak TLS
        for name in shown
        for port in (":*", "")
    ]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{name}{port}" for name in shown for port in (":*", "")],
        allowed_origins=[*own, *sorted(origins)],
    )


class _Sessions(StreamableHTTPSessionManager):
    """The sessions of clients before 2026, each with a store of the messages that it may miss."""

    def __init__(self, server: Server[Any], **options: Any) -> None:
        self._log = EventLog()
        super().__init__(server, **options)

    @property
    def event_store(self) -> EventStore | None:
        """A new store; the SDK asks for one as each session begins."""
        return SessionEvents(self._log)

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        pass  # the SDK's one store for all sessions


class _TrimmedHeaders:
    """A wrapper of an app that trims the values of headers, as HTTP has it.

    Without the header Origin, which the layer above has judged, where every origin may call.

    Source: RFC 9110, section 5.5.
    """

    def __init__(self, app: ASGIApp, *, without_origin: bool) -> None:
        self._app = app
        self._without_origin = without_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [
                (name, value.strip(b" \t"))
                for name, value in scope["headers"]
                if not (self._without_origin and name == b"origin")
            ]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


class _HostGuard:
    """A wrapper of an app that refuses requests with an unknown Host header, or a foreign Origin.

    Against DNS rebinding. A name is compared as a whole; only a port may follow it.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str], origins: frozenset[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            for host in headers.getlist("host"):
                if not self._is_known(host):
                    await PlainTextResponse("Invalid Host header", 421)(scope, receive, send)
                    return
            for origin in headers.getlist("origin"):
                if not self._may_call(origin.lower()):
                    await PlainTextResponse("Invalid Origin header", 403)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _is_known(self, authority: str) -> bool:
        found = _AUTHORITY.fullmatch(authority.lower())
        return found is not None and found[1] in self._names

    def _may_call(self, origin: str) -> bool:
        if origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")  # a proxy in front may speak TLS
        return scheme in ("http", "https") and self._is_known(authority)


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
