"""Which keys count, and for what.

The user's own space and the host are the roots. A project's key, and that of a third-party
bundle, counts for that space's items alone, and only when a root has signed it: a cloned
repository can't vouch for itself. The built-in bundle brings its own key, which counts there.

Source: decisions 6 and 7.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import tomli_w
from attrs import frozen

from ryecore.errors import IntegrityError, MetadataError, RevokedKey, SigningError, UntrustedKey
from ryecore.items.documents import parse_document
from ryecore.items.evidence import Evidence
from ryecore.items.refs import KIND_FOLDERS
from ryecore.items.signature import (
    COMMENT_FORMS,
    Signature,
    parse_payload,
    split_content,
    utc_now,
)
from ryecore.items.spaces import Space, Spaces
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import PublicKey

__all__ = ["TRUSTED_KEYS_PATH", "AskedOnce", "TrustStore", "TrustedKey", "render_trusted_key"]

TRUSTED_KEYS_PATH: Final = "keys/trusted"
_MAX_KEY_FILE_BYTES: Final = 64 * 1024
_UTC_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@frozen
class TrustedKey:
    """A key that counts.

    Attributes:
        key: The public key.
        owner: Whose it is, as the key file says.
        source: The file that it stands in; None where the host passed it.
        not_after: The UTC time after which it no longer counts.
    """

    key: PublicKey
    owner: str = ""
    source: Path | None = None
    not_after: str | None = None


@frozen
class _KeyFile:
    key: PublicKey
    owner: str
    path: Path
    not_after: str | None
    revoked: bool
    signature: Signature | None
    content_hash: str

    def signed_by(self, key: PublicKey) -> bool:
        signature = self.signature
        return (
            signature is not None
            and signature.fingerprint == key.fingerprint
            and signature.content_hash == self.content_hash
            and _holds(signature, f"{TRUSTED_KEYS_PATH}/{self.path.name}", key)
        )


@lru_cache(maxsize=1024)
def _holds(signature: Signature, name: str, key: PublicKey) -> bool:
    """The arithmetic alone is remembered, by signature, name and key."""
    return signature.holds("config", name, key)


def render_trusted_key(
    key: PublicKey, owner: str, *, not_after: str | None = None, revoked: bool = False
) -> bytes:
    """The TOML file that makes a key trusted, once it is signed.

    Args:
        key: The key.
        owner: Whose it is.
        not_after: The UTC time after which it no longer counts, `YYYY-MM-DDTHH:MM:SSZ`.
        revoked: Whether it counts no more.

    Returns:
        The file's bytes, without a signature.

    Raises:
        SigningError: `not_after` is of another form, or the owner is no text.
    """
    if not_after is not None and _UTC_SECONDS.fullmatch(not_after) is None:
        raise SigningError(
            f"{not_after!r} is not a time in UTC.", next_step="Write it like 2027-01-31T00:00:00Z."
        )
    if any("\ud800" <= char <= "\udfff" for char in owner):
        raise SigningError(f"The owner {owner!r} is no text.", next_step="Write the name in UTF-8.")
    document: dict[str, object] = {
        "version": "1.0.0",
        "category": TRUSTED_KEYS_PATH,
        "fingerprint": key.fingerprint,
        "owner": owner,
    }
    if not_after is not None:
        document["not_after"] = not_after
    if revoked:
        document["revoked"] = True
    document["public_key"] = {"pem": key.pem.decode()}
    return tomli_w.dumps(document, multiline_strings=True).encode()


class TrustStore:
    """Answers which keys count.

    Args:
        spaces: The spaces whose key files are read.
        host_keys: Public keys that the embedding application vouches for.

    Attributes:
        spaces: The spaces whose key files are read.
    """

    def __init__(self, spaces: Spaces, host_keys: Iterable[PublicKey] = ()) -> None:
        self.spaces = spaces
        self._host_keys: Mapping[str, PublicKey] = {key.fingerprint: key for key in host_keys}

    @property
    def host_keys(self) -> tuple[PublicKey, ...]:
        """The keys that the embedding application vouches for."""
        return tuple(self._host_keys.values())

    def lookup(
        self, fingerprint: str, space: Space, path: Path, evidence: Evidence | None = None
    ) -> TrustedKey:
        """The key of this fingerprint, if it counts for items of this space.

        Args:
            fingerprint: 16 hex digits.
            space: Where the item stands that it has signed.
            path: The item, for the error's text.
            evidence: Told which files were read.

        Returns:
            The key.

        Raises:
            UntrustedKey: No root vouches for it.
            RevokedKey: It was revoked, or has expired.
        """
        evidence = evidence if evidence is not None else Evidence()
        refusals: list[str] = []
        if (host_key := self._host_keys.get(fingerprint)) is not None:
            return TrustedKey(host_key, owner="the host")
        for tier in self._tiers(space):
            key_file = self._read(tier, fingerprint, evidence, refusals)
            if key_file is None:
                continue
            self._check_dates(key_file, path, evidence)
            if self._vouched_for(key_file, tier, evidence, {fingerprint}):
                return TrustedKey(key_file.key, key_file.owner, key_file.path, key_file.not_after)
            refusals.append(f"{key_file.path} is not signed by a key that you trust")
        reasons = f" ({'; '.join(refusals)})" if refusals else ""
        raise UntrustedKey(
            f"{path} was signed by the key {fingerprint}, which is not trusted "
            f"in {space.label} space{reasons}.",
            next_step=self._how_to_trust(fingerprint, space),
            path=path,
            fingerprint=fingerprint,
        )

    def _tiers(self, space: Space) -> tuple[Space, ...]:
        """The user's word comes first, so that a revocation there can't be undone elsewhere."""
        return (self.spaces.user,) if space == self.spaces.user else (self.spaces.user, space)

    def _vouched_for(
        self, key_file: _KeyFile, tier: Space, evidence: Evidence, seen: set[str]
    ) -> bool:
        if tier.name == "user" or tier.is_built_in:
            if key_file.signed_by(key_file.key):
                return True
            if tier.is_built_in:
                return False
        signer = key_file.signature.fingerprint if key_file.signature else ""
        if (host_key := self._host_keys.get(signer)) is not None:
            return key_file.signed_by(host_key)
        if not signer or signer in seen:
            return False  # unsigned, or two keys that vouch for each other
        voucher = self._read(self.spaces.user, signer, evidence, [])
        if voucher is None:
            return False
        evidence.until(voucher.not_after)
        return (
            not voucher.revoked
            and not _is_past(voucher.not_after)
            and key_file.signed_by(voucher.key)
            and self._vouched_for(voucher, self.spaces.user, evidence, {*seen, signer})
        )

    def _check_dates(self, key_file: _KeyFile, path: Path, evidence: Evidence) -> None:
        evidence.until(key_file.not_after)
        if key_file.revoked or _is_past(key_file.not_after):
            why = "was revoked" if key_file.revoked else f"expired at {key_file.not_after}"
            raise RevokedKey(
                f"{path} was signed by the key {key_file.key.fingerprint}, which {why} "
                f"({key_file.path}).",
                next_step="Sign the item again with a key that is trusted: rye sign REF.",
                path=path,
                fingerprint=key_file.key.fingerprint,
            )

    def _read(
        self, space: Space, fingerprint: str, evidence: Evidence, refusals: list[str]
    ) -> _KeyFile | None:
        # Text, not a Path: this is asked for every file that is verified.
        path = f"{space.root}/{KIND_FOLDERS['config']}/{TRUSTED_KEYS_PATH}/{fingerprint}.toml"
        try:
            content, digest = read_digest(path, max_bytes=_MAX_KEY_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            evidence.absent(path)
            return None
        except OSError as problem:
            refusals.append(f"{path} can't be read: {problem.strerror}")
            return None
        evidence.file(path, digest)
        try:
            key_file = _parse_key_file(content, path)
        except (MetadataError, SigningError, KeyError, TypeError, OverflowError) as problem:
            refusals.append(f"{path} is not a key file: {problem}")
            return None
        if key_file.key.fingerprint != fingerprint:
            refusals.append(f"{path} holds another key")
            return None
        return key_file

    def _how_to_trust(self, fingerprint: str, space: Space) -> str:
        key_file = space.folder("config") / TRUSTED_KEYS_PATH / f"{fingerprint}.toml"
        if space.name != "user" and key_file.exists():
            only_here = "--in-project " if space.name == "project" else ""
            command = f"rye keys trust {only_here}{shlex.quote(str(key_file))}"
            return f"If you know whose key it is, trust it: {command}"
        return (
            "If you know whose key it is, trust it: rye keys trust PUBLIC_KEY.pem. "
            "If the item is your own, sign it with your key: rye sign REF."
        )

    def trusted(self) -> tuple[TrustedKey, ...]:
        """Every key that counts in user space or for the host, for people to look at.

        Raises:
            SigningError: The folder of key files can't be read.
        """
        folder = self.spaces.user.folder("config") / TRUSTED_KEYS_PATH
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            names = []
        except OSError as problem:
            raise SigningError(
                f"The trusted keys in {folder} can't be listed: {problem.strerror}.",
                next_step="See that you may read the folder.",
            ) from problem
        keys = [TrustedKey(key, owner="the host") for key in self._host_keys.values()]
        for path in (folder / name for name in names if name.endswith(".toml")):
            try:
                keys.append(self.lookup(path.stem, self.spaces.user, path))
            except IntegrityError:
                continue
        return tuple(keys)


class AskedOnce(TrustStore):
    """A trust store for files that are verified together: each key is asked about once.

    Args:
        trust: The store that answers.
    """

    def __init__(self, trust: TrustStore) -> None:
        super().__init__(trust.spaces, trust.host_keys)
        self._answers: dict[tuple[str, str], TrustedKey] = {}

    def lookup(
        self, fingerprint: str, space: Space, path: Path, evidence: Evidence | None = None
    ) -> TrustedKey:
        """The answer that was given before for this key and space, else a fresh one."""
        asked = (fingerprint, space.label)
        if asked not in self._answers:
            self._answers[asked] = super().lookup(fingerprint, space, path, evidence)
        return self._answers[asked]


@lru_cache(maxsize=256)
def _parse_key_file(content: bytes, name: str) -> _KeyFile:
    path = Path(name)
    parts = split_content(content, COMMENT_FORMS[".toml"])
    document = parse_document(content, path)
    table = document["public_key"]
    if not isinstance(table, dict):
        raise TypeError("public_key is not a table")
    not_after = document.get("not_after")
    if isinstance(not_after, datetime) and not_after.tzinfo is not None:  # TOML has its own
        not_after = not_after.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if not_after is not None and _UTC_SECONDS.fullmatch(str(not_after)) is None:
        raise TypeError(f"not_after is {not_after!r}, not like 2027-01-31T00:00:00Z")
    return _KeyFile(
        key=PublicKey.from_pem(str(table["pem"])),
        owner=str(document.get("owner", "")),
        path=path,
        not_after=None if not_after is None else str(not_after),
        revoked=document.get("revoked", False) is not False,
        signature=parse_payload(parts.line) if parts.line is not None else None,
        content_hash=parts.content_hash,
    )


def _is_past(timestamp: str | None) -> bool:
    return timestamp is not None and timestamp < utc_now()
