"""Folders that a package manager fills, and the signed locks that vouch for them.

Nobody signs the thousands of files of a `node_modules` or a virtual environment one by one. They
are linked into a snapshot, not copied, and count as unverified, unless a signed lock beside the
folder holds the digest of all its files.

Source: decision 16.
"""

from pathlib import Path
from typing import Final

from ryecore.errors import SigningError
from ryecore.items.documents import parse_document
from ryecore.items.files import write_atomically
from ryecore.items.places import absolute, place_of
from ryecore.items.signing import SignedFile, sign_file
from ryecore.items.verification import VerifiedItem
from ryecore.lillux.digests import TreeFilter, digest_tree
from ryecore.lillux.keys import SigningKey

__all__ = ["EVERY_FILE", "PACKAGE_FOLDERS", "lock_of", "lock_packages", "locked_digest"]

PACKAGE_FOLDERS: Final = ("node_modules", ".venv", "venv", "vendor")
EVERY_FILE: Final = TreeFilter(extensions=None, exclude_dirs=(), recursive=True)


def lock_of(folder: Path) -> Path:
    """The lock that vouches for a package folder."""
    return folder.with_name(f"{folder.name.lstrip('.')}.lock.yaml")


def lock_packages(folder: Path, key: SigningKey) -> SignedFile:
    """Write and sign the lock of a package folder, as it is now.

    Args:
        folder: The folder, below a kind's folder.
        key: The key to sign with.

    Returns:
        The lock.

    Raises:
        SigningError: It is no package folder, or can't be read.
        ItemNotFound: It doesn't stand below a kind's folder.
    """
    folder = absolute(folder)
    if folder.name not in PACKAGE_FOLDERS or not folder.is_dir():
        raise SigningError(
            f"{folder} is not a package folder.",
            next_step=f"Package folders are called {', '.join(PACKAGE_FOLDERS)}.",
        )
    path = lock_of(folder)
    kind, relative = place_of(path)
    try:
        digest = digest_tree(str(folder), EVERY_FILE).digest
        write_atomically(path, f"folder: {folder.name}\ndigest: {digest}\n".encode())
    except OSError as problem:
        raise SigningError(f"{folder} can't be locked: {problem}.") from problem
    return sign_file(path, kind, relative, key)


def locked_digest(lock: VerifiedItem) -> str | None:
    """The digest that a verified lock holds."""
    digest = parse_document(lock.content, lock.source.path).get("digest")
    return digest if isinstance(digest, str) else None
