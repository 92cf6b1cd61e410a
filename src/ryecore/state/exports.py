"""Documents signed as records: the capabilities of threads, and their exports to knowledge.

The first line of such a document is a comment with the run key's signature over the thread and the
rest of the file. It differs from an item's signature in place and form.

Source: decisions 5 and 36.
"""

import hashlib
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from attrs import field

from ryecore.errors import BadSignature, StateError, UnsignedItem
from ryecore.frozen import frozen
from ryecore.items.files import (
    KnownFolders,
    keep_out_of_git,
    writable_folder,
    write_atomically,
    write_into,
)
from ryecore.items.refs import EXPORT_FOLDER, RECORD_LINE, is_export
from ryecore.items.signature import parse_payload
from ryecore.items.spaces import ItemSource
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.state.model import Durability
from ryecore.state.records import find_run_key, holds, sign_record

__all__ = [
    "CAPABILITIES_FILE",
    "CAPABILITIES_KIND",
    "EXPORT_KIND",
    "AttestedExport",
    "ExportFolder",
    "ExportVerifier",
    "document_holds",
    "export_path",
    "sign_document",
    "without_record_line",
    "write_capabilities",
]

EXPORT_KIND: Final = "thread_export"
CAPABILITIES_KIND: Final = "capabilities"
CAPABILITIES_FILE: Final = "capabilities.md"
"""The file's name in the thread's folder."""

_LINE: Final = re.compile(r"<!-- rye-record:(?P<kind>[a-z_]+) (?P<payload>[!-~]+) -->")
_MAX_KNOWN: Final = 1_000
_MAX_BYTES: Final = 64 * 1024 * 1024


@frozen
class AttestedExport:
    """The export of a thread that this user's run key attested, with the proved bytes.

    The signature proves who wrote the file, and covers the SHA-256 (hex) of its text. The text of
    models and tools in it stays untrusted.
    """

    source: ItemSource
    content: bytes = field(repr=False)
    integrity: str
    fingerprint: str

    @property
    def is_verified(self) -> bool:
        """False: no author has signed it."""
        return False


class ExportVerifier:
    """Verifies items, and proves exports of threads by their records' signatures."""

    def __init__(self, verifier: Verifier, user_root: Path) -> None:
        self._verifier = verifier
        self._user_root = user_root
        self._key: PublicKey | None = None

    def for_batch(self) -> "ExportVerifier":
        """Return a verifier for a batch of files, which reads the keys once."""
        batch = ExportVerifier(self._verifier.for_batch(), self._user_root)
        batch._key = self._run_key()
        return batch

    def _run_key(self) -> PublicKey | None:
        key = find_run_key(self._user_root)
        return None if key is None else key.public

    def verify(self, source: ItemSource) -> VerifiedItem | AttestedExport:
        """Verify an item, or prove an export, by an author's signature or this user's run key."""
        if source.space.name == "project" and is_export(source.ref.kind, source.relative):
            return self.prove(source)
        return self._verifier.verify(source)

    def prove(self, source: ItemSource) -> VerifiedItem | AttestedExport:
        """Prove an export. A file in the exports folder that an author has signed is an item."""
        try:
            content = read_digest(source.path, max_bytes=_MAX_BYTES)[0]
        except OSError:
            return self._verifier.verify(source)  # which raises the error
        if not content.startswith(RECORD_LINE):
            try:
                return self._verifier.verify(source)
            except UnsignedItem:
                raise UnsignedItem(
                    f"{source.path} stands among the exports of threads and was attested by "
                    "nobody.",
                    next_step="If it is yours: move it to another folder of knowledge, and sign "
                    "it there.",
                    path=source.path,
                ) from None
        key = self._key or self._run_key()
        thread_id = source.ref.id.split("/", 2)[2]
        if key is None or not document_holds(EXPORT_KIND, thread_id, content, key):
            raise BadSignature(
                f"{source.path} isn't as this user's run key attested the export of {thread_id}: "
                "it was changed or moved, or is another user's.",
                next_step=f"Read the thread itself: rye threads transcript {thread_id}",
                path=source.path,
            )
        text = content.partition(b"\n")[2]
        digest = hashlib.sha256(text).hexdigest()
        return AttestedExport(source, content, digest, _fingerprint(content))


