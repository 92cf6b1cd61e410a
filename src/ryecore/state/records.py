"""Records that this user's run key attests: state, never items.

A record is a JSON object with a `_signature` over its canonical form. The signed message begins
with `rye-record-v1`, so that no signature of a record is valid for an item, or the reverse.

Source: decision 5; docs/design/formats.md#signed-json-documents.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from attrs import evolve, field

from ryecore.convert.json_text import make_encoder
from ryecore.errors import SigningError, StateError
from ryecore.frozen import frozen
from ryecore.items.files import write_atomically
from ryecore.items.signature import parse_payload, signature_payload, utc_now
from ryecore.lillux.keys import PublicKey, SigningKey

__all__ = [
    "RunKey",
    "RunPublicKey",
    "adopt_run_key",
    "canonical_json",
    "find_run_key",
    "holds",
    "knows",
    "load_run_key",
    "put_run_key",
    "record_signature",
    "sign_record",
]

_VERSION: Final = "rye-record-v1"
_FIELD: Final = "_signature"
_canonical: Final = make_encoder(sort_keys=True)


@frozen(slots=False)
class RunPublicKey(PublicKey):
    """The public half of a run key, with the keys of other user spaces that the user adopted.

    Their records count as this user's own. They are found by fingerprint.
    """

    adopted: Mapping[str, PublicKey] = field(factory=dict, eq=False, repr=False)


@frozen(slots=False, repr=False)
class RunKey(SigningKey):
    """The key that signs this user's records."""

    adopted: Mapping[str, PublicKey] = field(factory=dict, kw_only=True, repr=False)

    @cached_property
    def public(self) -> RunPublicKey:
        """The public keys that prove records: this user's, and adopted ones."""
        return RunPublicKey(super().public.raw, self.adopted)


def find_run_key(user_root: Path) -> RunKey | None:
    """Find the key that signs this user's records; None if none was needed yet."""
    path = user_root / "state" / "keys" / "run_key.pem"
    return load_run_key(user_root) if os.path.lexists(path) else None


def put_run_key(user_root: Path, pem: bytes) -> None:
    """Make a run key that of a new user space, whose records another one's are."""
    folder = user_root / "state" / "keys"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(folder / "run_key.pem", pem, mode=0o600, durable=False)


def adopt_run_key(user_root: Path, key: PublicKey) -> None:
    """Adopt a run key that the user has confirmed: its records count as this user's from now on."""
    folder = user_root / "state" / "keys" / "adopted"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(folder / f"{key.fingerprint}.pem", key.pem, mode=0o600)
    except OSError as problem:
        raise StateError(
            f"{folder} can't be written: {problem.strerror}.",
            next_step="See that your user space can be written, or set USER_SPACE.",
        ) from problem


def _read_adopted(folder: Path) -> Mapping[str, PublicKey]:
    keys: dict[str, PublicKey] = {}
    for path in folder.glob("*.pem"):
        try:
            key = PublicKey.from_pem(_read_pem(path)[0])
        except FileNotFoundError:
            continue
        except (OSError, SigningError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem.message
            raise StateError(
                f"The adopted key {path} can't be read: {why}",
                next_step="Move it away, and adopt the state that it attested again: "
                "rye threads adopt",
            ) from problem
        keys[key.fingerprint] = key
    return keys


def _read_pem(path: Path) -> tuple[bytes, int]:
    """Read a key file and its mode. A FIFO or a device is an error, and isn't waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(0, "it isn't a plain file")
        return file.read(), mode


def load_run_key(user_root: Path) -> RunKey:
    """Load the key that signs this user's records, and make it at first need.

    It is the same for every process of this user. A key that others can read is refused.
    """
    folder = user_root / "state" / "keys"
    path = folder / "run_key.pem"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            # If several processes make it at once, all use the first one's.
            with suppress(FileExistsError):
                write_atomically(path, SigningKey.generate().pem, mode=0o600, replace=False)
        pem, mode = _read_pem(path)
        if mode & 0o077:
            raise StateError(
                f"Others can read the run key {path}.", next_step=f"Close it: chmod 600 {path}"
            )
        adopted = _read_adopted(folder / "adopted")
        return evolve(RunKey.from_pem(pem), adopted=adopted) if adopted else RunKey.from_pem(pem)
    except OSError as problem:
        raise StateError(
            f"The run key {path} can't be made or read: {problem.strerror}.",
            next_step="See that your user space can be written, or set USER_SPACE.",
        ) from problem
    except SigningError as problem:
        raise StateError(
            f"{path} isn't a run key: {problem.message}",
            next_step="Move it away; state that it attested will be moved aside.",
        ) from None


def canonical_json(record: Mapping[str, object]) -> bytes:
    """Return a record in canonical form: keys sorted, no spaces, ASCII, only JSON's numbers."""
    return _canonical(record).encode()


def sign_record(kind: str, record: Mapping[str, object], key: SigningKey) -> dict[str, object]:
    """Sign a record and its kind, such as `state`, and return it with `_signature`.

    It is `rye:signed:TIMESTAMP:HASH:SIGNATURE:FINGERPRINT`.
    """
    return {**record, _FIELD: record_signature(kind, canonical_json(record), key)}


def record_signature(kind: str, canonical: bytes, key: SigningKey) -> str:
    """Return the `_signature` of a record in the form that `canonical_json` returns."""
    digest = hashlib.sha256(canonical).hexdigest()
    timestamp = utc_now()
    value = key.sign_base64(_message(kind, timestamp, digest))
    return signature_payload(timestamp, digest, value, key.public.fingerprint)


def knows(key: PublicKey, fingerprint: str) -> bool:
    """Return whether a fingerprint is that of a key, or of one that its user adopted."""
    adopted = key.adopted if isinstance(key, RunPublicKey) else {}
    return fingerprint == key.fingerprint or fingerprint in adopted


def holds(kind: str, record: Mapping[str, object], key: PublicKey) -> bool:
    """Return whether a key has signed exactly this record, for this kind."""
    line = record.get(_FIELD)
    signature = parse_payload(line) if isinstance(line, str) else None
    if signature is None or signature.provenance:
        return False
    if not knows(key, signature.fingerprint):
        return False
    if signature.fingerprint != key.fingerprint and isinstance(key, RunPublicKey):
        key = key.adopted[signature.fingerprint]
    body = {name: field for name, field in record.items() if name != _FIELD}
    try:
        digest = hashlib.sha256(canonical_json(body)).hexdigest()
    except (ValueError, TypeError):
        return False
    return digest == signature.content_hash and key.verifies(
        signature.value, _message(kind, signature.timestamp, signature.content_hash)
    )


def _message(kind: str, timestamp: str, content_hash: str) -> bytes:
    return f"{_VERSION}\n{kind}\n{timestamp}\n{content_hash}".encode()
