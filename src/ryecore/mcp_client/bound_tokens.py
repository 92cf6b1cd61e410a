"""Tokens that are bound to a key of this client, where the authorization server offers it (DPoP).

Whoever steals such a token can't use it without the key: each request proves that it has it. The
SDK knows none of this, so its flow runs within this one, and sees tokens of the type Bearer.

Source: RFC 9449.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import httpx2

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["BoundAuth", "KeyKeeper"]

_ALGORITHM: Final = "ES256"
_NONCE: Final = "dpop-nonce"
_WANTED: Final = "use_dpop_nonce"


class KeyKeeper(Protocol):
    """Keeps the key of bound tokens with them.

    Attributes:
        bound_key: The key, in PEM, to which the tokens are bound that are kept next; None for none.
    """

    bound_key: str | None

    def read(self) -> Mapping[str, Any]:
        """Return what is kept: `tokens`, and `dpop_key` where they are bound."""
        ...


class BoundAuth(httpx2.Auth):
    """An authorization whose tokens are bound to a key, if the authorization server binds them.

    Args:
        inner: The authorization by tokens of the type Bearer.
        keeper: Keeps the key.
    """

    def __init__(self, inner: httpx2.Auth, keeper: KeyKeeper) -> None:
        self._inner = inner
        self._keeper = keeper
        self._key: EllipticCurvePrivateKey | None = None
        self._pem = ""
        self._is_offered = False
        self._token = ""
        self._is_bound = False
        self._nonces: dict[str, str] = {}

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the requests of the inner authorization, with a proof where one is needed."""
        flow = self._inner.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                is_proved = self._prove(outgoing)
                response = yield outgoing
                if is_proved and await self._wants_nonce(response):
                    self._prove(outgoing)
                    response = yield outgoing
                    await self._wants_nonce(response)
                outgoing = await flow.asend(await self._seen(outgoing, response))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _prove(self, request: httpx2.Request) -> bool:
        """Add a fresh proof to a request for a token, or with a bound one; return whether it is."""
        request.headers.pop("dpop", None)
        if _is_for_token(request):
            if not self._is_offered and not self._load():
                return False
            request.headers["dpop"] = self._proof(request, "")
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not token or not self._is_of_bound(token):
            return False
        if scheme.lower() in ("bearer", "dpop"):
            request.headers["authorization"] = f"DPoP {token}"
        request.headers["dpop"] = self._proof(request, token)
        return True

    def _is_of_bound(self, token: str) -> bool:
        """Return whether a token is bound; one that another process had is looked up."""
        if token != self._token:
            kept = self._keeper.read()
            is_kept = (kept.get("tokens") or {}).get("access_token") == token
            self._token, self._is_bound = token, is_kept and self._load()
        return self._is_bound

    def _load(self) -> bool:
        """Load the key of the tokens that are kept; return whether there is one."""
        pem = self._keeper.read().get("dpop_key")
        if not isinstance(pem, str):
            return False
        if pem != self._pem:
            self._key, self._pem = _read_key(pem), pem
            self._keeper.bound_key = pem
        return True

    def _proof(self, request: httpx2.Request, token: str) -> str:
        """Return a proof for one request. Source: RFC 9449, section 4.2."""
        if self._key is None:
            self._pem = _new_key()
            self._key = _read_key(self._pem)
        parts = urlsplit(str(request.url))
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": request.method,
            "htu": urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")),
            "iat": int(time.time()),
        }
        if token:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        nonce = self._nonces.get(parts.netloc)
        if nonce is not None:
            claims["nonce"] = nonce
        return _signed(claims, self._key)

    async def _wants_nonce(self, response: httpx2.Response) -> bool:
        """Note the nonce of a response; return whether the request is wanted again with it."""
        nonce = response.headers.get(_NONCE)
        if nonce is None:
            return False
        self._nonces[urlsplit(str(response.request.url)).netloc] = nonce
        if response.status_code == 401:
            return _WANTED in response.headers.get("www-authenticate", "")
        return response.status_code == 400 and (await _document(response)).get("error") == _WANTED

    async def _seen(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return a response as the inner authorization understands it."""
        if response.status_code != 200:
            return response
        if request.method == "GET" and "/.well-known/" in request.url.path:
            offered = (await _document(response)).get("dpop_signing_alg_values_supported")
            if isinstance(offered, list):
                self._is_offered = _ALGORITHM in offered
        elif _is_for_token(request):
            document = await _document(response)
            is_bound = str(document.get("token_type", "")).lower() == "dpop"
            self._token, self._is_bound = str(document.get("access_token")), is_bound
            self._keeper.bound_key = self._pem if is_bound else None
            if is_bound:
                plain = {**document, "token_type": "Bearer"}
                return httpx2.Response(200, json=plain, request=response.request)
        return response


# What follows imports cryptography, which takes a while, for tokens that are bound alone.


def _new_key() -> str:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return (
        ec.generate_private_key(ec.SECP256R1())
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def _read_key(pem: str) -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    loaded = serialization.load_pem_private_key(pem.encode(), None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the tokens is none of an elliptic curve")
    return loaded


def _signed(claims: Mapping[str, Any], key: "EllipticCurvePrivateKey") -> str:
    import jwt  # noqa: PLC0415
    from jwt.algorithms import ECAlgorithm  # noqa: PLC0415

    public = ECAlgorithm(ECAlgorithm.SHA256).to_jwk(key.public_key(), as_dict=True)
    return jwt.encode(dict(claims), key, _ALGORITHM, headers={"typ": "dpop+jwt", "jwk": public})


def _is_for_token(request: httpx2.Request) -> bool:
    kind = request.headers.get("content-type", "")
    return (
        request.method == "POST"
        and kind.startswith("application/x-www-form-urlencoded")
        and b"grant_type=" in request.content
    )


async def _document(response: httpx2.Response) -> Mapping[str, Any]:
    """Return the JSON object of a response; an empty one where it has none."""
    try:
        found = json.loads(await response.aread())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
