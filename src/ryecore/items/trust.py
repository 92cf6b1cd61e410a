"""The trust store: which keys are trusted, and for which items; and the files that list them.

The user's own space and the host are the roots. A key of a project or of a third-party bundle is
trusted only for that space's items, and only when a root has signed it: a cloned repository can't
vouch for itself. The built-in bundle brings its own key, which is trusted there.

Source: decisions 6 and 7.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from ryecore.errors import MetadataError, RevokedKey, SigningError, UntrustedKey
from ryecore.frozen import frozen
from ryecore.items.documents import parse_document
from ryecore.items.refs import KIND_FOLDERS
from ryecore.items.signature import COMMENT_FORMS, Signature, parse_payload, split_content, utc_now
from ryecore.items.spaces import Space, Spaces, project_digest
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import PublicKey
from ryecore.lillux.witness import Evidence

__all__ = [
    "TRUSTED_KEYS_PATH",
    "CachedTrustStore",
    "KeyFile",
    "KeyStatus",
    "ListedKey",
    "TrustStore",
    "TrustedKey",
    "is_past",
    "parse_key_file",
    "render_trusted_key",
]

TRUSTED_KEYS_PATH: Final = "keys/trusted"
_UTC_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@frozen
class KeyFile:
    """The content of a key file, and what its signature has to cover: a SHA-256 (hex).

    `project` is the digest of the only project folder that it was signed for; None for any.
    """

    key: PublicKey
    owner: str
    path: Path
    space: str
    project: str | None
    not_after: str | None
    revoked: bool
    signature: Signature | None
    content_hash: str

    def signed_by(self, key: PublicKey) -> bool:
        """Return whether this key signed the file, at its place and with its content."""
        signature = self.signature
        return (
            signature is not None
            and signature.fingerprint == key.fingerprint
            and signature.content_hash == self.content_hash
            and _holds(signature, f"{TRUSTED_KEYS_PATH}/{self.path.name}", key)
        )

    def why_it_ended(self) -> str | None:
        """Return why the key is no longer trusted: revoked or expired. None while it is."""
        if self.revoked:
            return "was revoked"
        return f"expired at {self.not_after}" if is_past(self.not_after) else None

    def why_misplaced(self, space: Space) -> str | None:
        """Return why the file isn't valid in a space; None where it is valid.

        A file is valid in the space and project that it was signed for, so that neither a copy nor
        a link makes a key trusted elsewhere. The key of the sealed bundle is trusted only there.
        """
        if space.is_built_in:
            return None
        if self.space != space.label:
            named = f"for {self.space} space" if self.space else "without the name of a space"
            return f"{self.path} was signed {named}, and stands in {space.label} space"
        if self.project is not None and self.project != project_digest(space.root.parent):
            return f"{self.path} was signed for another project's folder"
        return None


def is_past(not_after: str | None) -> bool:
    """Return whether a time like 2027-01-31T00:00:00Z has passed."""
    return not_after is not None and not_after < utc_now()


@lru_cache(maxsize=1024)
def _holds(signature: Signature, name: str, key: PublicKey) -> bool:
    """Return whether a signature holds. Only this arithmetic is cached, by all its inputs."""
    return signature.holds("config", name, key)


def render_trusted_key(
    key: PublicKey,
    owner: str,
    *,
    space: str = "user",
    project: Path | None = None,
    not_after: str | None = None,
    revoked: bool = False,
) -> bytes:
    """Return the TOML file that makes a key trusted, once it is signed.

    It counts in one project folder only if that is named; by default, in each project's space that
    holds it, if `space` is `project`.
    """
    if not_after is not None and _UTC_SECONDS.fullmatch(not_after) is None:
        raise SigningError(
            f"{not_after!r} is not a time in UTC.", next_step="Write it like 2027-01-31T00:00:00Z."
        )
    if any("\ud800" <= char <= "\udfff" for char in owner):
        raise SigningError(
            f"The owner {owner!r} can't be written in UTF-8.", next_step="Write the name in UTF-8."
        )
    document: dict[str, object] = {
        "version": "1.0.0",
        "category": TRUSTED_KEYS_PATH,
        "fingerprint": key.fingerprint,
        "owner": owner,
        "space": space,
    }
    if project is not None:
        document["project"] = project_digest(project)
    if not_after is not None:
        document["not_after"] = not_after
    if revoked:
        document["revoked"] = True
    document["public_key"] = {"pem": key.pem.decode()}
    import tomli_w  # noqa: PLC0415 - keys are read far more often than written

    return tomli_w.dumps(document, multiline_strings=True).encode()


@lru_cache(maxsize=256)
def parse_key_file(content: bytes, name: str) -> KeyFile:
    """Parse a key file, without verifying it."""
    path = Path(name)
    parts = split_content(content, COMMENT_FORMS[".toml"])
    document = parse_document(content, path)
    table = document["public_key"]
    if not isinstance(table, dict):
        raise TypeError("public_key is not a table")
    project = document.get("project")
    not_after = document.get("not_after")
    if (
        isinstance(not_after, datetime) and not_after.tzinfo is not None
    ):  # TOML has a type of its own
        not_after = not_after.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if not_after is not None and _UTC_SECONDS.fullmatch(str(not_after)) is None:
        raise TypeError(f"not_after is {not_after!r}, not like 2027-01-31T00:00:00Z")
    return KeyFile(
        key=PublicKey.from_pem(str(table["pem"])),
        owner=str(document.get("owner", "")),
        path=path,
        space=str(document.get("space", "")),
        project=None if project is None else str(project),
        not_after=None if not_after is None else str(not_after),
        revoked=document.get("revoked", False) is not False,
        signature=parse_payload(parts.line) if parts.line is not None else None,
        content_hash=parts.content_hash,
    )


_MAX_KEY_FILE_BYTES: Final = 64 * 1024


@frozen
class TrustedKey:
    """A trusted key, and its key file; None where the host passed it."""

    key: PublicKey
    owner: str = ""
    source: Path | None = None
    not_after: str | None = None


KeyStatus = Literal["trusted", "revoked", "expired", "untrusted"]


@frozen
class ListedKey:
    """A key file, or a key of the host, for display.

    Attributes:
        space: The label of its space; `host` where the host passed it.
        reason: Why it is not trusted, in a sentence; empty for the other statuses.
    """

    key: PublicKey
    owner: str
    space: str
    status: KeyStatus
    path: Path | None = None
    not_after: str | None = None
    reason: str = ""


class TrustStore:
    """The keys of the spaces and of the host.

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
        """Return the key of this fingerprint, if it is trusted for items of this space.

        Args:
            fingerprint: 16 hex digits.
            space: The space of the signed item.
            path: The item, for the error's text.
            evidence: Collects the files that were read.

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
            if (misplaced := key_file.why_misplaced(tier)) is not None:
                refusals.append(misplaced)
                continue
            if self._vouched_for(key_file, tier, evidence, {fingerprint}):
                return TrustedKey(key_file.key, key_file.owner, key_file.path, key_file.not_after)
            refusals.append(f"{key_file.path} is not signed by a key that you trust")
        reasons = f" ({'; '.join(refusals)})" if refusals else ""
        raise UntrustedKey(
            f"{path} was signed by the key {fingerprint}, which is not trusted "
            f"in {space.label} space{reasons}.",
            next_step=self._how_to_trust(fingerprint, space, path),
            path=path,
            fingerprint=fingerprint,
        )

    def _tiers(self, space: Space) -> tuple[Space, ...]:
        """Return the spaces to ask, user space first: nothing can undo a revocation there."""
        return (self.spaces.user,) if space == self.spaces.user else (self.spaces.user, space)

    def _vouched_for(
        self, key_file: KeyFile, tier: Space, evidence: Evidence, seen: set[str]
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
            voucher.why_misplaced(self.spaces.user) is None
            and voucher.why_it_ended() is None
            and key_file.signed_by(voucher.key)
            and self._vouched_for(voucher, self.spaces.user, evidence, {*seen, signer})
        )

    def _check_dates(self, key_file: KeyFile, path: Path, evidence: Evidence) -> None:
        evidence.until(key_file.not_after)
        if (why := key_file.why_it_ended()) is not None:
            raise RevokedKey(
                f"{path} was signed by the key {key_file.key.fingerprint}, which {why} "
                f"({key_file.path}).",
                next_step="Sign it again with a key that is trusted: "
                f"rye sign {shlex.quote(str(path))}",
                path=path,
                fingerprint=key_file.key.fingerprint,
                is_expired=not key_file.revoked,
            )

    def _read(
        self, space: Space, fingerprint: str, evidence: Evidence, refusals: list[str]
    ) -> KeyFile | None:
        # Text, not a Path: this runs for each file that is verified.
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
            key_file = parse_key_file(content, path)
        except (MetadataError, SigningError, KeyError, TypeError, OverflowError) as problem:
            refusals.append(f"{path} is not a key file: {problem}")
            return None
        if key_file.key.fingerprint != fingerprint:
            refusals.append(f"{path} holds another key")
            return None
        return key_file

    def _how_to_trust(self, fingerprint: str, space: Space, path: Path) -> str:
        key_file = space.folder("config") / TRUSTED_KEYS_PATH / f"{fingerprint}.toml"
        if space.name != "user" and key_file.exists():
            only_here = "--in-project " if space.name == "project" else ""
            command = f"rye keys trust {only_here}{shlex.quote(str(key_file))}"
            return f"If you know whose key it is, trust it: {command}"
        return (
            "If you know whose key it is, trust it: rye keys trust PUBLIC_KEY.pem. "
            f"If it is your own, sign it with your key: rye sign {shlex.quote(str(path))}"
        )

    def listed(self) -> tuple[ListedKey, ...]:
        """Return every key that the host, user space or the project names, with its status.

        Returns:
            The host's keys first, then those of user space, then the project's, each by name.

        Raises:
            SigningError: A folder of key files can't be read.
        """
        host = (ListedKey(key, "the host", "host", "trusted") for key in self._host_keys.values())
        places = dict.fromkeys((self.spaces.user, self.spaces.project))
        return (*host, *(one for space in places for one in self._listed_in(space)))

    def _listed_in(self, space: Space) -> Iterator[ListedKey]:
        folder = space.folder("config") / TRUSTED_KEYS_PATH
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            names = []
        except OSError as problem:
            raise SigningError(
                f"The trusted keys in {folder} can't be listed: {problem.strerror}.",
                next_step="See that you may read the folder.",
            ) from problem
        for path in (folder / name for name in names if name.endswith(".toml")):
            refusals: list[str] = []
            key_file = self._read(space, path.stem, Evidence(), refusals)
            if key_file is None:
                continue
            status: KeyStatus = "trusted"
            reason = ""
            try:
                self.lookup(path.stem, space, path)
            except RevokedKey as refusal:
                status = "expired" if refusal.is_expired else "revoked"
            except UntrustedKey as refusal:
                status, reason = "untrusted", refusal.message
            yield ListedKey(
                key_file.key, key_file.owner, space.label, status, path, key_file.not_after, reason
            )


class CachedTrustStore(TrustStore):
    """A trust store with a cache, for files that are verified together."""

    def __init__(self, trust: TrustStore) -> None:
        super().__init__(trust.spaces, trust.host_keys)
        self._found: dict[tuple[str, str], TrustedKey] = {}

    def lookup(
        self, fingerprint: str, space: Space, path: Path, evidence: Evidence | None = None
    ) -> TrustedKey:
        """Return the cached result for this key and space, else look it up."""
        key = (fingerprint, space.label)
        if key not in self._found:
            self._found[key] = super().lookup(fingerprint, space, path, evidence)
        return self._found[key]