def sign_document(kind: str, thread_id: str, body: str, key: SigningKey) -> bytes:
    """Sign a document, its kind and its thread, and return it with its signature in front."""
    encoded = body.encode()
    signature = sign_record(kind, _record(thread_id, encoded), key)["_signature"]
    return f"<!-- rye-record:{kind} {signature} -->\n".encode() + encoded


def export_path(project_root: Path, thread_id: str) -> Path:
    """Return the path of a thread's export."""
    return project_root / "knowledge" / EXPORT_FOLDER / f"{thread_id}.md"


class ExportFolder:
    """The exports of a project's threads, which git ignores.

    Args:
        project_root: The project's `.ai` folder.
        durability: What each write survives.
    """

    def __init__(self, project_root: Path, durability: Durability) -> None:
        self._project_root = project_root
        self._knowledge = project_root / "knowledge"
        self._exports = str(self._knowledge / EXPORT_FOLDER)
        self._ignore_file = f"{self._exports}/.gitignore"
        self._known = KnownFolders(_MAX_KNOWN)
        self._durability: Durability = durability
        self._ignored: tuple[int, int, int] | None = None

    def write(
        self, thread_id: str, text: str, key: SigningKey, replaced: str | None = None
    ) -> None:
        """Sign and write the text of a thread's export.

        A link that leads out of the project's knowledge is refused.

        Args:
            replaced: A file of the thread that was replaced, which becomes the export.
        """
        folder, _, name = f"{self._exports}/{thread_id}.md".rpartition("/")
        signed = sign_document(EXPORT_KIND, thread_id, text, key)
        try:
            self._keep_out_of_git()
            if self._known.knows(folder):
                _write(f"{folder}/{name}", signed, self._durability, replaced)
                return
            with self._open(folder) as opened:
                _write(f"{opened}/{name}", signed, self._durability, replaced)
                self._known.learn(folder, opened)
        except OSError as problem:
            raise _unwritable(export_path(self._project_root, thread_id), problem) from problem

    def _keep_out_of_git(self) -> None:
        """Have git ignore the exports, unless that very file was found right before."""
        found = _identity(self._ignore_file)
        if found is None or found != self._ignored:
            with self._open(self._exports) as folder:
                keep_out_of_git(folder, durable=self._durability == "machine")
            self._ignored = _identity(self._ignore_file)

    def _open(self, folder: str) -> AbstractContextManager[Path]:
        return writable_folder(Path(folder), self._knowledge, self._project_root.parent)


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return what changes with a file and all that is in it; None for a missing file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def write_capabilities(folder: str | Path, thread_id: str, text: str, key: SigningKey) -> None:
    """Sign and write the text of a thread's capabilities into its folder; nothing is synced."""
    path = f"{folder}/{CAPABILITIES_FILE}"
    try:
        _write(path, sign_document(CAPABILITIES_KIND, thread_id, text, key), "process")
    except OSError as problem:
        raise _unwritable(path, problem) from problem


def _write(path: str, content: bytes, durability: Durability, replaced: str | None = None) -> None:
    if replaced is None:
        write_atomically(path, content, mode=0o600, durable=durability == "machine")
    else:
        write_into(replaced, path, content)


def _unwritable(path: str | Path, problem: OSError) -> StateError:
    return StateError(
        f"{path} can't be written: {problem.strerror or problem}.",
        next_step="See that its folder can be written, and the disk has room.",
    )


def document_holds(kind: str, thread_id: str, content: bytes, key: PublicKey) -> bool:
    """Return whether a key has signed exactly this document, for this kind and thread."""
    line, newline, body = content.partition(b"\n")
    found = _LINE.fullmatch(line.decode("ascii", errors="replace"))
    if found is None or not newline or found["kind"] != kind:
        return False
    return holds(kind, {**_record(thread_id, body), "_signature": found["payload"]}, key)


def without_record_line(content: str) -> str:
    """Return a document's text without its record's signature."""
    line, _, text = content.partition("\n")
    return text if _LINE.fullmatch(line) else content


def _record(thread_id: str, body: bytes) -> dict[str, object]:
    return {"thread_id": thread_id, "content_hash": hashlib.sha256(body).hexdigest()}


def _fingerprint(content: bytes) -> str:
    payload = content.partition(b"\n")[0].split()[2].decode()
    signature = parse_payload(payload)
    return signature.fingerprint if signature else ""
