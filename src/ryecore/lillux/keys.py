"""Keys: Ed25519 keys that sign and verify, and X25519 keys that open sealed envelopes.

The extension signs and verifies. libsodium seals; its import takes 4 ms, so only that needs it.
"""

import json
import os
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import cached_property
from typing import Final, NoReturn, Self, cast

from attrs import field

from ryecore import _native
from ryecore.errors import SigningError
from ryecore.frozen import frozen
from ryecore.lillux.digests import sha256_hex

__all__ = ["BoxKey", "PublicKey", "SigningKey", "open_envelope", "seal_envelope"]

# The DER of PKCS#8 (RFC 5958) and SPKI (RFC 8410) is constant for Ed25519 but for the key itself.
_PKCS8_PREFIX: Final = bytes.fromhex("302e020100300506032b657004220420")
_SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")
_X25519_PREFIX: Final = bytes.fromhex("302e020100300506032b656e04220420")


def _to_pem(label: str, der: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n{b64encode(der).decode()}\n-----END {label}-----\n".encode()


def _from_pem(pem: bytes | str, label: str, prefix: bytes, name: str = "Ed25519") -> bytes:
    text = pem if isinstance(pem, str) else pem.decode("ascii", errors="replace")
    text = " ".join(text.split())
    head, tail = f"-----BEGIN {label}-----", f"-----END {label}-----"
    try:
        if not (text.startswith(head) and text.endswith(tail)):
            raise ValueError
        der = b64decode(text[len(head) : -len(tail)].replace(" ", ""), validate=True)
        if not der.startswith(prefix) or len(der) != len(prefix) + 32:
            raise ValueError
    except ValueError:
        raise SigningError(
            f"This is not an {name} key in PEM ({label}).",
            next_step="ryecore makes one with: rye keys generate",
        ) from None
    return der[len(prefix) :]


@frozen(slots=False)
class PublicKey:
    """The public half of an Ed25519 key.

    Attributes:
        raw: The 32 bytes of the key.
    """

    raw: bytes

    @classmethod
    def from_pem(cls, pem: bytes | str) -> Self:
        """Read a public key in SPKI PEM.

        Raises:
            SigningError: It is another kind of key, or none.
        """
        return cls(_from_pem(pem, "PUBLIC KEY", _SPKI_PREFIX))

    @cached_property
    def pem(self) -> bytes:
        """The key in SPKI PEM, with a final newline."""
        return _to_pem("PUBLIC KEY", _SPKI_PREFIX + self.raw)

    @cached_property
    def fingerprint(self) -> str:
        """The first 16 hex digits of the SHA-256 of the PEM's bytes."""
        return sha256_hex(self.pem)[:16]

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether this key made this 64-byte signature of this message."""
        return _native.verify_signature(self.raw, signature, message)


@frozen(slots=False)
class SigningKey:
    """An Ed25519 key that signs. Its `repr` shows only the fingerprint."""

    _seed: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """Make a fresh key."""
        return cls(os.urandom(32))

    @classmethod
    def from_pem(cls, pem: bytes | str) -> Self:
        """Read an unencrypted private key in PKCS#8 PEM.

        Raises:
            SigningError: It is another kind of key, or none.
        """
        return cls(_from_pem(pem, "PRIVATE KEY", _PKCS8_PREFIX))

    @cached_property
    def _signer(self) -> _native.Signer:
        return _native.Signer(self._seed)

    @cached_property
    def public(self) -> PublicKey:
        """The half that others may see."""
        return PublicKey(self._signer.public())

    @property
    def pem(self) -> bytes:
        """The key in unencrypted PKCS#8 PEM. Keep it in files of mode 0600."""
        return _to_pem("PRIVATE KEY", _PKCS8_PREFIX + self._seed)

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of a message."""
        return self._signer.sign(message)

    def sign_base64(self, message: bytes) -> str:
        """Return the signature of a message as base64 for URLs, without padding."""
        return self._signer.sign_base64(message)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A private key is not pickled; where it must travel, take its `pem`.")

    def __repr__(self) -> str:
        return f"SigningKey(fingerprint={self.public.fingerprint!r})"


_KIND: Final = "execution-secrets/v1"
MAX_NAMES: Final = 256
MAX_VALUE_BYTES: Final = 64 * 1024
MAX_TOTAL_BYTES: Final = 1024 * 1024


@frozen
class BoxKey:
    """An X25519 key that opens envelopes. Its `repr` shows only the fingerprint."""

    _secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """Make a fresh key."""
        return cls(os.urandom(32))

    @classmethod
    def from_pem(cls, pem: bytes | str) -> Self:
        """Read an unencrypted private key in PKCS#8 PEM.

        Raises:
            SigningError: It is another kind of key, or none.
        """
        return cls(_from_pem(pem, "PRIVATE KEY", _X25519_PREFIX, "X25519"))

    @property
    def pem(self) -> bytes:
        """The key in unencrypted PKCS#8 PEM. Keep it in files of mode 0600."""
        return _to_pem("PRIVATE KEY", _X25519_PREFIX + self._secret)

    @property
    def public(self) -> bytes:
        """The 32 bytes that a sender seals for."""
        from nacl.bindings import crypto_scalarmult_base  # noqa: PLC0415 - see this module

        return crypto_scalarmult_base(self._secret)

    @property
    def fingerprint(self) -> str:
        """The first 16 hex digits of the SHA-256 of the public half."""
        return _fingerprint(self.public)

    def unseal(self, ciphertext: bytes) -> bytes:
        """Open a sealed box.

        Raises:
            SigningError: It was sealed for another key, or was altered.
        """
        from nacl import bindings  # noqa: PLC0415 - see this module
        from nacl.exceptions import CryptoError  # noqa: PLC0415

        try:
            return bindings.crypto_box_seal_open(ciphertext, self.public, self._secret)
        except (CryptoError, ValueError, TypeError):
            raise SigningError(
                "This envelope can't be opened with this key: it was sealed for another one, "
                "or was altered.",
                next_step=f"Seal it again for the key {self.fingerprint}.",
            ) from None

    def __reduce__(self) -> NoReturn:
        raise TypeError("A private key is not pickled.")

    def __repr__(self) -> str:
        return f"BoxKey(fingerprint={self.fingerprint!r})"


def seal_envelope(recipient: bytes, secrets: Mapping[str, str]) -> bytes:
    """Seal names and values for one recipient.

    Args:
        recipient: The 32 bytes of the recipient's public box key.
        secrets: At most 256 names; a value of at most 64 KiB; 1 MiB in all; no NUL.

    Returns:
        The envelope, a JSON document.

    Raises:
        SigningError: The secrets don't fit these bounds.

    Source: docs/design/formats.md#envelopes.
    """
    from nacl import bindings  # noqa: PLC0415 - see this module
    from nacl.exceptions import CryptoError  # noqa: PLC0415

    body = json.dumps({"kind": _KIND, "env": dict(secrets)}).encode()
    if not _fits(body, secrets):
        raise SigningError(
            "These secrets don't fit into an envelope.",
            next_step=f"At most {MAX_NAMES} names, 64 KiB a value, 1 MiB in all, and no NUL.",
        )
    try:
        sealed = bindings.crypto_box_seal(body, recipient)
    except (CryptoError, ValueError, TypeError):
        raise SigningError(
            "This is not a box key to seal for.", next_step="Pass the 32 bytes of BoxKey.public."
        ) from None
    envelope = {
        "version": 1,
        "recipient": f"fp:{_fingerprint(recipient)}",
        "ciphertext": urlsafe_b64encode(sealed).decode().rstrip("="),
    }
    return json.dumps(envelope).encode()


def open_envelope(key: BoxKey, envelope: bytes) -> dict[str, str]:
    """Open an envelope that was sealed for this key.

    Returns:
        The names and values.

    Raises:
        SigningError: It is malformed, for another key, or altered.
    """
    try:
        document = json.loads(envelope)
        text = document["ciphertext"]
        sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SigningError(
            "This is not an envelope.", next_step="Make one with seal_envelope()."
        ) from None
    body = key.unseal(sealed)
    # Anyone can seal for a public key, so the content is untrusted.
    try:
        opened = json.loads(body)
        secrets = opened["env"] if opened["kind"] == _KIND else None
    except (ValueError, KeyError, TypeError, RecursionError):
        secrets = None
    if not isinstance(secrets, dict) or not _fits(body, secrets):
        raise SigningError(
            f"This envelope doesn't hold {_KIND} within its bounds.",
            next_step="Make one with seal_envelope().",
        )
    return cast("dict[str, str]", secrets)


def _fits(body: bytes, secrets: Mapping[str, object]) -> bool:
    return (
        len(secrets) <= MAX_NAMES
        and len(body) <= MAX_TOTAL_BYTES
        and all(
            isinstance(value, str)
            and "\0" not in name + value
            and len(value.encode(errors="surrogatepass")) <= MAX_VALUE_BYTES
            for name, value in secrets.items()
        )
    )


def _fingerprint(public: bytes) -> str:
    return sha256_hex(public)[:16]
