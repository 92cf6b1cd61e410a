"""Folders that a package manager fills, and the signed locks that vouch for them.

The thousands of files of a `node_modules` or a virtual environment aren't signed one by one. A
snapshot links to them instead of copying them. They count as unverified, unless a signed lock
beside the folder holds the digest of all its files and links.

Source: decision 16.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ryecore.errors import AnchorError, SigningError
from ryecore.items.documents import parse_document
from ryecore.items.files import writable_folder, write_atomically
from ryecore.items.paths import absolute, place_of
from ryecore.items.verification import VerifiedItem
from ryecore.lillux.digests import TreeFilter, digest_tree, sha256_hex
from ryecore.lillux.keys import SigningKey

if TYPE_CHECKING:
    from ryecore.items.signing import SignedFile

__all__ = [
    "EVERY_FILE",
    "PACKAGE_FOLDERS",
    "lock_of",
    "lock_packages",
    "locked_digest",
    "packages_digest",
]

PACKAGE_FOLDERS: Final = ("node_modules", ".venv", "venv", "vendor")
EVERY_FILE: Final = TreeFilter(extensions=None, exclude_dirs=(), recursive=True)


def lock_of(folder: Path) -> Path:
    """Return the lock that vouches for a package folder."""
    return folder.with_name(f"{folder.name.lstrip('.')}.lock.yaml")


def lock_packages(folder: Path, key: SigningKey) -> "SignedFile":
    """Write and sign the lock of a package folder, as it is now."""
    folder = absolute(folder)
    if folder.name not in PACKAGE_FOLDERS or not folder.is_dir():
        raise SigningError(
            f"{folder} is not a package folder.",
            next_step=f"Package folders are called {', '.join(PACKAGE_FOLDERS)}.",
        )
    path = lock_of(folder)
    kind, relative = place_of(path)
    kind_folder = path.parents[relative.count("/")]
    try:
        digest = packages_digest(folder)
        with writable_folder(path.parent, kind_folder, kind_folder.parent.parent) as opened:
            content = f"folder: {folder.name}\ndigest: {digest}\n".encode()
            write_atomically(opened / path.name, content)
    except AnchorError as problem:
        raise SigningError(problem.message, next_step=problem.next_step) from None
    except OSError as problem:
        raise SigningError(
            f"{folder} can't be locked: {problem}.",
            next_step="See that you may read all of it, and write beside it.",
        ) from problem
    from ryecore.items.signing import sign_file  # noqa: PLC0415 - locks are read far more often

    return sign_file(path, kind, relative, key)


def locked_digest(lock: VerifiedItem) -> str | None:
    """Return the digest that a verified lock holds."""
    digest = parse_document(lock.content, lock.source.path).get("digest")
    return digest if isinstance(digest, str) else None


def packages_digest(folder: Path) -> str:
    """Return the digest of a package folder: its files, and the targets of its links.

    A link that leaves the folder is an AnchorError: the digest doesn't cover its target.
    """
    digest = digest_tree(str(folder), EVERY_FILE).digest
    links = sorted(_links(folder, str(folder)))
    if not links:
        return digest
    lines = "".join(f"{target}  {path}\n" for path, target in links)
    return sha256_hex(f"{digest}\n{lines}".encode(errors="surrogateescape"))


def _links(root: Path, folder: str, below: str = "") -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = below + entry.name
            if entry.is_symlink():
                _check_link(root, entry.path)
                yield path, str(Path(entry.path).readlink())
            elif entry.is_dir(follow_symlinks=False):
                yield from _links(root, entry.path, path + "/")


def _check_link(root: Path, link: str) -> None:
    """Refuse a link that leaves the folder, but for a program such as a venv's `python`.

    The digest has the bytes of a file that a link leads to. It doesn't cover what that file
    imports in `node_modules`: Node looks for that beside the file, not beside the link.
    """
    leads_to = Path(os.path.realpath(link))
    if leads_to.is_relative_to(os.path.realpath(root)):
        return
    if leads_to.is_file() and root.name != "node_modules":
        return
    raise AnchorError(
        f"{link} is a link that leaves its package folder: it leads to {leads_to}.",
        next_step="Install the package itself there, or leave the folder unlocked.",
    )
