import copy
import hashlib
import json
import pickle
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError
from nacl.public import PrivateKey, SealedBox

from ryecore.errors import SigningError
from ryecore.lillux.keys import BoxKey, PublicKey, SigningKey, open_envelope, seal_envelope

SEED = st.binary(min_size=32, max_size=32)
KEY = SigningKey.generate()


@given(SEED, st.binary(max_size=200))
def test_another_implementation_agrees(seed: bytes, message: bytes) -> None:
    theirs = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    ours = SigningKey.from_pem(
        theirs.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    assert ours.sign(message) == theirs.sign(message)
    text = urlsafe_b64encode(theirs.sign(message)).decode().rstrip("=")
    assert ours.sign_base64(message) == text
    assert ours.public.verifies(theirs.sign(message), message)
    theirs.public_key().verify(ours.sign(message), message)
    assert ours.public.pem == theirs.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )


@given(SEED)
def test_keys_read_back_as_they_are_written(seed: bytes) -> None:
    key = SigningKey(seed)
    assert SigningKey.from_pem(key.pem) == key
    assert SigningKey.from_pem(key.pem.decode()) == key
    assert PublicKey.from_pem(key.public.pem) == key.public
    load_pem_private_key(key.pem, None)
    load_pem_public_key(key.public.pem)


def test_a_fingerprint_is_of_the_pem_with_its_final_newline() -> None:
    digest = hashlib.sha256(KEY.public.pem).hexdigest()
    assert KEY.public.pem.endswith(b"-----END PUBLIC KEY-----\n")
    assert KEY.public.fingerprint == digest[:16]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda pem: pem.rstrip(b"\n"),
        lambda pem: pem + b"\n\n",
        lambda pem: pem.replace(b"\n", b"\r\n"),
        lambda pem: b"\n  " + pem,
    ],
)
def test_white_space_changes_no_fingerprint(spoil: object) -> None:
    key = PublicKey.from_pem(spoil(KEY.public.pem))  # type: ignore[operator]
    assert key.fingerprint == KEY.public.fingerprint


def test_each_key_is_another() -> None:
    assert len({SigningKey.generate().public.fingerprint for _ in range(50)}) == 50


@given(st.data(), st.binary(min_size=1, max_size=40))
def test_a_changed_message_or_signature_does_not_verify(
    data: st.DataObject, message: bytes
) -> None:
    signature = KEY.sign(message)
    assert KEY.public.verifies(signature, message)
    bit = data.draw(st.integers(0, 8 * (64 + len(message)) - 1))
    both = bytearray(signature + message)
    both[bit // 8] ^= 1 << (bit % 8)
    assert not KEY.public.verifies(bytes(both[:64]), bytes(both[64:]))


@given(st.binary(max_size=80), st.integers(-64, 20))
def test_where_the_signature_ends_is_not_open(message: bytes, shift: int) -> None:
    """A longer or shorter signature must not slip through."""
    both = KEY.sign(message) + message
    end = 64 + shift
    verifies = KEY.public.verifies(both[:end], both[end:])
    assert verifies == (len(both[:end]) == 64)


def test_another_key_does_not_verify() -> None:
    assert not SigningKey.generate().public.verifies(KEY.sign(b"x"), b"x")


@pytest.mark.parametrize("raw", [b"", b"x" * 31, b"x" * 33, b"\xff" * 32])
def test_what_is_no_key_verifies_nothing(raw: bytes) -> None:
    assert not PublicKey(raw).verifies(KEY.sign(b"x"), b"x")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x01" + b"\x00" * 31,
        b"\x00" * 32,
        b"\xec" + b"\xff" * 30 + b"\x7f",
        b"\x00" * 31 + b"\x80",
    ],
)
def test_a_key_of_small_order_vouches_for_nothing(raw: bytes) -> None:
    """With such a key one signature would hold for any message."""
    signature = b"\x01" + b"\x00" * 63
    assert not PublicKey(raw).verifies(signature, b"anything")
    assert not PublicKey(raw).verifies(raw + b"\x00" * 32, b"anything")


