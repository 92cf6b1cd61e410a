"""A web server within this process, for an application that lives in its event loop.

Needs uvicorn, and asyncio.
"""

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ryecore.display.sanitize import warn
from ryecore.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["is_loopback", "listen", "load_tls", "renew_tls", "serve_app", "url_of"]

_SHUTDOWN_S: Final = 1
_BACKLOG: Final = 1024
_JOINED_BYTES: Final = 64 * 1024


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address.

    Raises:
        ConfigError: The address isn't this machine's, or the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as problem:
        raise ConfigError(
            f"Nothing can listen at {host}:{port}: {_reason(problem)}.",
            next_step="Name another address or port; 0 takes any port that is free.",
        ) from None
    # Connections inherit it. Without it, the body of an answer waits for the acknowledgement of its
    # head, which the other end delays by 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _reason(problem: OSError | OverflowError) -> str:
    if isinstance(problem, OSError) and problem.errno and problem.errno > 0:
        return os.strerror(problem.errno)  # its own text repeats the address
    return str(problem)


def load_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Load a certificate with its chain, and its key, both in PEM.

    Raises:
        ConfigError: They can't be read, or don't belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise ConfigError(
            f"TLS can't be used with {certificate} and {key}: {why}.",
            next_step="Name a certificate with its chain, and its key without a password, in PEM.",
        ) from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


async def renew_tls(
    context: ssl.SSLContext, certificate: Path, key: Path, *, each_s: float = 60.0
) -> None:
    """Load a certificate and its key again when they were renewed, until cancelled.

    New connections get them. Files that can't be used, or don't belong together yet, are warned of,
    and what was loaded before stays.

    Args:
        context: Where they are loaded.
        certificate: The certificate with its chain.
        key: Its key.
        each_s: How often the files are looked at, in seconds.
    """
    loaded = _versions(certificate, key)
    while True:
        await anyio.sleep(each_s)
        found = _versions(certificate, key)
        if found == loaded:
            continue
        loaded = found
        try:
            load_tls(certificate, key)  # tried apart: half a change would spoil what is in use
            context.load_cert_chain(certificate, key, password=_no_password)
        except (ConfigError, OSError, ValueError) as problem:
            warn(f"The renewed certificate isn't used: {problem}")


def _versions(*paths: Path) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino, status.st_mtime_ns))
    return found


def url_of(listening: socket.socket, host: str, *, tls: bool = False) -> str:
    """Return the URL of a listening socket, without a path."""
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{listening.getsockname()[1]}"


async def serve_app(
    app: "ASGIApp",
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    max_connections: int | None = None,
    head_timeout_s: float = 20.0,
    runs_lifespan: bool = True,
    announce: Callable[[], None] = lambda: None,
    silenced: Sequence[str] = (),
) -> None:
    """Serve an application until cancelled.

    Args:
        app: The application.
        listening: The socket, which is closed at the end.
        tls: The certificate; None for plain HTTP.
        max_connections: The most connections at once; further ones get 503.
        head_timeout_s: How long the head of a request may take to come, in seconds. Its connection
            is closed then: connections that never send a request could else take all there are.
        runs_lifespan: Whether the application's lifespan is run, and not by the caller.
        announce: Called when the server accepts connections.
        silenced: Loggers that say nothing of streams that are closed at the end.
    """
    config = uvicorn.Config(
        app,
        http=_Http,
        lifespan="auto" if runs_lifespan else "off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max_connections,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    web = _Web(config, ("uvicorn.error", *silenced))

    async def run() -> None:
        # A cancellation would leave its connections open, so it is asked to end instead.
        with anyio.CancelScope(shield=True):
            await web.serve(sockets=[listening])
        tasks.cancel_scope.cancel()

    with listening:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(web.close_silent, head_timeout_s)
            announce()
            try:
                await anyio.sleep_forever()
            finally:
                web.should_exit = True


class _Web(uvicorn.Server):
    """uvicorn without its signal handlers, which belong to the process."""

    def __init__(self, config: uvicorn.Config, silenced: Sequence[str]) -> None:
        super().__init__(config)
        self._silenced = silenced

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def close_silent(self, timeout_s: float) -> None:
        """Close connections on which the head of a request is awaited for too long.

        uvicorn has a timeout only for a connection on which nothing comes after a response.
        """
        awaited: dict[object, tuple[object, float]] = {}  # the last request, and since when
        while True:
            await anyio.sleep(timeout_s / 4)
            now, before, awaited = time.monotonic(), awaited, {}
            for one in tuple(self.server_state.connections):
                request, transport = getattr(one, "cycle", None), getattr(one, "transport", None)
                if transport is None or (request is not None and not request.response_complete):
                    continue
                known = before.get(one)
                since = known[1] if known is not None and known[0] is request else now
                awaited[one] = (request, since)
                if now - since > timeout_s:
                    transport.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Closing a stream that a client holds open would print a traceback.
        for name in self._silenced:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        await super().shutdown(sockets)


class _JoinedWrites:
    """A transport that joins small writes of one step of the event loop.

    The head and the body of a short answer then leave in one packet, and wake their reader once.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write at the end of this step, or now where much is to be written."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size_bytes += len(data)
        if self._size_bytes > _JOINED_BYTES:
            self._flush()

    def close(self) -> None:
        """Close the connection once all is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts, self._size_bytes = self._parts, [], 0
        if parts:
            self._transport.write(b"".join(parts))


class _Http(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        joined = _JoinedWrites(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, joined))
