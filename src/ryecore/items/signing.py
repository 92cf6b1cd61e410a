"""Signing files: one, or all that a pattern matches."""

import json
import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from ryecore.display.sanitize import is_visible
from ryecore.errors import AmbiguousItem, ItemNotFound, SigningError
from ryecore.frozen import frozen
from ryecore.items.files import (
    check_links,
    is_left_over,
    remove_left_overs,
    writable_folder,
    write_atomically,
)
from ryecore.items.paths import absolute, place_of
from ryecore.items.refs import EXPORT_FOLDER, KIND_FOLDERS, RECORD_LINE, is_export
from ryecore.items.signature import (
    SIDECAR,
    CommentForm,
    Signature,
    comment_form,
    insert_signature,
    make_signature,
    split_content,
    utc_now,
)
from ryecore.items.spaces import EXTENSIONS, SKIPPED_FOLDERS, Space, refs_of, similar_ids
from ryecore.items.verification import MAX_ITEM_BYTES
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import SigningKey

__all__ = [
    "SignedFile",
    "check_name",
    "find_files",
    "is_record",
    "sign_content",
    "sign_file",
    "sign_item",
    "write_signed",
]

_NEVER_BY_GLOB: Final = ("keys/", "projects/")  # who signs these decides whom to trust


@frozen
class SignedFile:
    """A file that was signed. Its path below the kind's folder is its signed identity."""

    kind: str
    relative: str
    path: Path
    signature: Signature


def sign_content(
    content: bytes,
    extension: str,
    kind: str,
    relative: str,
    key: SigningKey,
    *,
    timestamp: str | None = None,
    file_types: Mapping[str, CommentForm] | None = None,
) -> tuple[bytes, Signature, bool]:
    """Sign bytes. Return those to write, the signature, and whether they are a sidecar's."""
    form = comment_form(extension, file_types)
    if form is not None and content.startswith(b"\xef\xbb\xbf"):
        raise SigningError(
            f"{relative} begins with a byte order mark.",
            next_step="Save it as UTF-8 without one, then sign it.",
        )
    if form is not None and content.startswith(b"#!") and b"\n" not in content:
        content += b"\n"  # the signature line needs a line of its own
    parts = split_content(content, form)
    signature = make_signature(parts.content_hash, kind, relative, key, timestamp or utc_now())
    if form is None:
        return signature.payload.encode() + b"\n", signature, True
    return insert_signature(parts, signature, form), signature, False


def write_signed(space: Space, name: str, content: bytes, key: SigningKey) -> Path:
    """Write a signed configuration file of a space; its name is the path below `.ai/config/`."""
    path = space.folder("config") / name
    signed, _, _ = sign_content(content, path.suffix, "config", name, key)
    try:
        with writable_folder(path.parent, space.folder("config"), space.boundary) as folder:
            remove_left_overs(folder / path.name)
            write_atomically(folder / path.name, signed)
    except OSError as problem:
        raise SigningError(
            f"{path} can't be written: {problem.strerror}.",
            next_step="See that its folder can be written.",
        ) from problem
    return path


def sign_file(
    path: Path,
    kind: str,
    relative: str,
    key: SigningKey,
    *,
    timestamp: str | None = None,
    file_types: Mapping[str, CommentForm] | None = None,
    content_hash: str | None = None,
    is_users_own: bool = False,
) -> SignedFile:
    """Sign a file in place, or beside it where it can't hold a comment.

    Args:
        content_hash: SHA-256 (hex) of the content that may be signed; any by default.
        is_users_own: Whether it is in user space, whose folders may be links to anywhere.
    """
    check_name(kind, relative)
    if is_export(kind, relative):
        raise refuse_record(kind, relative)
    sidecar = path.with_name(path.name + SIDECAR)
    kind_folder = path.parents[relative.count("/")]
    boundary = None if is_users_own else kind_folder.parent.parent
    for one in (path, sidecar):
        check_links(one, kind_folder, boundary)
    try:
        unsigned = read_digest(str(path), max_bytes=MAX_ITEM_BYTES)[0]
        if is_record(unsigned):
            raise refuse_record(kind, relative)
        content, signature, is_sidecar = sign_content(
            unsigned,
            path.suffix,
            kind,
            relative,
            key,
            timestamp=timestamp,
            file_types=file_types,
        )
        if content_hash not in (None, signature.content_hash):
            raise SigningError(
                f"{path} was changed after its content was approved.",
                next_step="Ask again, for what it holds now.",
            )
        with writable_folder(path.parent, kind_folder, boundary) as folder:
            target = folder / (sidecar if is_sidecar else path).name
            remove_left_overs(target)
            write_atomically(target, content)
    except OSError as problem:
        raise SigningError(
            f"{path} can't be signed: {problem.strerror or problem}.",
            next_step="Check that it is a plain file in a folder that you may write to.",
        ) from problem
    return SignedFile(kind, relative, path, signature)


