"""An MCP server that wants OAuth tokens, and its authorization server, for tests."""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt

_ANSWERS: dict[str, dict[str, Any]] = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "said"}]},
}
_MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class OAuthServer:
    """Both servers at one origin.

    Attributes:
        url: The URL of the MCP server.
        seen: The paths of the requests that came, without the query.
        tokens: The access tokens that are valid.
        lasts_s: How long new tokens say that they last.
        denies: Whether the person at the authorization page says no.
        token_url: Where tokens are had, if not at this origin.
        meeting: Refreshes wait here for each other, if it is set.
        is_open: Whether only calls of tools need a token.
        call_scope: The scope that calls of tools need; empty for any.
        secrets: What came of clients' secrets, as they were sent.
        assertions: The assertions for which tokens are had.
        binds: Whether tokens are bound to the key of whoever asks for them (RFC 9449).
        nonce: What proofs have to hold; empty for nothing.
        proofs: The ids of all proofs that came.
    """

    def __init__(self) -> None:
        self.url = self.origin = ""
        self.seen: list[str] = []
        self.tokens: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.codes: dict[str, tuple[str, str]] = {}
        self.scopes: dict[str, str] = {}
        self.is_open = False
        self.call_scope = ""
        self.secrets: list[str] = []
        self.assertions: set[str] = set()
        self.binds = False
        self.nonce = ""
        self.keys: dict[str, str] = {}
        self.proofs: list[str] = []
        self.lasts_s = 3600
        self.denies = False
        self.token_url = ""
        self.meeting: threading.Barrier | None = None
        self.forms: list[dict[str, str]] = []

    def metadata(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/oauth-protected-resource/mcp":
            return {"resource": self.url, "authorization_servers": [self.origin]}
        if path == "/.well-known/oauth-authorization-server":
            return {
                "issuer": self.origin,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": self.token_url or f"{self.origin}/oauth/token",
                "registration_endpoint": f"{self.origin}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                **({"dpop_signing_alg_values_supported": ["ES256"]} if self.binds else {}),
            }
        return None

    def authorize(self, query: dict[str, str]) -> str:
        """Where the page leads a person who has decided."""
        if self.denies:
            back = {"error": "access_denied", "state": query["state"]}
        else:
            code = secrets.token_hex(8)
            self.codes[code] = query["code_challenge"], query.get("scope", "")
            back = {"code": code, "state": query["state"]}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def prover(self, proof: str, method: str, url: str, token: str = "") -> str | None:
        """The key that a proof shows; None for one that doesn't hold, and "" without the nonce."""
        try:
            key = jwt.get_unverified_header(proof)["jwk"]
            claims = jwt.decode(proof, jwt.PyJWK(key, "ES256").key, ["ES256"])
        except (jwt.PyJWTError, KeyError):
            return None
        digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode()
        wanted = (method, url, digest.rstrip("=") if token else None)
        if (claims["htm"], claims["htu"], claims.get("ath")) != wanted or claims[
            "jti"
        ] in self.proofs:
            return None
        self.proofs.append(claims["jti"])
        is_current = not self.nonce or claims.get("nonce") == self.nonce
        return json.dumps(key, sort_keys=True) if is_current else ""

    def refusal(self, token: str, method: str) -> tuple[int, str] | None:
        """The status and the challenge for a request; None where it may be served."""
        if self.is_open and method != "tools/call":
            return None
        where = f'resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
        scope = f', scope="{self.call_scope}"' if self.call_scope and method == "tools/call" else ""
        if token not in self.tokens:
            return 401, f"Bearer {where}{scope}"
        if scope and self.call_scope not in self.scopes[token].split():
            return 403, f'Bearer error="insufficient_scope", {where}{scope}'
        return None

    def token(self, form: dict[str, str]) -> dict[str, Any] | None:
        self.forms.append(form)
        scope = ""
        if form["grant_type"] == "refresh_token":
            if self.meeting is not None:
                with suppress(threading.BrokenBarrierError):
                    self.meeting.wait()
            if form["refresh_token"] not in self.refresh_tokens:
                return None
            self.refresh_tokens.remove(form["refresh_token"])
        elif form["grant_type"].endswith(":jwt-bearer"):
            if form["assertion"] not in self.assertions:
                return None
        else:
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            known, scope = self.codes.pop(form["code"], ("", ""))
            if known != challenge:
                return None
        access, refresh = (f"{kind}-{secrets.token_hex(16)}" for kind in ("access", "refresh"))
        self.tokens.add(access)
        self.scopes[access] = scope
        self.refresh_tokens.add(refresh)
        return {
            "access_token": access, "token_type": "Bearer",
            "expires_in": self.lasts_s, "refresh_token": refresh,
        }  # fmt: skip


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    """Serve both on a port of this machine."""
    own = OAuthServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            own.seen.append(parts.path)
            if parts.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                return self.reply(302, None, location=own.authorize(query))
            found = own.metadata(parts.path)
            return self.reply(405 if parts.path == "/mcp" else 404 if found is None else 200, found)

        def do_POST(self) -> None:
            own.seen.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            if self.path == "/register":
                return self.reply(201, {**json.loads(body), "client_id": secrets.token_hex(8)})
            if self.path == "/idp/token":
                form = {name: values[0] for name, values in parse_qs(body).items()}
                own.forms.append(form)
                grant = f"grant-{secrets.token_hex(8)}"
                own.assertions.add(grant)
                kind = "urn:ietf:params:oauth:token-type:id-jag"
                return self.reply(200, {"access_token": grant, "issued_token_type": kind})
            proof = self.headers.get("dpop", "")
            if self.path == "/oauth/token":
                key = own.prover(proof, "POST", f"{own.origin}/oauth/token") if own.binds else None
                if key == "":
                    return self.reply(400, {"error": "use_dpop_nonce"}, nonce=own.nonce)
                form = {name: values[0] for name, values in parse_qs(body).items()}
                own.secrets += [
                    form.get("client_secret", ""),
                    self.headers.get("authorization", ""),
                ]
                found = own.token(form)
                if own.binds and found is not None:
                    assert key is not None
                    own.keys[found["access_token"]] = key
                    found["token_type"] = "DPoP"
                return self.reply(
                    400 if found is None else 200, found or {"error": "invalid_grant"}
                )
            message = json.loads(body)
            scheme = "DPoP " if own.binds else "Bearer "
            token = self.headers.get("authorization", "").removeprefix(scheme)
            if own.binds and token in own.tokens:
                key = own.prover(proof, "POST", own.url, token)
                if key == "":
                    asks = 'DPoP error="use_dpop_nonce"'
                    return self.reply(401, None, asks=asks, nonce=own.nonce)
                if key is None or key != own.keys[token]:
                    return self.reply(401, None, asks='DPoP error="invalid_dpop_proof"')
            if (refused := own.refusal(token, message["method"])) is not None:
                return self.reply(refused[0], None, asks=refused[1])
            result = _MODERN | _ANSWERS[message["method"]]
            return self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

        def reply(
            self, status: int, document: object, *, location: str = "", asks: str = "",
            nonce: str = "",
        ) -> None:  # fmt: skip
            body = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if location:
                self.send_header("location", location)
            if asks:
                self.send_header("www-authenticate", asks)
            if nonce:
                self.send_header("DPoP-Nonce", nonce)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        own.origin = f"http://127.0.0.1:{server.server_port}"
        own.url = f"{own.origin}/mcp"
        try:
            yield own
        finally:
            server.shutdown()
