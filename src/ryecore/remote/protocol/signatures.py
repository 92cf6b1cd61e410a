"""Signatures of requests and responses, and digests of bodies.

A restricted profile of RFC 9421 with Ed25519 and of RFC 9530 with SHA-256: one signature with the
label `rye`, over fixed components in a fixed order. What is read has exactly the form that is
written here; everything else is refused, so that no header has two readings.

Source: decision 63; docs/design/remote.md#signatures.
"""

import hashlib
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import field

from ryecore.frozen import frozen
from ryecore.lillux.keys import PublicKey, SigningKey

__all__ = [
    "RequestSignature",
    "SignatureInvalid",
    "check_digest",
    "check_response",
    "combine_headers",
    "content_digest",
    "read_request",
    "sign_request",
    "sign_response",
]

MAX_EXPIRES_IN_S: Final = 300
"""The longest time between `created` and `expires` of a request, in seconds."""

_TAG: Final = "ryecore"
_REQUEST: Final = ("@method", "@authority", "@path", "@query", "content-digest", "rye-node")
_SHA256: Final = r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
_SIGNATURE: Final = r"[A-Za-z0-9+/]{85}[AQgw]=="
# The unused bits of base64 are zero and an integer has no leading zero: one spelling of each value.
_TIME: Final = r"[1-9][0-9]{0,14}"
_FINGERPRINT: Final = r"[0-9a-f]{16}"

_DIGEST_HEADER: Final = re.compile(f"sha-256=:({_SHA256}):")
_SIGNATURE_HEADER: Final = re.compile(f"rye=:({_SIGNATURE}):")
_REQUEST_INPUT: Final = re.compile(
    r'rye=(\("@method" "@authority" "@path" "@query" "content-digest" "rye-node"\)'
    rf";created=({_TIME});expires=({_TIME})"
    r';nonce="([A-Za-z0-9+/]{21}[AQgw]==)"'
    rf';keyid="({_FINGERPRINT})";alg="ed25519";tag="{_TAG}")'
)
_RESPONSE_INPUT: Final = re.compile(
    rf'rye=((\([^()]*\));created={_TIME};keyid="({_FINGERPRINT})";tag="{_TAG}")'
)
_VALUES: Final = {
    "@method": re.compile(r"[A-Z]{1,32}"),
    "@authority": re.compile(r"[A-Za-z0-9._~\[\]:%-]{1,512}"),
    "@path": re.compile(r"/[\x21-\x7e]*"),
    "@query": re.compile(r"\?[\x21-\x7e]*"),
    "content-digest": _DIGEST_HEADER,
    "rye-node": re.compile(_FINGERPRINT),
}


