"""Requests and responses of the protocol, written and read by hand.

Nothing here is shared with either end, so that a change of both is noticed. What a request signs
and what it sends can differ.

Source: docs/design/remote.md#signatures; RFC 9421; RFC 9530.
"""

import hashlib
import http.client
import json
import re
import secrets
import socket
import ssl
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import evolve

from ryecore.frozen import frozen
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.strict_json import read_json
from ryecore.testing.conformance.bench import check, equal

__all__ = [
    "Address",
    "NoAnswer",
    "NodeAnswer",
    "SignedRequest",
    "canonical",
    "check_answer",
    "digest_of",
    "exchange",
    "problem_of",
    "send_raw",
]

_COVERED: Final = ("@method", "@authority", "@path", "@query", "content-digest", "rye-node")
_INPUT: Final = re.compile(
    r'rye=(\(([^()]*)\);created=([1-9][0-9]*);keyid="([0-9a-f]{16})";tag="ryecore")'
)
_SIGNATURE: Final = re.compile(r"rye=:([A-Za-z0-9+/]{86}==):")
_ANSWER_S: Final = 60.0
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class NoAnswer(Exception):
    """The node ended the connection without an answer."""


@frozen
class Address:
    """Where a node answers.

    Attributes:
        url: Its URL.
        tls: How its certificate is checked; None for the system's authorities.
    """

    url: str
    tls: ssl.SSLContext | None = None

    @property
    def host(self) -> str:
        """The host."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def authority(self) -> str:
        """The value of the header `Host`."""
        return urlsplit(self.url).netloc

    @property
    def prefix(self) -> str:
        """The path that the node is mounted at, without a slash at its end."""
        return urlsplit(self.url).path.rstrip("/")

    def connect(self, timeout_s: float = _ANSWER_S) -> socket.socket:
        """Open a connection."""
        plain = socket.create_connection((self.host, self.port), timeout_s)
        if not self.url.startswith("https:"):
            return plain
        context = self.tls or ssl.create_default_context()
        return context.wrap_socket(plain, server_hostname=self.host)


@frozen(slots=False)
class SignedRequest:
    """What a signature says about a request, right or wrong, and who makes it.

    Attributes:
        key: The key that signs.
        node: The fingerprint of the node.
        method: The method.
        authority: The host, and the port.
        path: The path.
        query: The query, without `?`.
        body: The body that the digest is of.
        created_s: When it is made, in seconds since the epoch; None for now.
        expires_in_s: For how many seconds it counts.
        nonce: Bytes in base64; None for fresh ones.
        key_id: The name of the key; None for its fingerprint.
        covered: The components that are signed.
        parameters: The parameters in their place; `{created}` and others are filled in.
        label: The signature's label.
    """

    key: SigningKey
    node: str
    method: str = "GET"
    authority: str = ""
    path: str = "/"
    query: str = ""
    body: bytes = b""
    created_s: int | None = None
    expires_in_s: int = 60
    nonce: str | None = None
    key_id: str | None = None
    covered: Sequence[str] = _COVERED
    parameters: str = (
        ';created={created};expires={expires};nonce="{nonce}";keyid="{key_id}"'
        ';alg="ed25519";tag="ryecore"'
    )
    label: str = "rye"

    def headers(self) -> dict[str, str]:
        """Return the headers that sign the request."""
        created = int(time.time()) if self.created_s is None else self.created_s
        listed = "(" + " ".join(f'"{one}"' for one in self.covered) + ")"
        parameters = listed + self.parameters.format(
            created=created,
            expires=created + self.expires_in_s,
            nonce=self.nonce or b64encode(secrets.token_bytes(16)).decode(),
            key_id=self.key_id or self.key.public.fingerprint,
        )
        values = {
            "@method": self.method,
            "@authority": self.authority.lower(),
            "@path": self.path,
            "@query": f"?{self.query}",
            "content-digest": digest_of(self.body),
            "rye-node": self.node,
        }
        lines = [f'"{one}": {values[one]}' for one in self.covered]
        base = "\n".join([*lines, f'"@signature-params": {parameters}'])
        signature = b64encode(self.key.sign(base.encode())).decode()
        return {
            "Content-Digest": values["content-digest"],
            "Rye-Node": self.node,
            "Signature-Input": f"{self.label}={parameters}",
            "Signature": f"{self.label}=:{signature}:",
        }

    def but(self, **changes: Any) -> "SignedRequest":
        """Return the request with other values."""
        return evolve(self, **changes)


@frozen(slots=False)
class NodeAnswer:
    """An answer of a node.

    Attributes:
        status: Its status.
        headers: Its headers, by their names in lower case.
        body: Its body.
        is_whole: Whether the body ended as its head said.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True

    def document(self) -> Any:
        """Return the body as JSON."""
        try:
            return read_json(self.body.decode())
        except ValueError as problem:
            raise AssertionError(f"The body isn't JSON: {problem}: {self.body[:200]!r}") from None


def digest_of(body: bytes) -> str:
    """Return the header `Content-Digest` of a body."""
    return f"sha-256=:{b64encode(hashlib.sha256(body).digest()).decode()}:"


