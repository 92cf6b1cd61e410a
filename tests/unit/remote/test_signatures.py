"""Signatures of requests and responses: the RFCs' examples, and every change is refused."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.remote.protocol.signatures import (
    RequestSignature,
    SignatureInvalid,
    check_digest,
    check_response,
    combine_headers,
    content_digest,
    read_request,
    sign_request,
    sign_response,
    signature_base,
)
from tests.matrix import IS_SOAK

NOW_S = 1_618_884_473
BODY = b'{"hello": "world"}'
RFC_KEY = SigningKey.from_pem(
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n"
    "-----END PRIVATE KEY-----\n"
)
CALLER, NODE, OTHER = (SigningKey(bytes([one]) * 32) for one in (1, 2, 3))


@dataclass(frozen=True)
class Request:
    """A request as it travels."""

    method: str
    authority: str
    path: str
    query: str
    body: bytes
    headers: Mapping[str, str]

    def read(self) -> RequestSignature:
        return read_request(
            method=self.method,
            authority=self.authority,
            path=self.path,
            query=self.query,
            headers=self.headers,
        )

    def check(self, key: PublicKey = CALLER.public) -> RequestSignature:
        check_digest(self.headers, self.body)
        found = self.read()
        found.check(key)
        return found


def make_request(
    *,
    method: str = "POST",
    authority: str = "gpu.example:8443",
    path: str = "/execute",
    query: str = "",
    body: bytes = BODY,
    key: SigningKey = CALLER,
    expires_in_s: int = 60,
) -> Request:
    headers = sign_request(
        key,
        method=method,
        authority=authority,
        path=path,
        query=query,
        body=body,
        node=NODE.public.fingerprint,
        now_s=NOW_S,
        expires_in_s=expires_in_s,
    )
    return Request(method, authority, path, query, body, lowered(headers))


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return combine_headers((name.encode(), value.encode()) for name, value in headers.items())


REQUEST = make_request(path="/runs/a%2Fb", query="wait_s=5&x=%20")

texts = st.text(st.characters(min_codepoint=0, max_codepoint=255), max_size=40)
visible = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)


def test_the_example_of_rfc_9421_has_its_signature() -> None:
    """Appendix B.2.6, with the key test-key-ed25519."""
    names = ("date", "@method", "@path", "@authority", "content-type", "content-length")
    listed = " ".join(f'"{name}"' for name in names)
    base = signature_base(
        {
            "date": "Tue, 20 Apr 2021 02:07:55 GMT",
            "@method": "POST",
            "@path": "/foo",
            "@authority": "example.com",
            "content-type": "application/json",
            "content-length": "18",
        },
        f'({listed});created=1618884473;keyid="test-key-ed25519"',
    )
    value = (
        "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
    )
    signed = RequestSignature("", "", "", 0, 0, value, base)
    with pytest.raises(SignatureInvalid, match="another key"):
        signed.check(RFC_KEY.public)
    RequestSignature(RFC_KEY.public.fingerprint, "", "", 0, 0, value, base).check(RFC_KEY.public)


def test_the_example_of_rfc_9530_has_its_digest() -> None:
    assert content_digest(BODY) == "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"


def test_a_request_covers_these_components_in_this_order() -> None:
    """What another implementation has to sign, character by character."""
    headers = REQUEST.headers
    parameters = headers["signature-input"].removeprefix("rye=")
    nonce = REQUEST.read().nonce
    assert parameters == (
        '("@method" "@authority" "@path" "@query" "content-digest" "rye-node")'
        f';created={NOW_S};expires={NOW_S + 60};nonce="{nonce}"'
        f';keyid="{CALLER.public.fingerprint}";alg="ed25519";tag="ryecore"'
    )
    base = (
        '"@method": POST\n"@authority": gpu.example:8443\n"@path": /runs/a%2Fb\n'
        '"@query": ?wait_s=5&x=%20\n'
        '"content-digest": sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:\n'
        f'"rye-node": {NODE.public.fingerprint}\n"@signature-params": {parameters}'
    ).encode()
    value = REQUEST.check().value
    assert headers["signature"] == f"rye=:{value}:"
    RequestSignature(CALLER.public.fingerprint, "", "", 0, 0, value, base).check(CALLER.public)


def test_a_response_covers_the_status_the_body_and_the_requests_signature() -> None:
    """Both keys and the times fixed, a response has always the same signature."""
    bound = {"signature": f"rye=:{'A' * 86}==:"}
    headers = sign_response(NODE, status=200, body=BODY, request=bound, now_s=NOW_S)
    assert headers == {
        "Content-Digest": "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:",
        "Signature-Input": (
            'rye=("@status" "content-digest" "signature";req;key="rye")'
            f';created={NOW_S};keyid="{NODE.public.fingerprint}";tag="ryecore"'
        ),
        "Signature": headers["Signature"],
    }
    base = (
        '"@status": 200\n'
        '"content-digest": sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:\n'
        f'"signature";req;key="rye": :{"A" * 86}==:\n'
        f'"@signature-params": {headers["Signature-Input"].removeprefix("rye=")}'
    ).encode()
    value = headers["Signature"].removeprefix("rye=:").removesuffix(":")
    RequestSignature(NODE.public.fingerprint, "", "", 0, 0, value, base).check(NODE.public)


@given(
    method=st.sampled_from(["GET", "POST", "PUT"]),
    path=visible.map(lambda text: f"/{text}"),
    query=visible,
    body=st.binary(max_size=200),
    expires_in_s=st.integers(1, 300),
)
def test_a_signed_request_is_read_as_it_was_signed(
    method: str, path: str, query: str, body: bytes, expires_in_s: int
) -> None:
    request = make_request(
        method=method, path=path, query=query, body=body, expires_in_s=expires_in_s
    )
    found = request.check()
    assert (found.key_id, found.node) == (CALLER.public.fingerprint, NODE.public.fingerprint)
    assert (found.created_s, found.expires_s) == (NOW_S, NOW_S + expires_in_s)


def test_an_authority_has_no_case_and_an_empty_path_is_the_root() -> None:
    request = make_request(authority="GPU.example", path="")
    assert replace(request, authority="gpu.EXAMPLE", path="/").check()


def test_a_nonce_is_fresh_each_time() -> None:
    assert len({make_request().read().nonce for _ in range(20)}) == 20


def edits(text: str) -> st.SearchStrategy[str]:
    """Return strategies of texts that differ from one: cut, extended, changed or repeated."""
    place = st.integers(0, max(len(text) - 1, 0))
    characters = st.characters(min_codepoint=0, max_codepoint=255)
    changed = st.one_of(
        st.builds(lambda at, one: text[:at] + one + text[at + 1 :], place, characters),
        st.builds(lambda at, one: text[:at] + one + text[at:], place, characters),
        st.builds(lambda at, to: text[:at] + text[to:], place, place),
        characters.map(lambda one: text + one),
        st.sampled_from([text + text, f"{text}, {text}", text.swapcase(), f" {text}", f"{text}\n"]),
        texts,
    )
    return changed.filter(lambda one: one != text)


@settings(max_examples=3000 if IS_SOAK else 200)
@given(data=st.data())
def test_every_change_of_a_signed_request_is_refused(data: st.DataObject) -> None:
    part = data.draw(
        st.sampled_from(["method", "authority", "path", "query", "body", *REQUEST.headers])
    )
    if part == "body":
        changed = replace(REQUEST, body=data.draw(edits("body")).encode())
    elif part in REQUEST.headers:
        value = data.draw(edits(REQUEST.headers[part]))
        changed = replace(REQUEST, headers={**REQUEST.headers, part: value})
    else:
        value = data.draw(edits(getattr(REQUEST, part)))
        assume(part != "authority" or value.lower() != REQUEST.authority)
        changed = replace(REQUEST, **{part: value})
    with pytest.raises(SignatureInvalid):
        changed.check()


@pytest.mark.parametrize("missing", sorted(REQUEST.headers))
def test_each_header_is_needed(missing: str) -> None:
    rest = {name: value for name, value in REQUEST.headers.items() if name != missing}
    with pytest.raises(SignatureInvalid, match=missing):
        replace(REQUEST, headers=rest).check()


@pytest.mark.parametrize("header", sorted(REQUEST.headers))
def test_a_header_that_stands_there_twice_is_refused(header: str) -> None:
    other = make_request()
    for second in (REQUEST, other):
        pairs = [(name.encode(), value.encode()) for name, value in REQUEST.headers.items()]
        pairs.append((header.upper().encode(), second.headers[header].encode()))
        with pytest.raises(SignatureInvalid):
            replace(REQUEST, headers=combine_headers(pairs)).check()


@pytest.mark.parametrize(
    "change",
    [
        ("rye=(", "sig1=("),
        ('"@query" ', ""),
        ('"@method" "@authority"', '"@authority" "@method"'),
        ('"@method"', '"@method";req'),
        (";created=", ";expires=1;created="),
        (f"expires={NOW_S + 60}", f"expires={NOW_S + 301}"),
        (f"expires={NOW_S + 60}", f"expires={NOW_S}"),
        (f"created={NOW_S}", f"created=0{NOW_S}"),
        (f"created={NOW_S}", f"created={NOW_S}.0"),
        (f"created={NOW_S}", "created=-1"),
        (f"created={NOW_S}", "created=1\u0665"),
        ('alg="ed25519"', 'alg="hmac-sha256"'),
        (';alg="ed25519"', ""),
        ('tag="ryecore"', 'tag="other"'),
        (";nonce=", "; nonce="),
        ('"ryecore"', '"ryecore";x'),
    ],
)
def test_other_parameters_are_refused_though_the_caller_signs_them(change: tuple[str, str]) -> None:
    text = REQUEST.headers["signature-input"].replace(*change)
    assert text != REQUEST.headers["signature-input"]
    with pytest.raises(SignatureInvalid):
        replace(REQUEST, headers={**REQUEST.headers, "signature-input": text}).read()


def test_another_spelling_of_the_same_bytes_is_refused() -> None:
    """base64 whose unused bits aren't zero would be a second text for one nonce or signature."""
    for header, end in (("signature", "==:"), ("content-digest", "=:")):
        text = REQUEST.headers[header]
        at = text.index(end) - 1
        again = text[:at] + chr(ord(text[at]) + 1) + text[at + 1 :]
        with pytest.raises(SignatureInvalid):
            replace(REQUEST, headers={**REQUEST.headers, header: again}).check()


