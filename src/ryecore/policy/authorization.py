"""The question to a person whether ryecore may act for them at an MCP server. Pure.

Source: RFC 6749, section 4.1; RFC 8252.
"""

from typing import Protocol, runtime_checkable

from attrs import field

from ryecore.frozen import frozen

__all__ = ["AuthorizationRequest", "Authorize", "Login"]


@frozen
class AuthorizationRequest:
    """A request of an MCP server that a person authorizes ryecore.

    Attributes:
        server: The id of the server's item, such as `mcp/servers/notes`.
        url: The page of the authorization server where the person decides; it comes from the
            server, and is one of http or https.
    """

    server: str
    url: str = field(repr=False)


class Authorize(Protocol):
    """Sends a person to an authorization server; the host gives it to `Rye.open`."""

    @property
    def redirect_uri(self) -> str:
        """The URL that the authorization server sends the person back to."""
        ...

    async def __call__(self, request: AuthorizationRequest, /) -> str:
        """Send a person to the request's URL, and return the whole URL that they came back with.

        It is cancelled when the call ends. A `RyeError` says that nobody authorized it.
        """
        ...


@runtime_checkable
class Login(Authorize, Protocol):
    """Logs a person in at once, also at a server that asks for it only when a tool is called.

    Attributes:
        login_scope: The scopes to log in for, with spaces between them; empty for those that the
            server names.
    """

    login_scope: str