class SignatureInvalid(ValueError):
    """A message isn't signed as it has to be.

    Attributes:
        reason: Why, for logs and tests; never sent to the other end.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"The signature isn't valid: {reason}.")
        self.reason: str = reason


@frozen
class RequestSignature:
    """The signature of a request, read and not yet proved.

    Attributes:
        key_id: The fingerprint of the key that it names.
        node: The fingerprint of the node that the request is for.
        nonce: 16 random bytes in base64.
        created_s: When it was made, in seconds since the epoch.
        expires_s: Until when it counts, in seconds since the epoch.
        value: The signature in base64.
    """

    key_id: str
    node: str
    nonce: str
    created_s: int
    expires_s: int
    value: str
    _base: bytes = field(repr=False)

    def check(self, key: PublicKey) -> None:
        """Prove that this key signed the request.

        Raises:
            SignatureInvalid: It didn't.
        """
        _prove(key, self.key_id, self.value, self._base)


def sign_request(
    key: SigningKey,
    *,
    method: str,
    authority: str,
    path: str,
    query: str,
    body: bytes,
    node: str,
    now_s: int,
    expires_in_s: int = 60,
) -> dict[str, str]:
    """Return the headers that sign a request.

    Args:
        key: The caller's key.
        method: The method, in capitals.
        authority: The host, and the port where it isn't the scheme's own.
        path: The path as it is sent, percent-encoded.
        query: The query as it is sent, without `?`.
        body: The body; empty for none.
        node: The fingerprint of the node's key.
        now_s: The time, in seconds since the epoch.
        expires_in_s: For how many seconds it counts, 1 to 300.

    Returns:
        `Content-Digest`, `Rye-Node`, `Signature-Input` and `Signature`.

    Raises:
        SignatureInvalid: A component can't be part of a request, or the times don't fit.
    """
    if not 0 < expires_in_s <= MAX_EXPIRES_IN_S or not 0 < now_s < 10**14:
        raise SignatureInvalid("its times are out of bounds")
    digest = content_digest(body)
    nonce = b64encode(secrets.token_bytes(16)).decode()
    parameters = (
        f"{_listed(_REQUEST)};created={now_s};expires={now_s + expires_in_s}"
        f';nonce="{nonce}";keyid="{key.public.fingerprint}";alg="ed25519";tag="{_TAG}"'
    )
    components = _request_components(method, authority, path, query, digest, node)
    return {
        "Content-Digest": digest,
        "Rye-Node": node,
        "Signature-Input": f"rye={parameters}",
        "Signature": f"rye=:{_sign(key, signature_base(components, parameters))}:",
    }


def read_request(
    *, method: str, authority: str, path: str, query: str, headers: Mapping[str, str]
) -> RequestSignature:
    """Read the signature of a request; `RequestSignature.check` proves it.

    Args:
        method: The method.
        authority: What the header `Host` says.
        path: The path as it came, percent-encoded.
        query: The query as it came, without `?`.
        headers: The headers by their names in lower case.

    Raises:
        SignatureInvalid: There is none, or one of another form.
    """
    found = _REQUEST_INPUT.fullmatch(_header(headers, "signature-input"))
    if found is None:
        raise SignatureInvalid("its parameters have another form")
    parameters, created, expires, nonce, key_id = found.groups()
    created_s, expires_s = int(created), int(expires)
    if not 0 < expires_s - created_s <= MAX_EXPIRES_IN_S:
        raise SignatureInvalid("its times are out of bounds")
    node, digest = _header(headers, "rye-node"), _header(headers, "content-digest")
    components = _request_components(method, authority, path, query, digest, node)
    base = signature_base(components, parameters)
    value = _read_value(headers)
    return RequestSignature(key_id, node, nonce, created_s, expires_s, value, base)


def content_digest(body: bytes) -> str:
    """Return the header `Content-Digest` of a body."""
    return f"sha-256=:{b64encode(hashlib.sha256(body).digest()).decode()}:"


def check_digest(headers: Mapping[str, str], body: bytes) -> None:
    """Prove that a body is the one that the header `content-digest` names.

    Raises:
        SignatureInvalid: It is another one, or the header has another form.
    """
    if _header(headers, "content-digest") != content_digest(body):
        raise SignatureInvalid("the body is another one")


def sign_response(
    key: SigningKey,
    *,
    status: int,
    body: bytes | None,
    request: Mapping[str, str] | None,
    now_s: int,
) -> dict[str, str]:
    """Return the headers that sign a response.

    Args:
        key: The node's key.
        status: The status.
        body: The body; None for a stream.
        request: The request's headers, by their names in lower case. Where they hold no signature
            of the right form, or with None, the response is bound to no request.
        now_s: The time, in seconds since the epoch.

    Returns:
        `Content-Digest` unless it is a stream, `Signature-Input` and `Signature`.
    """
    digest = None if body is None else content_digest(body)
    try:
        bound = None if request is None else _read_value(request)
    except SignatureInvalid:
        bound = None
    components = _response_components(status, digest, bound)
    parameters = (
        f'{_listed(components)};created={now_s};keyid="{key.public.fingerprint}";tag="{_TAG}"'
    )
    headers = {} if digest is None else {"Content-Digest": digest}
    headers["Signature-Input"] = f"rye={parameters}"
    headers["Signature"] = f"rye=:{_sign(key, signature_base(components, parameters))}:"
    return headers


def check_response(
    key: PublicKey,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes | None,
    request: Mapping[str, str] | None,
) -> None:
    """Prove that a node made this response, and made it to this request.

    Args:
        key: The node's key.
        status: The status.
        headers: The response's headers, by their names in lower case.
        body: The body; None for a stream.
        request: The headers of the request, by their names in lower case; None where the request
            wasn't signed.

    Raises:
        SignatureInvalid: The node didn't.
    """
    digest = None
    if body is not None:
        check_digest(headers, body)
        digest = _header(headers, "content-digest")
    bound = None if request is None else _read_value(request)
    components = _response_components(status, digest, bound)
    found = _RESPONSE_INPUT.fullmatch(_header(headers, "signature-input"))
    if found is None:
        raise SignatureInvalid("its parameters have another form")
    parameters, listed, key_id = found.groups()
    if listed != _listed(components):
        raise SignatureInvalid("it covers other components")
    _prove(key, key_id, _read_value(headers), signature_base(components, parameters))


def combine_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers of a message by their names in lower case.

    Values of one name are joined by a comma, as RFC 9110 says; a repeated header is then not of
    the form that the functions here accept.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def signature_base(components: Mapping[str, str], parameters: str) -> bytes:
    """Return the bytes that are signed.

    Args:
        components: The values of the components, by their identifiers as RFC 9421 serialises them
            without the quotes of the name.
        parameters: The signature's parameters, serialised.

    Source: RFC 9421, section 2.5.
    """
    lines = [f"{_quoted(name)}: {value}" for name, value in components.items()]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode("ascii")


def _request_components(
    method: str, authority: str, path: str, query: str, digest: str, node: str
) -> dict[str, str]:
    values = (method, authority, path or "/", f"?{query}", digest, node)
    components = dict(zip(_REQUEST, values, strict=True))
    for name, value in components.items():
        if _VALUES[name].fullmatch(value) is None:
            raise SignatureInvalid(f"{name} has another form")
    return components | {"@authority": authority.lower()}


def _response_components(status: int, digest: str | None, bound: str | None) -> dict[str, str]:
    components = {"@status": str(status)}
    if digest is not None:
        components["content-digest"] = digest
    if bound is not None:
        components['signature;req;key="rye"'] = f":{bound}:"
    return components


def _quoted(identifier: str) -> str:
    name, semicolon, parameters = identifier.partition(";")
    return f'"{name}"{semicolon}{parameters}'


def _listed(identifiers: Iterable[str]) -> str:
    return f"({' '.join(map(_quoted, identifiers))})"


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if value is None:
        raise SignatureInvalid(f"the header {name} is missing")
    return value


def _read_value(headers: Mapping[str, str]) -> str:
    found = _SIGNATURE_HEADER.fullmatch(_header(headers, "signature"))
    if found is None:
        raise SignatureInvalid("the header signature has another form")
    return found[1]


def _sign(key: SigningKey, base: bytes) -> str:
    return b64encode(key.sign(base)).decode()


def _prove(key: PublicKey, key_id: str, value: str, base: bytes) -> None:
    if key_id != key.fingerprint:
        raise SignatureInvalid("it names another key")
    if not key.verifies(b64decode(value), base):
        raise SignatureInvalid("this key didn't make it")
