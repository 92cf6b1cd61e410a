"""Verification of items; only this module makes a `VerifiedItem`.

The result of a signature's arithmetic is cached by content hash, signature and key. Whether the key
is trusted is looked up each time.
"""

import shlex
from copy import copy
from pathlib import Path
from typing import Final

from attrs import field

from ryecore.caches import BoundedDict
from ryecore.display.sanitize import warn
from ryecore.display.text import Rendered, Span, StyledText, status_mark
from ryecore.errors import (
    BadSignature,
    ContentChanged,
    IntegrityError,
    MalformedSignature,
    UnsignedItem,
)
from ryecore.frozen import frozen
from ryecore.items.paths import absolute, source_at
from ryecore.items.signature import (
    SIDECAR,
    FileTypesReader,
    Signature,
    comment_form,
    parse_payload,
    split_content,
)
from ryecore.items.spaces import EXTENSIONS, ItemSource
from ryecore.items.trust import CachedTrustStore, TrustStore
from ryecore.lillux.digests import read_digest, sha256_hex
from ryecore.lillux.witness import Evidence

__all__ = [
    "MAX_ITEM_BYTES",
    "MAX_SIDECAR_BYTES",
    "UNVERIFIED",
    "SignedItem",
    "VerifiedItem",
    "Verifier",
    "verify_item",
]

UNVERIFIED: Final = "unverified"
MAX_ITEM_BYTES: Final = 64 * 1024 * 1024
MAX_SIDECAR_BYTES: Final = 4096
_MAX_REMEMBERED: Final = 16_384


@frozen
class SignedItem:
    """An item that was read, and the SHA-256 that its signature, not verified yet, has to cover."""

    source: ItemSource
    content: bytes = field(repr=False)
    content_hash: str
    signature: Signature


@frozen
class VerifiedItem(Rendered):
    """An item whose bytes a trusted key has signed, at this place. It owns those bytes.

    Attributes:
        source: Its location.
        content: The verified bytes, which are executed.
        integrity: The content hash; `unverified` where dev mode accepted it.
        fingerprint: The key that signed it; None where dev mode accepted it.
    """

    source: ItemSource
    content: bytes = field(repr=False)
    integrity: str
    fingerprint: str | None

    @property
    def is_verified(self) -> bool:
        """Whether the signature holds; False only in dev mode."""
        return self.integrity != UNVERIFIED

    @property
    def digest(self) -> str:
        """The content hash of the bytes; in dev mode, their SHA-256."""
        return self.integrity if self.is_verified else sha256_hex(self.content)

    def verdict(self) -> tuple[Span, ...]:
        """Return the first spans of its line: an icon, its ref, and whether it is verified."""
        verified = self.is_verified
        return (
            status_mark("ok" if verified else "warning"),
            (str(self.source.ref), "strong"),
            ("  verified", "good") if verified else ("  unverified (dev mode)", "warn"),
        )

    def render(self) -> StyledText:
        """Render the item for a terminal or a notebook: its file, hash and key."""
        text = StyledText()
        text.line(*self.verdict(), (f"  {self.source.space.label}", "dim"))
        text.line(("  file  ", "dim"), str(self.source.path))
        text.line(("  hash  ", "dim"), self.integrity)
        text.line(("  key   ", "dim"), str(self.fingerprint))
        return text