def test_a_signature_has_one_form() -> None:
    """Adding the group's order to S would make a second signature of the same message."""
    order = 2**252 + 27742317777372353535851937790883648493
    signature = KEY.sign(b"x")
    s = int.from_bytes(signature[32:], "little") + order
    assert not KEY.public.verifies(signature[:32] + s.to_bytes(32, "little"), b"x")


PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
TORSION = (  # a point of order 8, which generates those of small order
    14399317868200118260347934320527232580618823971194345261214217575416788799818,
    2707385501144840649318225287225658788936804267575313519463743609750303402022,
)


def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Add two points of the curve (RFC 8032, section 5.1.4), in plain coordinates."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    (x1, y1), (x2, y2) = one, other
    product = d * x1 * x2 * y1 * y2 % PRIME
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, PRIME) % PRIME
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, PRIME) % PRIME
    return x, y


def multiply(point: tuple[int, int], times: int) -> tuple[int, int]:
    total = (0, 1)
    while times:
        if times & 1:
            total = add(total, point)
        point, times = add(point, point), times >> 1
    return total


def spelled(point: tuple[int, int], *, twice: bool = False) -> bytes:
    """Return a point's bytes; `twice`, those of the same point with the prime added, if it fits."""
    x, y = point
    if twice and y + PRIME < 2**255:
        y += PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    4 * pow(5, -1, PRIME) % PRIME,
)


@given(
    secret=st.sampled_from([0, 1, 2**200 + 7]),
    nonce=st.sampled_from([0, 1, 2**201 + 9]),
    of_key=st.integers(0, 7),
    of_point=st.integers(0, 7),
    key_twice=st.booleans(),
    point_twice=st.booleans(),
    times_order=st.integers(0, 2),
    message=st.binary(max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_what_libsodium_accepts_verifies_and_nothing_else(
    secret: int,
    nonce: int,
    of_key: int,
    of_point: int,
    key_twice: bool,
    point_twice: bool,
    times_order: int,
    message: bytes,
) -> None:
    """With points of small order, alone or added, and with other spellings of points and S."""
    key = add(multiply(BASE, secret), multiply(TORSION, of_key))
    point = add(multiply(BASE, nonce), multiply(TORSION, of_point))
    public, r = spelled(key, twice=key_twice), spelled(point, twice=point_twice)
    digest = hashlib.sha512(r + public + message).digest()
    s = (nonce + int.from_bytes(digest, "little") * secret) % ORDER + times_order * ORDER
    signature = r + s.to_bytes(32, "little")
    try:
        crypto_sign_open(signature + message, public)
        expected = True
    except BadSignatureError:
        expected = False

    assert PublicKey(public).verifies(signature, message) == expected


def encrypted() -> bytes:
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )


def elliptic() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def rsa_key() -> bytes:
    return rsa.generate_private_key(65537, 1024).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"nonsense",
        b"-----BEGIN PRIVATE KEY-----",
        b"-----BEGIN PRIVATE KEY----------END PRIVATE KEY-----",
        b"-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n",
        KEY.public.pem,
        KEY.pem + KEY.pem,
        KEY.pem.replace(b"PRIVATE KEY", b"ENCRYPTED PRIVATE KEY"),
        KEY.pem.replace(b"MC4C", b"MC4D"),
        KEY.pem[:-40] + KEY.pem[-36:],
        b"\xff\xfe" + KEY.pem,
        encrypted(),
        elliptic(),
        rsa_key(),
    ],
)
def test_what_is_no_private_key_is_refused(pem: bytes) -> None:
    with pytest.raises(SigningError, match="not an Ed25519 key in PEM") as refused:
        SigningKey.from_pem(pem)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__, "the context could quote the key"


@pytest.mark.parametrize(
    "pem",
    [b"", KEY.pem, KEY.public.pem * 2, KEY.public.raw],
    ids=["empty", "private", "twice", "raw"],
)
def test_what_is_no_public_key_is_refused(pem: bytes) -> None:
    with pytest.raises(SigningError, match=r"not an Ed25519 key in PEM \(PUBLIC KEY\)"):
        PublicKey.from_pem(pem)


@given(st.binary(max_size=120))
def test_no_bytes_raise_anything_but_a_signing_error(pem: bytes) -> None:
    for read in (SigningKey.from_pem, PublicKey.from_pem):
        with pytest.raises(SigningError):
            read(pem)