def test_a_request_of_another_key_is_refused() -> None:
    other = make_request(key=OTHER)
    with pytest.raises(SignatureInvalid, match="names another key"):
        other.check()
    named = other.headers["signature-input"].replace(
        OTHER.public.fingerprint, CALLER.public.fingerprint
    )
    with pytest.raises(SignatureInvalid, match="didn't make it"):
        replace(other, headers={**other.headers, "signature-input": named}).check()


@pytest.mark.parametrize(
    "part",
    [
        {"method": "post"}, {"method": "GET\n"}, {"authority": "a b"}, {"authority": ""},
        {"authority": "\u212aelvin.example"}, {"authority": "me@host"}, {"path": "execute"},
        {"path": '/a\n"@query": ?'}, {"path": "/é"}, {"query": "a b"}, {"query": "\u00a0"},
        {"expires_in_s": 0}, {"expires_in_s": 301},
    ],
)  # fmt: skip
def test_what_cannot_be_a_part_of_a_request_is_not_signed(part: dict[str, object]) -> None:
    with pytest.raises(SignatureInvalid):
        make_request(**part)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [BODY, b"", None])
@pytest.mark.parametrize("request_headers", [REQUEST.headers, None])
def test_a_response_holds_for_its_request_alone(
    body: bytes | None, request_headers: Mapping[str, str] | None
) -> None:
    headers = lowered(
        sign_response(NODE, status=200, body=body, request=request_headers, now_s=NOW_S)
    )

    def check(
        key: SigningKey = NODE,
        status: int = 200,
        body: bytes | None = body,
        request: Mapping[str, str] | None = request_headers,
        headers: Mapping[str, str] = headers,
    ) -> None:
        check_response(key.public, status=status, headers=headers, body=body, request=request)

    check()
    other_request = None if request_headers else REQUEST.headers
    other_body = BODY if body is None else None
    for wrong in (
        lambda: check(key=OTHER),
        lambda: check(status=201),
        lambda: check(body=b"other"),
        lambda: check(body=other_body),
        lambda: check(request=other_request),
        lambda: check(request=make_request().headers),
        lambda: check(headers={}),
    ):
        with pytest.raises(SignatureInvalid):
            wrong()


