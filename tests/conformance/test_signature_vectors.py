"""Golden vectors of signatures, held against a second implementation.

`signature_vectors.json` was written once, from fixed keys and times. Whoever writes another
implementation can test it with that file alone. The functions at the top are such a one: they
follow the words of the format, over the `cryptography` package, and share no code with ryecore.
"""

import hashlib
import json
import shutil
import tomllib
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)

from ryecore.items.signature import (
    CommentForm,
    Signature,
    comment_form,
    parse_payload,
    split_content,
)
from ryecore.items.signing import sign_content
from ryecore.items.spaces import Space, Spaces
from ryecore.items.trust import TrustStore, render_trusted_key
from ryecore.items.verification import verify_item
from ryecore.lillux.keys import PublicKey, SigningKey

VECTORS: dict[str, Any] = json.loads(
    Path(__file__).with_name("signature_vectors.json").read_text("utf-8")
)
KEYS = {vector["name"]: vector for vector in VECTORS["keys"]}
ITEMS = VECTORS["items"]
KEY_FILES = VECTORS["trusted_keys"]
FILE_TYPES = {".rb": CommentForm.of("#"), ".lua": CommentForm.of("--")}


def by_name(vectors: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


# The second implementation


def pem_of(public: Ed25519PublicKey) -> bytes:
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def fingerprint_of(public: Ed25519PublicKey) -> str:
    return hashlib.sha256(pem_of(public)).hexdigest()[:16]


def message_of(vector: dict[str, Any], content_hash: str) -> bytes:
    lines = ["rye-item-v2", f"{vector['kind']}:{vector['signed_path']}", vector["timestamp"]]
    return "\n".join([*lines, content_hash, vector["provenance"]]).encode("ascii")


def signed_by_hand(vector: dict[str, Any]) -> tuple[str, bytes]:
    """The content hash, and the signed file or its sidecar, from the words of the format."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(KEYS[vector["key"]]["seed_hex"]))
    content = b64decode(vector["content_base64"])
    content_hash = hashlib.sha256(content).hexdigest()
    value = urlsafe_b64encode(key.sign(message_of(vector, content_hash))).decode().rstrip("=")
    payload = f"rye:signed:{vector['timestamp']}:{content_hash}:{value}"
    payload += f":{fingerprint_of(key.public_key())}"
    payload += f"|{vector['provenance']}" if vector["provenance"] else ""
    if vector["comment"] is None:
        return content_hash, f"{payload}\n".encode()
    line = vector["comment"].replace("PAYLOAD", payload).encode()
    first, end, rest = content.partition(b"\n")
    newline = b"\r\n" if first.endswith(b"\r") and end else b"\n"
    if content.startswith(b"#!"):
        return content_hash, first + end + line + newline + rest
    return content_hash, line + newline + content


@by_name(VECTORS["keys"])
def test_the_second_implementation_has_these_keys(vector: dict[str, str]) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vector["seed_hex"]))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert private.decode() == vector["private_pem"]
    assert pem_of(key.public_key()).decode() == vector["public_pem"]
    assert fingerprint_of(key.public_key()) == vector["fingerprint"]


@by_name(ITEMS)
def test_the_second_implementation_signs_so(vector: dict[str, Any]) -> None:
    content_hash, signed = signed_by_hand(vector)
    assert content_hash == vector["content_hash"]
    assert signed == b64decode(vector["signed_base64"])


# ryecore


@by_name(VECTORS["keys"])
def test_ryecore_has_these_keys(vector: dict[str, str]) -> None:
    key = SigningKey.from_pem(vector["private_pem"])
    assert key.pem.decode() == vector["private_pem"]
    assert key.public.pem.decode() == vector["public_pem"]
    assert key.public.fingerprint == vector["fingerprint"]
    assert PublicKey.from_pem(vector["public_pem"]) == key.public


def signature_of(vector: dict[str, Any]) -> Signature:
    signed = b64decode(vector["signed_base64"])
    form = comment_form(Path(vector["path"]).suffix, FILE_TYPES)
    line = signed.decode().removesuffix("\n") if form is None else split_content(signed, form).line
    assert line is not None
    found = parse_payload(line)
    assert found is not None
    return found


@by_name(ITEMS)
def test_ryecore_reads_so(vector: dict[str, Any]) -> None:
    found, key = signature_of(vector), KEYS[vector["key"]]
    assert found.timestamp == vector["timestamp"]
    assert found.content_hash == vector["content_hash"]
    assert found.fingerprint == key["fingerprint"]
    assert found.provenance == (vector["provenance"] or None)
    assert found.message(vector["kind"], vector["path"]) == b64decode(vector["message_base64"])
    assert found.holds(vector["kind"], vector["path"], PublicKey.from_pem(key["public_pem"]))
    others = [other for other in KEYS.values() if other is not key]
    assert not any(
        found.holds(vector["kind"], vector["path"], PublicKey.from_pem(other["public_pem"]))
        for other in others
    )


@by_name([vector for vector in ITEMS if not vector["provenance"]])
def test_ryecore_signs_so(vector: dict[str, Any]) -> None:
    signed, signature, is_sidecar = sign_content(
        b64decode(vector["content_base64"]),
        Path(vector["path"]).suffix,
        vector["kind"],
        vector["path"],
        SigningKey.from_pem(KEYS[vector["key"]]["private_pem"]),
        timestamp=vector["timestamp"],
        file_types=FILE_TYPES,
    )
    assert signed == b64decode(vector["signed_base64"])
    assert is_sidecar == (vector["comment"] is None)
    assert signature.content_hash == vector["content_hash"]


@by_name(ITEMS)
def test_what_ryecore_reads_the_second_implementation_verifies(vector: dict[str, Any]) -> None:
    found = signature_of(vector)
    public = load_pem_public_key(KEYS[vector["key"]]["public_pem"].encode())
    assert isinstance(public, Ed25519PublicKey)
    public.verify(found.value, message_of(vector, found.content_hash))
    for changed in ("kind", "signed_path", "timestamp", "provenance"):
        message = message_of(vector | {changed: vector[changed] + "x"}, found.content_hash)
        with pytest.raises(InvalidSignature):
            public.verify(found.value, message)


@by_name(KEY_FILES)
def test_a_trusted_key_file_is_written_so(vector: dict[str, Any]) -> None:
    content = render_trusted_key(
        PublicKey.from_pem(KEYS[vector["key"]]["public_pem"]),
        vector["owner"],
        space=vector["space"],
        not_after=vector["not_after"],
        revoked=vector["revoked"],
    )
    signed, _, _ = sign_content(
        content,
        ".toml",
        "config",
        vector["path"],
        SigningKey.from_pem(KEYS[vector["signer"]]["private_pem"]),
        timestamp=vector["timestamp"],
    )
    assert signed.decode() == vector["signed"]


@by_name(KEY_FILES)
def test_a_trusted_key_file_reads_so_by_any_means(vector: dict[str, Any]) -> None:
    line, _, rest = vector["signed"].partition("\n")
    facts, content_hash, value, fingerprint = line.rsplit(":", 3)
    timestamp = facts.removeprefix("# rye:signed:")
    assert timestamp == vector["timestamp"]
    assert fingerprint == KEYS[vector["signer"]]["fingerprint"]
    assert content_hash == hashlib.sha256(rest.encode()).hexdigest()
    signer = load_pem_public_key(KEYS[vector["signer"]]["public_pem"].encode())
    assert isinstance(signer, Ed25519PublicKey)
    identity = {"kind": "config", "signed_path": vector["path"], "provenance": ""}
    message = message_of(vector | identity, content_hash)
    signer.verify(urlsafe_b64decode(value + "=="), message)
    document = tomllib.loads(rest)
    assert document["fingerprint"] == KEYS[vector["key"]]["fingerprint"]
    assert document["public_key"]["pem"] == KEYS[vector["key"]]["public_pem"]
    assert document["owner"] == vector["owner"]
    assert document["space"] == vector["space"]
    assert document.get("not_after") == vector["not_after"]
    assert document.get("revoked", False) == vector["revoked"]


def test_a_project_of_vectors_verifies(tmp_path: Path) -> None:
    """The vectors as files on disk, with the first key as the user's own."""
    spaces = Spaces(
        Space("project", tmp_path / "project/.ai"), Space("user", tmp_path / "user/.ai"), ()
    )
    for vector in KEY_FILES:
        if vector["signer"] == vector["key"] and not vector["revoked"]:
            path = spaces.user.folder("config") / vector["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(vector["signed"])
    trust, verified = TrustStore(spaces), 0
    for vector in ITEMS:
        path = spaces.project.folder(vector["kind"]) / vector["path"]
        if vector["key"] != "rfc8032-1" or path.suffix in FILE_TYPES:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = b64decode(vector["content_base64" if not vector["comment"] else "signed_base64"])
        path.write_bytes(content)
        if vector["comment"] is None:
            path.with_name(path.name + ".sig").write_bytes(b64decode(vector["signed_base64"]))
        item = verify_item(path, trust)
        assert item.integrity == vector["content_hash"]
        assert item.content == content
        verified += 1
        shutil.rmtree(spaces.project.root)
    assert verified >= 10