class Verifier:
    """A verifier of items. In dev mode an integrity error is a warning, outside system space.

    With `remember`, the results of a signature's arithmetic are cached.
    """

    def __init__(
        self,
        trust: TrustStore,
        *,
        dev_mode: bool = False,
        file_types: FileTypesReader = dict,
        remember: bool = True,
    ) -> None:
        self.trust = trust
        self._dev_mode = dev_mode
        self._file_types = file_types
        self._remember = remember
        self._verdicts: BoundedDict[tuple[bytes, bytes, bytes], bool] = BoundedDict(_MAX_REMEMBERED)

    def for_batch(self) -> "Verifier":
        """Return a verifier for files that are verified together: each key is looked up once."""
        batch = copy(self)
        batch.trust = CachedTrustStore(self.trust)
        return batch

    def verify(self, source: ItemSource, evidence: Evidence | None = None) -> VerifiedItem:
        """Read an item and verify it. The result owns the bytes that were verified."""
        content = self._read(source, evidence)
        try:
            return self._check(self._signed(source, content, evidence), evidence)
        except IntegrityError as error:
            if not self._dev_mode or source.space.name == "system":
                error.during(str(source.ref))
                raise
            warn(f"RYE_DEV_MODE lets this pass: {error}")
            return VerifiedItem(source, content, UNVERIFIED, None)

    def _signed(self, source: ItemSource, content: bytes, evidence: Evidence | None) -> SignedItem:
        form = comment_form(source.path.suffix)
        if form is None:
            form = self._file_types().get(source.path.suffix)
        if form is None:
            line, content_hash = self._sidecar(source, content, evidence)
        else:
            parts = split_content(content, form)
            line, content_hash = parts.line, parts.content_hash
        if line is None:
            raise UnsignedItem(
                f"{source.path} is not signed.",
                next_step=f"If you have read it and it is yours: {_sign_command(source)}",
                path=source.path,
            )
        signature = parse_payload(line)
        if signature is None:
            raise MalformedSignature(
                f"{source.path} has a signature line that is not of the form that signatures "
                "have: something was added to it, or cut off.",
                next_step=f"If the content is right: {_sign_command(source)}",
                path=source.path,
            )
        return SignedItem(source, content, content_hash, signature)

    def _check(self, item: SignedItem, evidence: Evidence | None) -> VerifiedItem:
        source, signature = item.source, item.signature
        if item.content_hash != signature.content_hash:
            raise ContentChanged(
                f"{source.path} was changed after the key {signature.fingerprint} signed it at "
                f"{signature.timestamp}.",
                next_step=f"If you have read the change and it is right: {_sign_command(source)}",
                path=source.path,
            )
        trusted = self.trust.lookup(signature.fingerprint, source.space, source.path, evidence)
        message = signature.message(source.ref.kind, source.relative)
        verdict = (message, signature.value, trusted.key.raw)
        if verdict not in self._verdicts:
            if not trusted.key.verifies(signature.value, message):
                raise BadSignature(
                    f"The signature of {source.path} by the key {signature.fingerprint} doesn't "
                    "hold here: the file was moved, renamed or back-dated after it was signed, "
                    "or the signature is forged.",
                    next_step=f"If it belongs here: {_sign_command(source)}",
                    path=source.path,
                )
            if self._remember:
                self._verdicts[verdict] = True
        return VerifiedItem(source, item.content, item.content_hash, signature.fingerprint)

    def _sidecar(
        self, source: ItemSource, content: bytes, evidence: Evidence | None
    ) -> tuple[str | None, str]:
        parts = split_content(content, None)
        path = source.path.with_name(source.path.name + SIDECAR)
        try:
            line, digest = read_digest(str(path), max_bytes=MAX_SIDECAR_BYTES)
        except FileNotFoundError:
            if evidence is not None:
                evidence.absent(str(path))
            return None, parts.content_hash
        except OSError as problem:
            raise MalformedSignature(
                f"The signature {path} can't be read: {problem.strerror or problem}.",
                next_step=f"Remove it; if the content is right: {_sign_command(source)}",
                path=path,
            ) from None
        if evidence is not None:
            evidence.file(str(path), digest)
        text = line.decode("utf-8", errors="replace")
        for line_end in ("\r\n", "\n"):
            if text.endswith(line_end):
                return text.removesuffix(line_end), parts.content_hash
        return text, parts.content_hash

    def _read(self, source: ItemSource, evidence: Evidence | None) -> bytes:
        path = source.path
        try:
            content, digest = read_digest(str(path), max_bytes=MAX_ITEM_BYTES)
        except OSError as problem:
            raise IntegrityError(
                f"{path} can't be read: {problem.strerror or problem}.",
                next_step="See that it is a plain file that you may read.",
                path=path,
            ).during(str(source.ref)) from None
        if evidence is not None:
            evidence.file(str(path), digest)
        return content


def _sign_command(source: ItemSource) -> str:
    """Return the command that signs this file, and not another one of the same stem."""
    space, kind = source.space, source.ref.kind
    if space.name == "system":
        return "reinstall the package that it came with"
    is_item = source.path.suffix in EXTENSIONS[kind]
    target = str(source.ref) if is_item else f"{kind}:{source.relative}"
    return f"rye sign {shlex.quote(target)}{' --user' if space.name == 'user' else ''}"


def verify_item(path: str | Path, trust: TrustStore) -> VerifiedItem:
    """Verify a file below an `.ai` folder.

    Args:
        path: The file.
        trust: Which keys count.

    Returns:
        The verified item, which owns the bytes that were verified.

    Raises:
        IntegrityError: It is unsigned, changed, moved, or signed by a key that isn't trusted.
        ItemNotFound: It doesn't stand in a space that `trust` knows.
    """
    path = absolute(path)
    return Verifier(trust).verify(source_at(path, trust.spaces))