def problem_of(answer: NodeAnswer) -> str:
    """Return the name of an answer's problem, which must have the form of RFC 9457."""
    media_type = answer.headers.get("content-type", "")
    shown = f"the answer {answer.status} {answer.body[:300]!r}"
    equal(media_type.partition(";")[0], "application/problem+json", f"the media type of {shown}")
    found = answer.document()
    check(isinstance(found, dict), f"A problem isn't an object: {shown}")
    equal(found.get("status"), answer.status, f"the status in {shown}")
    texts = [found.get(name) for name in ("type", "title", "detail", "next_step")]
    check(all(isinstance(one, str) for one in texts), f"A problem lacks a member: {shown}")
    check(bool(found["title"]), f"A problem has no title: {shown}")
    check(
        "Traceback" not in answer.body.decode(errors="replace"),
        f"A problem shows the node's code: {shown}",
    )
    name: str = found["type"]
    return name


def exchange(
    address: Address,
    method: str,
    target: str,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    body: bytes | Sequence[bytes] = b"",
    *,
    timeout_s: float = _ANSWER_S,
    first_bytes: int | None = None,
) -> NodeAnswer:
    """Send one request over a connection of its own.

    Args:
        address: The node.
        method: The method.
        target: Path and query, below where the node is mounted.
        headers: Headers; `Host` and the length are added where they are missing.
        body: The body; parts are sent without a length.
        timeout_s: How long each part of the answer may take, in seconds.
        first_bytes: How many bytes of the answer's body are read; None for all.

    Raises:
        NoAnswer: The node ended the connection.
    """
    pairs = [*headers.items()] if isinstance(headers, Mapping) else [*headers]
    names = {name.lower() for name, _ in pairs}
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    connection.sock = address.connect(timeout_s)
    try:
        connection.putrequest(
            method, address.prefix + target, skip_host=True, skip_accept_encoding=True
        )
        if "host" not in names:
            connection.putheader("Host", address.authority)
        for name, value in pairs:
            connection.putheader(name, value)
        is_chunked = not isinstance(body, bytes)
        if not names & {"content-length", "transfer-encoding"}:
            if not isinstance(body, bytes):
                connection.putheader("Transfer-Encoding", "chunked")
            elif body or method not in ("GET", "HEAD"):
                connection.putheader("Content-Length", str(len(body)))
        with suppress(BrokenPipeError, ConnectionResetError):  # it answers without the rest
            connection.endheaders(body or None, encode_chunked=is_chunked)
        return _read_answer(connection, first_bytes)
    except (http.client.HTTPException, ConnectionError) as problem:
        raise NoAnswer(repr(problem)) from None
    finally:
        connection.close()


def _read_answer(connection: http.client.HTTPConnection, first_bytes: int | None) -> NodeAnswer:
    found = connection.getresponse()
    is_whole = True
    try:
        body = found.read(_MAX_ANSWER_BYTES if first_bytes is None else first_bytes)
        is_whole = found.length in (0, None)
    except http.client.IncompleteRead as part:
        body, is_whole = part.partial, False
    headers: dict[str, str] = {}
    for name, value in found.getheaders():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return NodeAnswer(found.status, headers, body, is_whole)


def send_raw(address: Address, sent: bytes, *, timeout_s: float = 10.0) -> bytes:
    """Send bytes, and return what comes back until the node ends the connection.

    At most the first part of an answer is returned where the connection stays open.
    """
    with address.connect(timeout_s) as connection:
        try:
            connection.sendall(sent)
            found = b""
            while b"\r\n\r\n" not in found:
                part = connection.recv(65536)
                if not part:
                    break
                found += part
            return found
        except (ConnectionError, TimeoutError):
            return b""


def check_answer(
    answer: NodeAnswer, key: PublicKey, request: Mapping[str, str] | None, *, stream: bool = False
) -> None:
    """Prove that a node made an answer, and made it to this request.

    Args:
        answer: The answer.
        key: The node's key.
        request: The headers that sign the request; None for one without a signature.
        stream: Whether the answer has no digest.

    Raises:
        AssertionError: The node didn't.
    """
    found = _INPUT.fullmatch(answer.headers.get("signature-input", ""))
    shown = f"{answer.status}, {dict(answer.headers)}"
    if found is None:
        raise AssertionError(f"An answer isn't signed in the protocol's form: {shown}")
    values = {'"@status"': str(answer.status)}
    if not stream:
        equal(answer.headers.get("content-digest"), digest_of(answer.body), "an answer's digest")
        values['"content-digest"'] = digest_of(answer.body)
    if request is not None:
        values['"signature";req;key="rye"'] = request["Signature"].removeprefix("rye=")
    equal(found[2], " ".join(values), "what an answer's signature covers")
    off_s = int(found[3]) - time.time()
    check(abs(off_s) < 60, f"An answer was signed {off_s:+.0f} s from now.")
    equal(found[4], key.fingerprint, "the key that an answer names")
    lines = [f"{name}: {value}" for name, value in values.items()]
    base = "\n".join([*lines, f'"@signature-params": {found[1]}'])
    value = _SIGNATURE.fullmatch(answer.headers.get("signature", ""))
    if value is None or not key.verifies(b64decode(value[1]), base.encode()):
        raise AssertionError(f"An answer's signature doesn't fit it: {shown}")


def canonical(document: object) -> bytes:
    """Return a document as JSON in canonical form."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
