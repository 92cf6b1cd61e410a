"""Ed25519 keys in PEM, over libsodium."""

import hashlib
from base64 import b64decode, b64encode
from functools import cached_property
from typing import Final, NoReturn, Self

from attrs import field, frozen
from nacl import bindings
from nacl.exceptions import BadSignatureError

from ryecore.errors import SigningError

__all__ = ["PublicKey", "SigningKey"]

# The DER of PKCS#8 (RFC 5958) and SPKI (RFC 8410) is constant for Ed25519 but for the key itself.
_PKCS8_PREFIX: Final = bytes.fromhex("302e020100300506032b657004220420")
_SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")


def _to_pem(label: str, der: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n{b64encode(der).decode()}\n-----END {label}-----\n".encode()


def _from_pem(pem: bytes, label: str, prefix: bytes) -> bytes:
    lines = pem.decode("ascii", errors="replace").split()
    text = " ".join(lines)
    head, tail = f"-----BEGIN {label}-----", f"-----END {label}-----"
    try:
        if not (text.startswith(head) and text.endswith(tail)):
            raise ValueError
        der = b64decode(text[len(head) : -len(tail)].replace(" ", ""), validate=True)
        if not der.startswith(prefix) or len(der) != len(prefix) + 32:
            raise ValueError
    except ValueError:
        raise SigningError(
            f"This is not an Ed25519 key in PEM ({label}).",
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
            SigningError: It is something else.
        """
        return cls(
            _from_pem(pem.encode() if isinstance(pem, str) else pem, "PUBLIC KEY", _SPKI_PREFIX)
        )

    @cached_property
    def pem(self) -> bytes:
        """The key in SPKI PEM, with a final newline."""
        return _to_pem("PUBLIC KEY", _SPKI_PREFIX + self.raw)

    @cached_property
    def fingerprint(self) -> str:
        """The first 16 hex digits of the SHA-256 of the PEM's bytes."""
        return hashlib.sha256(self.pem).hexdigest()[:16]

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made this 64-byte signature of this message."""
        if len(signature) != bindings.crypto_sign_BYTES:
            return False  # else where the signature ends and the message begins were open
        try:
            bindings.crypto_sign_open(signature + message, self.raw)
        except (BadSignatureError, ValueError):
            return False
        return True


@frozen(slots=False)
class SigningKey:
    """An Ed25519 key that signs. Its `repr` shows the fingerprint alone."""

    _seed: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """Make a fresh key."""
        return cls(bindings.randombytes(32))

    @classmethod
    def from_pem(cls, pem: bytes | str) -> Self:
        """Read an unencrypted private key in PKCS#8 PEM.

        Raises:
            SigningError: It is something else.
        """
        return cls(
            _from_pem(pem.encode() if isinstance(pem, str) else pem, "PRIVATE KEY", _PKCS8_PREFIX)
        )

    @cached_property
    def _pair(self) -> tuple[bytes, bytes]:
        return bindings.crypto_sign_seed_keypair(self._seed)

    @cached_property
    def public(self) -> PublicKey:
        """The half that others may see."""
        return PublicKey(self._pair[0])

    @property
    def pem(self) -> bytes:
        """The key in unencrypted PKCS#8 PEM. Keep it in files of mode 0600."""
        return _to_pem("PRIVATE KEY", _PKCS8_PREFIX + self._seed)

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of a message."""
        return bindings.crypto_sign(message, self._pair[1])[:64]

    def __reduce__(self) -> NoReturn:
        raise TypeError("A private key is not pickled; where it must travel, take its `pem`.")

    def __repr__(self) -> str:
        return f"SigningKey(fingerprint={self.public.fingerprint!r})"