RESPONSE = lowered(sign_response(NODE, status=200, body=BODY, request=REQUEST.headers, now_s=NOW_S))


@settings(max_examples=3000 if IS_SOAK else 200)
@given(data=st.data())
def test_every_change_of_a_signed_response_is_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(RESPONSE)))
    headers = {**RESPONSE, name: data.draw(edits(RESPONSE[name]))}
    with pytest.raises(SignatureInvalid):
        check_response(NODE.public, status=200, headers=headers, body=BODY, request=REQUEST.headers)


def test_a_request_is_never_taken_for_a_response() -> None:
    with pytest.raises(SignatureInvalid):
        check_response(CALLER.public, status=200, headers=REQUEST.headers, body=BODY, request=None)
    with pytest.raises(SignatureInvalid):
        replace(REQUEST, headers=RESPONSE).read()


def test_a_response_to_an_unreadable_signature_is_bound_to_no_request() -> None:
    """So that a node can answer it; a caller who signs rightly never takes such an answer."""
    refused = {"signature": "rye=:AAAA:"}
    headers = lowered(sign_response(NODE, status=401, body=BODY, request=refused, now_s=NOW_S))
    check_response(NODE.public, status=401, headers=headers, body=BODY, request=None)
    with pytest.raises(SignatureInvalid):
        check_response(NODE.public, status=401, headers=headers, body=BODY, request=REQUEST.headers)


@settings(max_examples=2000 if IS_SOAK else 100)
@given(
    data=st.data(),
    method=texts,
    authority=texts,
    path=texts,
    query=texts,
)
def test_whatever_comes_is_read_or_refused(
    data: st.DataObject, method: str, authority: str, path: str, query: str
) -> None:
    """Nothing but SignatureInvalid is raised, whatever the bytes of a request are."""
    names = st.sampled_from([name.encode() for name in [*REQUEST.headers, "host", "X-Other"]])
    values = st.one_of(
        st.binary(max_size=300), *(edits(one).map(to_bytes) for one in REQUEST.headers.values())
    )
    headers = combine_headers(data.draw(st.lists(st.tuples(names, values), max_size=6)))
    whole = {**REQUEST.headers, **headers}
    for one in (headers, whole):
        for request in (
            Request(method, authority, path, query, b"", one),
            replace(REQUEST, headers=one),
        ):
            with suppress(SignatureInvalid):
                request.check()
            with suppress(SignatureInvalid):
                check_response(NODE.public, status=200, headers=one, body=BODY, request=one)
            sign_response(NODE, status=400, body=b"", request=one, now_s=NOW_S)


def to_bytes(text: str) -> bytes:
    return text.encode("latin-1")
