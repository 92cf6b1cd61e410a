import json
import pickle
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.public import PrivateKey, SealedBox

from ryecore.errors import SigningError
from ryecore.lillux.envelopes import BoxKey, open_envelope, seal_envelope

KEY = BoxKey.generate()
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def ciphertext_of(envelope: bytes) -> bytes:
    text = json.loads(envelope)["ciphertext"]
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def sealed_by_hand(body: object) -> bytes:
    """An envelope with any body: whoever knows the public half can make one."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    box = SealedBox(PrivateKey(KEY._secret).public_key)
    text = urlsafe_b64encode(box.encrypt(content)).decode().rstrip("=")
    return json.dumps({"version": 1, "recipient": "fp:x", "ciphertext": text}).encode()


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_what_goes_in_comes_out(secrets: dict[str, str]) -> None:
    assert open_envelope(KEY, seal_envelope(KEY.public, secrets)) == secrets


def test_an_envelope_names_its_recipient_and_shows_nothing_else() -> None:
    envelope = seal_envelope(KEY.public, {"API_KEY": "hunter2"})
    document = json.loads(envelope)
    assert document["version"] == 1
    assert document["recipient"] == f"fp:{KEY.fingerprint}"
    assert set(document) == {"version", "recipient", "ciphertext"}
    assert b"hunter2" not in envelope
    assert b"API_KEY" not in ciphertext_of(envelope)


def test_two_envelopes_of_the_same_secrets_differ() -> None:
    assert seal_envelope(KEY.public, {"A": "1"}) != seal_envelope(KEY.public, {"A": "1"})


def test_another_implementation_opens_it() -> None:
    envelope = seal_envelope(KEY.public, {"A": "ä"})
    body = SealedBox(PrivateKey(KEY._secret)).decrypt(ciphertext_of(envelope))
    assert json.loads(body) == {"kind": "execution-secrets/v1", "env": {"A": "ä"}}


def test_another_key_does_not_open_it_and_the_error_says_for_whom_to_seal() -> None:
    other = BoxKey.generate()
    with pytest.raises(SigningError, match="sealed for another one") as refused:
        open_envelope(other, seal_envelope(KEY.public, {"A": "1"}))
    assert other.fingerprint in refused.value.next_step


@given(st.data())
def test_a_changed_envelope_does_not_open(data: st.DataObject) -> None:
    envelope = seal_envelope(KEY.public, {"A": "1"})
    sealed = bytearray(ciphertext_of(envelope))
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << (bit % 8)
    text = urlsafe_b64encode(sealed).decode()
    with pytest.raises(SigningError, match="altered"):
        open_envelope(KEY, json.dumps({"ciphertext": text}).encode())


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
        open_envelope(KEY, envelope)
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
        open_envelope(KEY, sealed_by_hand(body))
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
    assert open_envelope(KEY, seal_envelope(KEY.public, secrets)) == secrets


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
        seal_envelope(KEY.public, secrets)
    assert "256 names, 64 KiB a value, 1 MiB in all" in refused.value.next_step
    assert not any(value in str(refused.value) for value in map(str, secrets.values()) if value[3:])


@pytest.mark.parametrize("recipient", [b"", b"x" * 31, b"x" * 33])
def test_what_is_no_box_key_is_refused(recipient: bytes) -> None:
    with pytest.raises(SigningError, match="no box key") as refused:
        seal_envelope(recipient, {"A": "1"})
    assert "BoxKey.public" in refused.value.next_step


def test_a_box_key_shows_its_fingerprint_alone_and_is_not_pickled() -> None:
    for shown in (repr(KEY), str(KEY), f"{[KEY]}"):
        assert KEY.fingerprint in shown
        assert KEY._secret.hex() not in shown
        assert repr(KEY._secret)[2:-1] not in shown
    with pytest.raises(TypeError, match="private key"):
        pickle.dumps(KEY)


def test_the_public_half_is_x25519() -> None:
    assert KEY.public == bytes(PrivateKey(KEY._secret).public_key)
    assert len(KEY.public) == 32
