"""The files that make a key trusted: TOML, signed, each for one space.

Source: decision 6.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import tomli_w
from attrs import frozen

from ryecore.errors import SigningError
from ryecore.items.documents import parse_document
from ryecore.items.signature import (
    COMMENT_FORMS,
    Signature,
    parse_payload,
    split_content,
    utc_now,
)
from ryecore.items.spaces import Space, project_digest
from ryecore.lillux.keys import PublicKey

__all__ = ["TRUSTED_KEYS_PATH", "KeyFile", "is_past", "parse_key_file", "render_trusted_key"]

TRUSTED_KEYS_PATH: Final = "keys/trusted"
_UTC_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@frozen
class KeyFile:
    """The content of a key file, and its signature.

    Attributes:
        project: The digest of the only project folder that it was signed for; None for any.
        content_hash: SHA-256 (hex) of what the signature has to cover.
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

    Args:
        project: The only project folder that the file counts in; by default, each project's
            space that holds it, if `space` is `project`.

    Raises:
        SigningError: `not_after` is of another form, or the owner can't be written in UTF-8.
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
    return tomli_w.dumps(document, multiline_strings=True).encode()


@lru_cache(maxsize=256)
def parse_key_file(content: bytes, name: str) -> KeyFile:
    """Parse a key file, without verifying it.

    Raises:
        KeyError: It has no public key.
    """
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