def check_name(kind: str, relative: str) -> None:
    """Refuse a file name that looks like something else to a person.

    A control character, or one that is invisible or turns the direction of the text, could forge
    the lines of an approval question.
    """
    if not all(map(is_visible, relative)):
        shown = json.dumps(relative)
        raise SigningError(
            f"The name of {kind}:{shown} holds a control, invisible or bidirectional character.",
            next_step="Rename the file with visible letters, digits and signs.",
        )


def is_record(content: bytes) -> bool:
    """Return whether a file is a document that a run key has signed as a record."""
    beginning = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    if beginning.startswith(b"<!-- rye:signed:"):  # one that was signed as an item before
        beginning = beginning.partition(b"\n")[2].lstrip()
    return beginning.startswith(RECORD_LINE)


def refuse_record(kind: str, relative: str) -> SigningError:
    """Return the error for signing the record of a thread as an item."""
    return SigningError(
        f"{kind}:{relative} is the record of a thread: text that a model wrote, which no key "
        "vouches for.",
        next_step="Write what you have read and want to keep into an item of your own, outside "
        f"{EXPORT_FOLDER}, without the first line of the record. Sign that.",
    )


def sign_item(
    path: str | Path, key: SigningKey, *, file_types: Mapping[str, CommentForm] | None = None
) -> SignedFile:
    """Sign a file below an `.ai` folder; its place there is part of what is signed.

    Args:
        path: The file.
        key: The key to sign with.
        file_types: The comment forms that signed runtimes add.

    Returns:
        What was signed.

    Raises:
        ItemNotFound: It isn't below a kind's folder.
        SigningError: It can't be read or written.
    """
    path = absolute(path)
    kind, relative = place_of(path)
    return sign_file(path, kind, relative, key, file_types=file_types)


def find_files(space: Space, pattern: str) -> tuple[tuple[str, Path, str], ...]:
    """Return the files of a space that `kind:id`, `kind:path.ext` or `kind:GLOB` names.

    A glob such as `tool:acme/*` recurses. It is compared with the path below the kind's folder,
    with its extension and without.
    """
    kind, _, name = pattern.partition(":")
    if kind not in KIND_FOLDERS or not name:
        raise ItemNotFound(
            f"{pattern!r} names no items.",
            next_step="Write tool:acme/name, a glob such as 'tool:acme/*', or a file's path.",
        )
    folder = space.folder(kind)
    is_glob = _is_glob(name)
    found = [
        (kind, path, relative)
        for path, relative in _walk(folder)
        if (
            # A glob never matches key files: who signs one trusts its key.
            (fnmatchcase(relative, name) or fnmatchcase(relative.rpartition(".")[0], name))
            and not (kind == "config" and relative.startswith(_NEVER_BY_GLOB))
            if is_glob
            else relative == name or relative.rpartition(".")[0] == name
        )
    ]
    if not is_glob and len(found) > 1:
        known = [entry for entry in found if entry[1].suffix in EXTENSIONS[kind]]
        if len(known) != 1:
            both = tuple(str(path) for _, path, _ in found)
            raise AmbiguousItem(
                f"{pattern} names {len(both)} files: {' and '.join(both)}.",
                next_step="Name one with its extension, or remove the other.",
                candidates=both,
            )
        found = known
    if not found:
        raise ItemNotFound(
            f"{pattern} matches no file in {space.label} space.",
            next_step=_where_to_look(space, kind, name, folder),
            searched=(str(folder),),
        )
    return tuple(sorted(found, key=lambda entry: entry[2]))


def _is_glob(name: str) -> bool:
    return any(mark in name for mark in "*?[")


def _where_to_look(space: Space, kind: str, name: str, folder: Path) -> str:
    others = [str(ref) for ref in refs_of(name, [space.root]) if ref.kind != kind]
    if not _is_glob(name):
        others += [f"{kind}:{item_id}" for item_id in similar_ids(kind, name, [folder])]
    if others:
        return f"Did you mean {' or '.join(others)}?"
    return (
        f"Searched {folder}. Write a path below it, or a glob: {kind}:acme/name or '{kind}:acme/*'."
    )


def _walk(folder: Path) -> Iterator[tuple[Path, str]]:
    for parent, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            if not name.endswith(SIDECAR) and not is_left_over(name):
                path = Path(parent, name)
                relative = path.relative_to(folder).as_posix()
                if relative != f"{EXPORT_FOLDER}/.gitignore":
                    yield path, relative


def _refuse_unreadable(problem: OSError) -> None:
    if not isinstance(problem, FileNotFoundError | NotADirectoryError):
        raise SigningError(
            f"{problem.filename} can't be searched: {problem.strerror}.",
            next_step="See that you may read the folder.",
        ) from problem
