"""Envelopes: secrets that only one recipient can open, as libsodium sealed boxes."""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, NoReturn, Self, cast

from attrs import field, frozen
from nacl import bindings
from nacl.exceptions import CryptoError

from ryecore.errors import SigningError

__all__ = ["BoxKey", "open_envelope", "seal_envelope"]

_KIND: Final = "execution-secrets/v1"
MAX_NAMES: Final = 256
MAX_VALUE_BYTES: Final = 64 * 1024
MAX_TOTAL_BYTES: Final = 1024 * 1024


@frozen
class BoxKey:
    """An X25519 key that opens envelopes. Its `repr` shows the fingerprint alone."""

    _secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """Make a fresh key."""
        return cls(bindings.randombytes(32))

    @property
    def public(self) -> bytes:
        """The 32 bytes that a sender seals for."""
        return bindings.crypto_scalarmult_base(self._secret)

    @property
    def fingerprint(self) -> str:
        """The first 16 hex digits of the SHA-256 of the public half."""
        return _fingerprint(self.public)

    def unseal(self, ciphertext: bytes) -> bytes:
        """Open a sealed box.

        Raises:
            SigningError: It was sealed for another key, or was altered.
        """
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
            "This is no box key to seal for.", next_step="Pass the 32 bytes of BoxKey.public."
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
    # Anyone can seal for a public key, so what comes out is as little trusted as what went in.
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
    return hashlib.sha256(public).hexdigest()[:16]
