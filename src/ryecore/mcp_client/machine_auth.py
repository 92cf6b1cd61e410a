"""The authorization of a client without a person: client credentials, or a JWT assertion.

It has a secret or a private key (RFC 6749, section 4.4), or presents an assertion (RFC 7523): the
token of its workload's platform, or what an enterprise's identity provider gives for an ID token.

Source: https://modelcontextprotocol.io/extensions/auth/overview;
https://modelcontextprotocol.io/extensions/auth/enterprise-managed-authorization.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qsl

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE
from mcp.shared.auth_utils import resource_url_from_server_url

from ryecore.bounded_http import BodyBounds, bound_body
from ryecore.errors import McpError
from ryecore.mcp_client.peer import Peer
from ryecore.mcp_client.servers import IdentitySetting, OAuthSetting
from ryecore.mcp_client.tokens import may_carry_tokens

__all__ = ["machine_provider"]

_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_MAX_TOKEN_BYTES: Final = 64 * 1024
_TIMEOUT_S: Final = 30.0

Assertion: TypeAlias = Callable[[], Awaitable[str]]


class _AssertionProvider(ClientCredentialsOAuthProvider):
    """The SDK's provider of clients that act for themselves, with an assertion as the grant."""

    def __init__(
        self, url: str, oauth: OAuthSetting, storage: TokenStorage, assertion: Assertion
    ) -> None:
        client_id = oauth.client_id or ""
        super().__init__(
            url, storage, client_id, oauth.client_secret or "",
            token_endpoint_auth_method=_auth_method_of(oauth),
            scope=oauth.scope, issuer=oauth.issuer,
        )  # fmt: skip
        self._client_id = client_id
        self._assertion = assertion

    async def _exchange_token_client_credentials(self) -> httpx2.Request:
        # As the SDK makes it, which has checked the authorization server by now.
        request = await super()._exchange_token_client_credentials()
        form = dict(parse_qsl(request.content.decode()))
        form |= {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": await self._assertion()}
        form.setdefault("client_id", self._client_id)
        sent = request.headers.get("authorization")
        headers = {} if sent is None else {"authorization": sent}
        return httpx2.Request("POST", request.url, data=form, headers=headers)


def machine_provider(
    url: str, oauth: OAuthSetting, storage: TokenStorage, peer: Peer
) -> OAuthClientProvider:
    """Return the SDK's provider for a client that no person logs in.

    Args:
        url: The server's URL.
        oauth: How the client identifies itself.
        storage: Where its tokens are kept.
        peer: The server, whose errors leave out assertions.
    """
    client_id = oauth.client_id or ""
    if oauth.grant == "jwt_bearer":

        async def assertion() -> str:
            if oauth.identity is not None:
                return await _exchanged(oauth.identity, oauth.issuer or "", url, peer)
            return _secret_of(oauth.assertion, oauth.assertion_file, peer)

        return _AssertionProvider(url, oauth, storage, assertion)
    if oauth.private_key is not None:
        signed = SignedJWTParameters(
            issuer=client_id,
            subject=client_id,
            signing_key=oauth.private_key,
            signing_algorithm=oauth.signing_algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            url, storage, client_id, signed.create_assertion_provider(),
            scope=oauth.scope, issuer=oauth.issuer,
        )  # fmt: skip
    return ClientCredentialsOAuthProvider(
        url, storage, client_id, oauth.client_secret or "",
        token_endpoint_auth_method=_auth_method_of(oauth),
        scope=oauth.scope, issuer=oauth.issuer,
    )  # fmt: skip


def _auth_method_of(oauth: OAuthSetting) -> Literal["client_secret_basic", "client_secret_post"]:
    is_posted = oauth.token_endpoint_auth_method == "client_secret_post"
    return "client_secret_post" if is_posted else "client_secret_basic"


def _secret_of(value: str | None, file: str | None, peer: Peer) -> str:
    """Return a token that stands in a variable or in a file, which its platform may renew."""
    token = value or ""
    if file is not None:
        try:
            with Path(file).open("rb") as opened:
                token = opened.read(_MAX_TOKEN_BYTES).decode().strip()
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it isn't text"
            raise McpError(f"{file} can't be read: {reason}", next_step="", server="") from None
    if not token:
        raise McpError(f"{file} is empty", next_step="", server="")
    peer.secrets = {*peer.secrets, token}
    return token


async def _exchanged(identity: IdentitySetting, issuer: str, url: str, peer: Peer) -> str:
    """Have the enterprise's identity provider vouch for a person at an authorization server.

    Source: RFC 8693, section 2.1.
    """
    if not may_carry_tokens(identity.token_endpoint):
        raise McpError("an ID token is only sent over https", next_step="", server="")
    form = {
        "grant_type": _TOKEN_EXCHANGE,
        "requested_token_type": _ID_JAG,
        "subject_token": _secret_of(identity.id_token, identity.id_token_file, peer),
        "subject_token_type": _ID_TOKEN,
        "audience": issuer,
        "resource": resource_url_from_server_url(url),
        "client_id": identity.client_id,
        **({"client_secret": identity.client_secret} if identity.client_secret else {}),
        **({"scope": identity.scope} if identity.scope else {}),
    }

    async def bound(response: httpx2.Response) -> None:
        bound_body(response, BodyBounds(_MAX_TOKEN_BYTES))

    async with httpx2.AsyncClient(
        timeout=_TIMEOUT_S, follow_redirects=False, event_hooks={"response": [bound]}
    ) as client:
        try:
            answer = await client.post(identity.token_endpoint, data=form)
            document = answer.json() if answer.status_code == 200 else {}
        except (httpx2.HTTPError, ValueError) as problem:
            raise OAuthFlowError(f"The identity provider can't be asked: {problem}") from None
    token = document.get("access_token") if isinstance(document, dict) else None
    if not isinstance(token, str) or document.get("issued_token_type") != _ID_JAG:
        raise OAuthFlowError(f"The identity provider refused (HTTP {answer.status_code})")
    peer.secrets = {*peer.secrets, token}
    return token
