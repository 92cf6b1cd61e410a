"""Authorization at a server over HTTP: the SDK's OAuth client, its tokens kept in user space.

The SDK discovers, registers, and exchanges codes and refresh tokens. What is added here: tokens and
metadata survive this process, requests with a valid token don't wait for each other, and nothing is
registered where nobody can be asked to log in.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization; ADR 048.
"""

import json
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    extract_field_from_www_auth,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from ryecore.errors import McpError
from ryecore.mcp_client.dpop import DpopAuth
from ryecore.mcp_client.host_line import Lines
from ryecore.mcp_client.peer import Peer
from ryecore.mcp_client.servers import HttpServer, OAuthSetting
from ryecore.mcp_client.tokens import TokenFile, may_authorize, secrets_in

__all__ = ["KeptAuth", "Person", "make_auth"]

_EARLY_S: Final = 30.0
"""How long before a token expires it is refreshed: a request takes its time, too."""

_LOCK_PAUSE_S: Final = 0.05
_LOCKED_S: Final = 30.0
"""How long another process may take to refresh the tokens."""


class Person:
    """The person whom a call's host can ask.

    Args:
        peer: The server that wants to be authorized.
        lines: The calls whose hosts can be asked; None where none can.
        on_pause: Called before a person is asked, who takes their time.
    """

    def __init__(self, peer: Peer, lines: Lines | None, on_pause: Callable[[], None]) -> None:
        self._peer = peer
        self._lines = lines
        self._on_pause = on_pause
        self._answer = ""

    async def redirect_uri(self) -> str | None:
        """Return the URL that a person is sent back to; None where nobody can be asked."""
        if self._lines is None:
            return None
        await self._lines.is_called.wait()  # a connector is started for a call, which is on its way
        line = self._lines.find("authorize")
        return None if line is None else str(line.can["authorize"])

    async def login_scope(self) -> str | None:
        """Return the scopes that a host wants to log in for; None where none wants that.

        Empty for those that the server names.
        """
        if self._lines is None:
            return None
        await self._lines.is_called.wait()
        line = self._lines.find("login")
        return None if line is None else str(line.can["login"])

    async def send(self, url: str) -> None:
        """Send the person to a URL, and keep the one that they come back with."""
        if urlsplit(url).scheme not in ("https", "http") or self._lines is None:
            raise self.login_needed()
        if self._lines.find("authorize") is None:
            raise self.login_needed()
        self._on_pause()
        question = {"server": self._peer.name, "url": url}
        self._answer = str((await self._lines.ask("authorize", question))["url"])

    async def come_back(self) -> AuthorizationCodeResult:
        """Return what the authorization server gave to the person."""
        return read_redirect(self._answer, self._peer)

    def login_needed(self) -> McpError:
        """Return the error that a person has to log in."""
        return McpError(
            "a person has to log in",
            next_step=f"rye mcp login {self._peer.name}",
            server=self._peer.name,
        )


