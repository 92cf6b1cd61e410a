"""A web server within this process, for an application that lives in its event loop.

Needs uvicorn, and asyncio.
"""

import asyncio
import logging
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ryecore.display.sanitize import warn
from ryecore.errors import ConfigError
from ryecore.lillux.os_errors import exhaustion_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["is_loopback", "listen", "load_tls", "renew_tls", "serve_app", "url_of"]

_SHUTDOWN_S: Final = 1
_BACKLOG: Final = 1024
_JOINED_BYTES: Final = 64 * 1024
_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_PIPELINED: Final = 16
"""So many requests of one connection wait for the answers of earlier ones."""

_TOLD_CONNECTIONS: Final = 64
"""So many connections beyond the most are answered with 503; further ones are closed at once."""

_OTHER_FILES: Final = 512
"""How many files the process may have open beside its connections."""

_WARNED_EACH_S: Final = 60.0
_log: Final = logging.getLogger("ryecore.serving")


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
        max_connections: The most connections at once; further ones get 503, or are closed. The
            process's limit of open files is raised for them where that is possible.
        head_timeout_s: How long the head of a request may take to come, in seconds. Its connection
            is closed then: connections that never send a request could else take all there are.
            asyncio gives TLS 60 s to begin.
        runs_lifespan: Whether the application's lifespan is run, and not by the caller.
        announce: Called when the server accepts connections.
        silenced: Loggers that say nothing of streams that are closed at the end.
    """
    limit, most = _make_room(max_connections)
    config = _Config(
        app,
        http=_Http,
        lifespan="auto" if runs_lifespan else "off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limit,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    config.most_connections = most
    web = _Web(config, ("uvicorn.error", *silenced))

    async def run() -> None:
        # A cancellation would leave its connections open, so it is asked to end instead.
        with anyio.CancelScope(shield=True):
            await web.serve(sockets=[listening])
        tasks.cancel_scope.cancel()

    with listening, _full_tables_logged(listening):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(web.close_silent, head_timeout_s)
            announce()
            try:
                await anyio.sleep_forever()
            finally:
                web.should_exit = True


def _make_room(max_connections: int | None) -> tuple[int | None, int | None]:
    """Raise the limit of open files for connections, or have fewer of them.

    Returns:
        From how many connections on requests get 503, and from how many on none is held open.
    """
    if max_connections is None:
        return None, None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max_connections + _TOLD_CONNECTIONS
    wanted = most + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = min(most, max(soft - _OTHER_FILES, soft // 2))
    limit = min(max_connections, max(most - _TOLD_CONNECTIONS, most // 2))
    if limit < max_connections:
        _log.warning(
            "%d connections are taken at once, and not %d: this process may open only %d files "
            "(ulimit -n).",
            limit,
            max_connections,
            soft,
        )
    return limit, most


@contextmanager
def _full_tables_logged(listening: socket.socket) -> Iterator[None]:
    """Log in one line, once a minute, that no connection can be taken.

    asyncio has a traceback for each of its attempts, up to a thousand in a second.
    """
    loop = asyncio.get_running_loop()
    before, number = loop.get_exception_handler(), listening.fileno()
    logged_at = -_WARNED_EACH_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged_at
        problem, at = context.get("exception"), context.get("socket")
        used_up = exhaustion_of(problem) if isinstance(problem, OSError) else None
        if used_up is not None and at is not None and at.fileno() == number:
            now = loop.time()
            if now - logged_at >= _WARNED_EACH_S:
                logged_at = now
                _log.error("Connections can't be taken: %s", used_up)
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


class _Config(uvicorn.Config):
    """uvicorn's settings, with the most connections that are held open; None for no bound."""

    most_connections: int | None = None


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
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        self._size_bytes += len(data)
        if self._size_bytes > _JOINED_BYTES:
            self.flush()

    def close(self) -> None:
        """Close the connection once all is written."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Write what waits."""
        parts, self._parts, self._size_bytes = self._parts, [], 0
        if parts:
            self._transport.write(b"".join(parts))


class _Http(HttpToolsProtocol):
    """HTTP by httptools, with bounds: it reads heads, trailers and chunk headers of any length.

    Each has at most 64 to 128 KiB here.
    """

    _has_head = False
    _awaited_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._joined = _JoinedWrites(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, self._joined))
        most = cast(_Config, self.config).most_connections
        if most is not None and len(self.connections) > most:
            cast(asyncio.Transport, transport).abort()

    def data_received(self, data: bytes) -> None:
        for begin in range(0, len(data), _MAX_HEAD_BYTES):
            if self.transport.is_closing():
                return
            piece = data[begin : begin + _MAX_HEAD_BYTES]
            self._awaited_bytes += len(piece)
            super().data_received(piece)
            if self._awaited_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        self._has_head = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # else it is one of a trailer, which nothing here reads
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Take a request, or raise, which refuses it: httptools takes any number of hosts.

        Source: RFC 9112, section 3.2.
        """
        hosts = sum(name == b"host" for name, _ in self.headers)
        version = self.parser.get_http_version()  # pyright: ignore[reportOptionalMemberAccess]
        if hosts > 1 or (hosts == 0 and version != "1.0"):
            raise ValueError("A request names one host.")
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise ValueError("Too many requests wait for the answer of an earlier one.")
        self._has_head, self._awaited_bytes = True, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._awaited_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        self._joined.flush()  # and not at the end of this step: somebody waits for it
        super().on_response_complete()