def secrets_of(key: SigningKey) -> list[str]:
    seed = key._seed
    return [seed.hex(), repr(seed)[2:-1], key.pem.decode().splitlines()[1], str(seed)]


def test_a_signing_key_shows_its_fingerprint_alone() -> None:
    key = SigningKey.generate()
    key.sign(b"x")  # what is remembered for signing must not show either
    for shown in (repr(key), str(key), f"{key}", f"{[key]}", repr({"key": key})):
        assert key.public.fingerprint in shown
        assert not any(secret in shown for secret in secrets_of(key))


def test_a_private_key_is_not_pickled() -> None:
    for dump in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="private key") as refused:
            dump(KEY)
        assert not any(secret in str(refused.value) for secret in secrets_of(KEY))


def test_a_public_key_is_pickled_and_can_be_a_key_of_a_dictionary() -> None:
    public = KEY.public
    assert pickle.loads(pickle.dumps(public)) == public
    assert {public: 1}[PublicKey.from_pem(public.pem)] == 1


def test_keys_are_frozen() -> None:
    with pytest.raises(AttributeError):
        KEY._seed = b"x" * 32  # type: ignore[misc]
    with pytest.raises(AttributeError):
        KEY.public.raw = b"x" * 32  # type: ignore[misc]


BOX_KEY = BoxKey.generate()
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def ciphertext_of(envelope: bytes) -> bytes:
    text = json.loads(envelope)["ciphertext"]
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def sealed_by_hand(body: object) -> bytes:
    """An envelope with any body: whoever knows the public half can make one."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    box = SealedBox(PrivateKey(BOX_KEY._secret).public_key)
    text = urlsafe_b64encode(box.encrypt(content)).decode().rstrip("=")
    return json.dumps({"version": 1, "recipient": "fp:x", "ciphertext": text}).encode()


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_what_goes_in_comes_out(secrets: dict[str, str]) -> None:
    assert open_envelope(BOX_KEY, seal_envelope(BOX_KEY.public, secrets)) == secrets


def test_an_envelope_names_its_recipient_and_shows_nothing_else() -> None:
    envelope = seal_envelope(BOX_KEY.public, {"API_KEY": "hunter2"})
    document = json.loads(envelope)
    assert document["version"] == 1
    assert document["recipient"] == f"fp:{BOX_KEY.fingerprint}"
    assert set(document) == {"version", "recipient", "ciphertext"}
    assert b"hunter2" not in envelope
    assert b"API_KEY" not in ciphertext_of(envelope)


def test_two_envelopes_of_the_same_secrets_differ() -> None:
    assert seal_envelope(BOX_KEY.public, {"A": "1"}) != seal_envelope(BOX_KEY.public, {"A": "1"})


def test_another_implementation_opens_it() -> None:
    envelope = seal_envelope(BOX_KEY.public, {"A": "ä"})
    body = SealedBox(PrivateKey(BOX_KEY._secret)).decrypt(ciphertext_of(envelope))
    assert json.loads(body) == {"kind": "execution-secrets/v1", "env": {"A": "ä"}}


def test_another_key_does_not_open_it_and_the_error_says_for_whom_to_seal() -> None:
    other = BoxKey.generate()
    with pytest.raises(SigningError, match="sealed for another one") as refused:
        open_envelope(other, seal_envelope(BOX_KEY.public, {"A": "1"}))
    assert other.fingerprint in refused.value.next_step


@given(st.data())
def test_a_changed_envelope_does_not_open(data: st.DataObject) -> None:
    envelope = seal_envelope(BOX_KEY.public, {"A": "1"})
    sealed = bytearray(ciphertext_of(envelope))
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << (bit % 8)
    text = urlsafe_b64encode(sealed).decode()
    with pytest.raises(SigningError, match="altered"):
        open_envelope(BOX_KEY, json.dumps({"ciphertext": text}).encode())


@pytest.mark.parametrize(
    "envelope",
    [
        b"",
        b"nonsense",
        b"\xff",
        b"[]",
        b"1",
        b"null",
        b"{}",
        b'{"ciphertext": null}',
        b'{"ciphertext": 5}',
        b'{"ciphertext": ["a"]}',
        b'{"ciphertext": "\xc3\xa4"}',
        b'{"ciphertext": "a"}',
        b'{"ciphertext": ""}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_envelope_is_refused(envelope: bytes) -> None:
    with pytest.raises(SigningError) as refused:
        open_envelope(BOX_KEY, envelope)
    assert refused.value.next_step


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"\xff",
        b"[" * 100_000,
        [],
        None,
        {},
        {"kind": "execution-secrets/v1"},
        {"kind": "other/v1", "env": {"A": "1"}},
        {"env": {"A": "1"}},
        {"kind": "execution-secrets/v1", "env": None},
        {"kind": "execution-secrets/v1", "env": ["A"]},
        {"kind": "execution-secrets/v1", "env": [["A", "1"]]},
        {"kind": "execution-secrets/v1", "env": {"A": 1}},
        {"kind": "execution-secrets/v1", "env": {"A": None}},
        {"kind": "execution-secrets/v1", "env": {"A": ["1"]}},
        {"kind": "execution-secrets/v1", "env": {"A": "1\0"}},
        {"kind": "execution-secrets/v1", "env": {"A\0": "1"}},
        {"kind": "execution-secrets/v1", "env": {"A": "x" * (64 * 1024 + 1)}},
        {"kind": "execution-secrets/v1", "env": {f"A{n}": "" for n in range(257)}},
    ],
    ids=range(19),
)
def test_what_a_sender_put_in_is_checked_when_it_comes_out(body: object) -> None:
    with pytest.raises(SigningError, match="doesn't hold execution-secrets/v1") as refused:
        open_envelope(BOX_KEY, sealed_by_hand(body))
    assert "seal_envelope" in refused.value.next_step


@pytest.mark.parametrize(
    "secrets",
    [
        {f"A{n}": "" for n in range(256)},
        {"A": "x" * 64 * 1024},
        {"A": "ä" * 32 * 1024},
        {f"A{n}": "x" * 60_000 for n in range(17)},
        {},
        {"": ""},
    ],
    ids=range(6),
)
def test_what_just_fits_goes_through(secrets: dict[str, str]) -> None:
    assert open_envelope(BOX_KEY, seal_envelope(BOX_KEY.public, secrets)) == secrets


@pytest.mark.parametrize(
    "secrets",
    [
        {f"A{n}": "" for n in range(257)},
        {"A": "x" * (64 * 1024 + 1)},
        {"A": "ä" * (32 * 1024 + 1)},
        {f"A{n}": "x" * 64 * 1024 for n in range(17)},
        {"A": "hunter2\0"},
        {"A\0B": "a"},
        {"A": 5},
    ],
    ids=range(7),
)
def test_what_does_not_fit_is_refused_with_the_bounds(secrets: dict[str, str]) -> None:
    with pytest.raises(SigningError, match="don't fit into an envelope") as refused:
        seal_envelope(BOX_KEY.public, secrets)
    assert "256 names, 64 KiB a value, 1 MiB in all" in refused.value.next_step
    assert not any(value in str(refused.value) for value in map(str, secrets.values()) if value[3:])


@pytest.mark.parametrize("recipient", [b"", b"x" * 31, b"x" * 33])
def test_what_is_no_box_key_is_refused(recipient: bytes) -> None:
    with pytest.raises(SigningError, match="not a box key") as refused:
        seal_envelope(recipient, {"A": "1"})
    assert "BoxKey.public" in refused.value.next_step


def test_a_box_key_shows_its_fingerprint_alone_and_is_not_pickled() -> None:
    for shown in (repr(BOX_KEY), str(BOX_KEY), f"{[BOX_KEY]}"):
        assert BOX_KEY.fingerprint in shown
        assert BOX_KEY._secret.hex() not in shown
        assert repr(BOX_KEY._secret)[2:-1] not in shown
    with pytest.raises(TypeError, match="private key"):
        pickle.dumps(BOX_KEY)


def test_the_public_half_is_x25519() -> None:
    assert BOX_KEY.public == bytes(PrivateKey(BOX_KEY._secret).public_key)
    assert len(BOX_KEY.public) == 32