class _Storage:
    """The SDK's storage of one server's client and tokens, on a file."""

    def __init__(self, file: TokenFile, peer: Peer, oauth: OAuthSetting) -> None:
        self._file = file
        self._peer = peer
        self._oauth = oauth
        self.redirect_uri = ""
        self.dpop_key: str | None = None
        self.metadata: Callable[[], dict[str, Any]] = dict
        """Returns what was discovered, which is kept with the tokens."""

    def read(self) -> dict[str, Any]:
        document = self._file.read()
        self._hide(document)
        return document

    def _hide(self, document: dict[str, Any]) -> None:
        self._peer.secrets = {*self._peer.secrets, *secrets_in(document)}

    async def lock(self) -> int | None:
        """Wait until no other process refreshes; return the descriptor to close, None for none."""
        with suppress(OSError), anyio.move_on_after(_LOCKED_S):
            while True:
                descriptor = self._file.try_lock()
                if descriptor is not None:
                    return descriptor
                await anyio.sleep(_LOCK_PAUSE_S)
        return None

    def _write(self, **changes: object) -> None:
        document = {**self.read(), **changes}
        self._hide(document)
        self._file.write(document)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the kept tokens; None where there are none."""
        found = self.read().get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, with when they expire and where they came from."""
        lasts_s = tokens.expires_in
        self._write(
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires_at=None if lasts_s is None else time.time() + lasts_s,
            metadata=self.metadata(),
            dpop_key=self.dpop_key,
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return this client's registration: the configured one, else the kept one."""
        oauth = self._oauth
        if oauth.client_id is not None:
            method = oauth.token_endpoint_auth_method or (
                "client_secret_basic" if oauth.client_secret else "none"
            )
            return OAuthClientInformationFull(
                client_id=oauth.client_id,
                client_secret=oauth.client_secret,
                token_endpoint_auth_method=method,
                issuer=oauth.issuer,
            )
        found = self.read().get("client")
        if found is None:
            return None
        client = OAuthClientInformationFull.model_validate(found)
        known = [str(one) for one in client.redirect_uris or ()]
        # A client that is registered for another address couldn't be sent back to this one.
        is_elsewhere = self.redirect_uri and known and self.redirect_uri not in known
        return None if is_elsewhere and client.client_id != oauth.client_metadata_url else client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a registration, without the tokens of an earlier one.

        Raises:
            McpError: The item names a client, which the SDK replaces where it is another
                authorization server's.
        """
        if self._oauth.client_id is not None:
            raise McpError(
                f"the server leads to another authorization server than {self._oauth.issuer}, "
                "which config.oauth of its item names",
                next_step="",
                server=self._peer.name,
            )
        # The tokens of another registration are of no use to this one.
        self._write(
            client=client_info.model_dump(mode="json", exclude_none=True),
            tokens=None,
            expires_at=None,
            dpop_key=None,
        )


class KeptAuth(httpx2.Auth):
    """The SDK's authorization of requests, with tokens that outlive this process."""

    def __init__(
        self, provider: OAuthClientProvider, storage: _Storage, person: Person | None
    ) -> None:
        self._provider = provider
        self._person = person
        self._storage = storage
        storage.metadata = self._discovered
        self._is_loaded = False
        self._is_login_asked_for = False

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a valid token; else let the SDK get one first.

        The SDK's own flow holds a lock until the response has come, which would let calls wait for
        each other; so it begins only with a response that asks for authorization.
        """
        with ExitStack() as lock:
            answer: httpx2.Response | None = None
            if not await self._needs_renewal(lock):
                challenge = await self._login_challenge()
                for url in self._metadata_urls() if challenge else ():
                    if await _is_metadata((yield create_oauth_metadata_request(url))):
                        answer = self._refused(request, challenge)
                        break
                if answer is None:
                    sent = self._add_token(request)
                    answer = yield request
                    if not _asks(answer):
                        return
                    await self._load(again=True)
                    tokens = self._provider.context.current_tokens
                    if tokens is not None and tokens.access_token != sent:
                        answer = None  # there are others meanwhile
            flow = self._provider.async_auth_flow(request)
            try:
                outgoing = await anext(flow)
                while True:
                    if outgoing is request and answer is not None:
                        response, answer = answer, None
                    else:
                        if outgoing is request:
                            lock.close()  # they are renewed; a call takes its time
                        else:
                            self._check(str(outgoing.url))
                        response = yield outgoing
                    is_refused = outgoing is request and _asks(response)
                    if is_refused and not await self._may_ask(response):
                        return
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                return
            except (OAuthFlowError, ValidationError) as problem:
                raise McpError(str(problem), next_step="", server="") from None
            finally:
                await flow.aclose()

    async def _login_challenge(self) -> str:
        """Return the challenge by which a login that a host wants begins; empty where none does.

        A server may ask for authorization, or for more scopes, only when a tool is called. A login
        calls none: so the first request of the session is treated as if it was refused.
        """
        if self._person is None or self._is_login_asked_for:
            return ""
        scope = await self._person.login_scope()
        if scope is None:
            return ""
        self._is_login_asked_for = True
        if self._provider.context.current_tokens is None:
            return f'Bearer scope="{scope}"' if scope else "Bearer"
        return f'Bearer error="insufficient_scope", scope="{scope}"' if scope else ""

    def _metadata_urls(self) -> list[str]:
        """Return where the server says that it wants authorization, if it does."""
        url = self._provider.context.server_url
        found = [
            *build_protected_resource_metadata_discovery_urls(None, url),
            *build_oauth_authorization_server_metadata_discovery_urls(None, url),
        ]
        return [one for one in found if may_authorize(one, url)]

    def _refused(self, request: httpx2.Request, challenge: str) -> httpx2.Response:
        has_tokens = self._provider.context.current_tokens is not None
        return httpx2.Response(
            403 if has_tokens else 401, headers={"www-authenticate": challenge}, request=request
        )

    def _check(self, url: str) -> None:
        if not may_authorize(url, self._provider.context.server_url):
            raise McpError(
                f"it leads to {url}, and authorization goes over https alone",
                next_step="",
                server="",
            )

    async def _needs_renewal(self, lock: ExitStack) -> bool:
        """Return whether there are tokens that have to be renewed first, locked if so.

        A server may take a refresh token once, so of several processes one uses it.
        """
        await self._load()
        context = self._provider.context
        if self._is_fresh() or context.current_tokens is None:
            return False
        descriptor = await self._storage.lock()
        if descriptor is not None:
            lock.callback(os.close, descriptor)
        await self._load(again=True)  # another process may have refreshed them
        if self._is_fresh() or context.current_tokens is None:
            lock.close()
            return False
        return True

    async def _may_ask(self, response: httpx2.Response) -> bool:
        """Return whether a refusal can be answered by authorization; else it stands.

        Where a person has to be asked, it must be known where they are sent back to before a client
        is registered for that.
        """
        await response.aread()
        if _is_of_session(response):
            return False
        if self._person is None:
            return True
        uri = await self._person.redirect_uri()
        if uri is None:
            return False
        context = self._provider.context
        context.client_metadata.redirect_uris = [AnyUrl(uri)]
        self._storage.redirect_uri = uri
        context.client_info = await self._storage.get_client_info()
        return True

    async def _load(self, *, again: bool = False) -> None:
        if self._is_loaded and not again:
            return
        self._is_loaded = True
        provider, context = self._provider, self._provider.context
        await provider._initialize()
        document = self._storage.read()
        context.token_expiry_time = _early(document.get("expires_at"))
        found = document.get("metadata") or {}
        try:
            if context.oauth_metadata is None and found.get("server"):
                context.oauth_metadata = OAuthMetadata.model_validate(found["server"])
                context.auth_server_url = found.get("issuer")
            if context.protected_resource_metadata is None and found.get("resource"):
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                    found["resource"]
                )
        except ValidationError:  # it is discovered again
            context.oauth_metadata = None

    def _discovered(self) -> dict[str, Any]:
        context = self._provider.context
        found: dict[str, Any] = {"issuer": context.auth_server_url}
        if context.oauth_metadata is not None:
            found["server"] = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
        if context.protected_resource_metadata is not None:
            found["resource"] = context.protected_resource_metadata.model_dump(
                mode="json", exclude_none=True
            )
        return found

    def _is_fresh(self) -> bool:
        return self._provider.context.is_token_valid()

    def _add_token(self, request: httpx2.Request) -> str | None:
        tokens = self._provider.context.current_tokens
        if tokens is None:
            return None
        request.headers["Authorization"] = f"Bearer {tokens.access_token}"
        return tokens.access_token


def _early(expires_at: object) -> float | None:
    return expires_at - _EARLY_S if isinstance(expires_at, int | float) else None


async def _is_metadata(response: httpx2.Response) -> bool:
    """Return whether a response is a document, as metadata of authorization is."""
    if response.status_code != 200:
        return False
    try:
        return isinstance(json.loads(await response.aread()), dict)
    except ValueError:
        return False


def _asks(response: httpx2.Response) -> bool:
    """Return whether a response asks for authorization, or for more of it."""
    if response.status_code == 403:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == 401


def _is_of_session(response: httpx2.Response) -> bool:
    """Return whether a refusal is one of a session that is unknown, not of credentials."""
    return (
        "mcp-session-id" in response.request.headers
        and "www-authenticate" not in response.headers
        and b"session" in response.content.lower()
    )


def make_auth(server: HttpServer, peer: Peer, file: TokenFile, person: Person) -> httpx2.Auth:
    """Return the authorization of a server's requests.

    Args:
        server: The server.
        peer: The server, whose errors leave out the tokens.
        file: Where its tokens are kept.
        person: Who is asked where no token that is kept will do.
    """
    oauth = server.oauth or OAuthSetting()
    storage = _Storage(file, peer, oauth)
    if oauth.client_id is not None and oauth.grant != "authorization_code":
        from ryecore.mcp_client.machine_auth import (  # noqa: PLC0415 - imports cryptography
            machine_provider,
        )

        machine = machine_provider(server.url, oauth, storage, peer)
        return DpopAuth(KeptAuth(machine, storage, None), storage)
    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl("http://127.0.0.1/callback")],  # until a person is found
        client_name="ryecore",
        token_endpoint_auth_method=oauth.token_endpoint_auth_method,
    )
    provider = OAuthClientProvider(
        server.url, metadata, storage, person.send, person.come_back,
        client_metadata_url=oauth.client_metadata_url,
    )  # fmt: skip
    return DpopAuth(KeptAuth(provider, storage, person), storage)


def read_redirect(url: str, peer: Peer) -> AuthorizationCodeResult:
    """Read the URL that a person came back with; an McpError says what the server refused."""
    found = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    if "error" in found:
        said = json.dumps(found.get("error_description") or found["error"])
        raise McpError(
            f"The authorization for the MCP server '{peer.name}' was refused: {said}.",
            next_step=f"rye mcp login {peer.name}",
            server=peer.name,
        )
    return AuthorizationCodeResult(
        code=found.get("code", ""), state=found.get("state"), iss=found.get("iss")
    )
