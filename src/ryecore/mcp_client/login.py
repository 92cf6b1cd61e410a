"""A person's login at an MCP server, who comes back to this machine's loopback address.

Source: RFC 8252, section 7.3.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

import anyio

from ryecore.errors import InputError
from ryecore.mcp_client.tokens import is_scope
from ryecore.policy.authorization import AuthorizationRequest

__all__ = ["Loopback"]

_PATH: Final = "/callback"
_MAX_REQUEST_BYTES: Final = 16 * 1024
_REQUEST_TIMEOUT_S: Final = 10.0
_PAGE: Final = "<!doctype html><title>ryecore</title><p>You can close this window.</p>"
_OTHER_PAGE: Final = (
    "<!doctype html><title>ryecore</title><p>This is not the login that is waited for. "
    "Open the address that the command printed last.</p>"
)


class Loopback:
    """Sends a person to an authorization server, and listens for their return.

    Args:
        show: Shows the person where to go.
        port: The port to listen on; 0 takes any.
        scope: The scopes to log in for, with spaces between them; empty for those that the server
            names.

    Raises:
        InputError: The port can't be used, or the scopes can't be sent.
    """

    def __init__(
        self, show: Callable[[AuthorizationRequest], None], port: int = 0, scope: str = ""
    ) -> None:
        if not is_scope(scope):
            raise InputError(
                "The scopes hold a character that no scope has.",
                next_step="Write them as the error of the call does, with spaces between them.",
            )
        self.login_scope = scope
        self._show = show
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind(("127.0.0.1", port))
        except OSError as problem:
            self._listener.close()
            raise InputError(
                f"The port {port} can't be listened on: {problem.strerror}.",
                next_step="Name another one with --port.",
            ) from None
        self._listener.listen()
        self._listener.setblocking(False)
        self.is_used = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def redirect_uri(self) -> str:
        """The address that the person is sent back to."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}{_PATH}"

    async def __call__(self, request: AuthorizationRequest, /) -> str:
        """Show a person where to go, and wait for their return, with the state that they had."""
        self.is_used = True
        state = _state_of(request.url)
        self._show(request)
        returned: list[str] = []
        async with anyio.create_task_group() as visits:

            async def serve(visitor: socket.socket) -> None:
                target = await _serve(visitor, state)
                if target is not None:
                    returned.append(target)
                    visits.cancel_scope.cancel()

            while True:
                await anyio.wait_readable(self._listener)
                with suppress(BlockingIOError, ConnectionAbortedError):  # the visitor has left
                    visits.start_soon(serve, self._listener.accept()[0])
        return self.redirect_uri.removesuffix(_PATH) + returned[0]


async def _serve(visitor: socket.socket, state: str | None) -> str | None:
    """Answer a request; return its target where that is the return of the person who was sent.

    Any page that the person opens can send a browser here. So a return with another state is said
    to be one, and counts for nothing.

    Source: RFC 9700, section 4.7.
    """
    visitor.setblocking(False)
    with visitor, suppress(OSError), anyio.move_on_after(_REQUEST_TIMEOUT_S):
        request = b""
        while b"\r\n\r\n" not in request and len(request) < _MAX_REQUEST_BYTES:
            await anyio.wait_readable(visitor)
            chunk = visitor.recv(4096)
            if not chunk:
                return None
            request += chunk
        words = request.partition(b"\r\n")[0].decode("ascii", errors="replace").split(" ")
        is_return = len(words) == 3 and words[0] == "GET" and _is_return(words[1])
        is_own = is_return and _state_of(words[1]) == state
        status, page = ("200 OK", _PAGE) if is_own else ("404 Not Found", "")
        if is_return and not is_own:
            status, page = "400 Bad Request", _OTHER_PAGE
        visitor.send(
            f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
            f"Content-Length: {len(page)}\r\nCache-Control: no-store\r\n"
            f"Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{page}".encode()
        )
        return words[1] if is_own else None
    return None


def _is_return(target: str) -> bool:
    """Return whether a request is the return of a person from an authorization server."""
    try:
        parts = urlsplit(target)
    except ValueError:  # any page can send a browser here, with anything for an address
        return False
    return parts.path == _PATH and ("code=" in parts.query or "error=" in parts.query)


def _state_of(url: str) -> str | None:
    """Return the state in a URL's query; None where it has none, or several."""
    found = parse_qs(urlsplit(url).query).get("state", [])
    return found[0] if len(found) == 1 else None
