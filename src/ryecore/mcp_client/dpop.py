"""DPoP: tokens that are bound to a key of this client, where the authorization server offers it.

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

__all__ = ["DpopAuth", "DpopKeyStore"]

_ALGORITHM: Final = "ES256"
_NONCE_HEADER: Final = "dpop-nonce"
_NONCE_ERROR: Final = "use_dpop_nonce"


class DpopKeyStore(Protocol):
    """Keeps the key of bound tokens beside them.

    Attributes:
        dpop_key: The key, in PEM, of the tokens that are stored next; None for unbound ones.
    """

    dpop_key: str | None

    def read(self) -> Mapping[str, Any]:
        """Return what is kept: `tokens`, and `dpop_key` where they are bound."""
        ...


class DpopAuth(httpx2.Auth):
    """An authorization whose tokens are bound to a key, if the authorization server binds them.

    Args:
        inner: The authorization by tokens of the type Bearer.
        store: Keeps the key.
    """

    def __init__(self, inner: httpx2.Auth, store: DpopKeyStore) -> None:
        self._inner = inner
        self._store = store
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
                if is_proved and await self._must_retry(response):
                    self._prove(outgoing)
                    response = yield outgoing
                    await self._must_retry(response)
                outgoing = await flow.asend(await self._as_bearer(outgoing, response))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _prove(self, request: httpx2.Request) -> bool:
        """Add a fresh proof to a request that needs one; return whether it does."""
        request.headers.pop("dpop", None)
        if _is_for_token(request):
            if not self._is_offered and not self._load():
                return False
            request.headers["dpop"] = self._proof(request, "")
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not token or not self._is_bound_token(token):
            return False
        if scheme.lower() in ("bearer", "dpop"):
            request.headers["authorization"] = f"DPoP {token}"
        request.headers["dpop"] = self._proof(request, token)
        return True

    def _is_bound_token(self, token: str) -> bool:
        """Return whether a token is bound; one that another process obtained is looked up."""
        if token != self._token:
            kept = self._store.read()
            is_kept = (kept.get("tokens") or {}).get("access_token") == token
            self._token, self._is_bound = token, is_kept and self._load()
        return self._is_bound

    def _load(self) -> bool:
        """Load the key of the tokens that are kept; return whether there is one."""
        pem = self._store.read().get("dpop_key")
        if not isinstance(pem, str):
            return False
        if pem != self._pem:
            key = _read_key(pem)
            if key is None:  # the server then refuses its tokens, and a new login replaces both
                return False
            self._key, self._pem, self._store.dpop_key = key, pem, pem
        return True

    def _proof(self, request: httpx2.Request, token: str) -> str:
        """Return a proof for one request. Source: RFC 9449, section 4.2."""
        if self._key is None:
            self._key = _new_key()
            self._pem = _pem_of(self._key)
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

    async def _must_retry(self, response: httpx2.Response) -> bool:
        """Store the nonce of a response; return whether the request must be sent again with it."""
        nonce = response.headers.get(_NONCE_HEADER)
        if nonce is None:
            return False
        self._nonces[urlsplit(str(response.request.url)).netloc] = nonce
        if response.status_code == 401:
            return _NONCE_ERROR in response.headers.get("www-authenticate", "")
        return (
            response.status_code == 400 and (await _document(response)).get("error") == _NONCE_ERROR
        )

    async def _as_bearer(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> httpx2.Response:
        """Return a response with its bound token as type Bearer, for the inner authorization."""
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
            self._store.dpop_key = self._pem if is_bound else None
            if is_bound:
                plain = {**document, "token_type": "Bearer"}
                return httpx2.Response(200, json=plain, request=response.request)
        return response


# What follows imports cryptography, which takes a while, only for tokens that are bound.


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return ec.generate_private_key(ec.SECP256R1())


def _pem_of(key: "EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _read_key(pem: str) -> "EllipticCurvePrivateKey | None":
    """Read a private key of an elliptic curve; None where the text holds another one, or none."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    try:
        loaded = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError):
        return None
    return loaded if isinstance(loaded, ec.EllipticCurvePrivateKey) else None


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
