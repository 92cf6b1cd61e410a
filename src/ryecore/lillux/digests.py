"""SHA-256 of bytes, files and folders, without the interpreter's lock, and a store by digest."""

from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from typing import Final, Literal

from ryecore import _native
from ryecore._native import sha256_hex  # as hashlib does, which takes 3 ms to import
from ryecore.errors import StoreError
from ryecore.frozen import frozen

__all__ = [
    "ContentStore",
    "TreeDigest",
    "TreeFilter",
    "digest_tree",
    "list_tree",
    "read_digest",
    "read_files",
    "sha256_file",
    "sha256_hex",
    "stat_beside",
    "stat_tree",
]

_NO_LIMIT_BYTES: Final = 2**62


@frozen
class TreeFilter:
    """A filter of the files of a folder.

    Attributes:
        extensions: Final suffixes, as in `(".py", ".yaml")`; None takes every file.
        exclude_dirs: Names of folders that are not entered, at any depth.
        recursive: Whether folders are entered at all.
    """

    extensions: tuple[str, ...] | None = None
    exclude_dirs: tuple[str, ...] = ()
    recursive: bool = True


@frozen
class TreeDigest:
    r"""The content of a folder.

    Attributes:
        digest: SHA-256 (hex) over the lines `{hex}  {path}\n`, sorted by the bytes of the paths.
        files: Each path below the root with its SHA-256 (hex), in that order.
    """

    digest: str
    files: tuple[tuple[str, str], ...]


_EVERY_FILE: Final = TreeFilter()


def sha256_file(path: str | PathLike[str]) -> str:
    """Return the SHA-256 (hex) of a regular file.

    Raises:
        OSError: It can't be read, or isn't a regular file.
    """
    return _native.sha256_file(path)


def read_digest(
    path: str | PathLike[str], *, max_bytes: int = _NO_LIMIT_BYTES
) -> tuple[bytes, str]:
    """Read a whole regular file, and return its bytes with their SHA-256 (hex).

    Args:
        path: The file. A FIFO or a device is refused and never waited for.
        max_bytes: A larger file is refused.

    Raises:
        OSError: It can't be read, is larger, or isn't a regular file.
    """
    return _native.read_digest(path, max_bytes)


def read_files(
    paths: Iterable[str | PathLike[str]], *, max_bytes: int = _NO_LIMIT_BYTES
) -> list[tuple[bytes, str]]:
    """Read many files, and return their bytes with their SHA-256 (hex).

    Args:
        paths: The files; the results keep this order.
        max_bytes: A larger file is refused.

    Raises:
        OSError: A file can't be read; the first one in order is named.
    """
    return _native.read_files(paths, max_bytes)


def list_tree(
    root: str | PathLike[str],
    filter: TreeFilter = _EVERY_FILE,  # noqa: A002
) -> list[tuple[str, Literal["file", "symlink"]]]:
    """Return the files below a folder, sorted by the bytes of their paths.

    Args:
        root: The folder.
        filter: Which files count.

    Returns:
        Paths below the root. A `symlink` leads to a regular file; links to folders are not
        followed, and other links and special files are not listed.

    Raises:
        OSError: A folder can't be read, or vanished meanwhile.
    """
    return _native.list_tree(root, filter.extensions, filter.exclude_dirs, filter.recursive)


def stat_tree(root: str | PathLike[str], filter: TreeFilter = _EVERY_FILE) -> str:  # noqa: A002
    """Return a fingerprint (hex) of the stats of all files below a folder.

    It changes with each path, kind, mode, inode, size and time. It shows that something was
    touched, and never proves that content is unchanged.

    Args:
        root: The folder.
        filter: Which files count.

    Raises:
        OSError: A folder can't be read, or something vanished meanwhile.
    """
    return _native.stat_tree(root, filter.extensions, filter.exclude_dirs, filter.recursive)


def stat_beside(root: str | PathLike[str], left_out: Sequence[str]) -> str:
    """Return a fingerprint (hex) of the stats of all below a folder, but of some folders.

    It is one of `stat_tree` that doesn't show whether the folders that are left out, or those above
    them, are made or written to. What stands in the place of such a folder, a link say, counts.

    Args:
        root: The folder; one that is missing has the fingerprint of an empty one.
        left_out: Paths of folders below the root, with `/`.

    Raises:
        OSError: A folder can't be read, or something vanished meanwhile.
    """
    return _native.stat_beside(root, left_out)


def digest_tree(
    root: str | PathLike[str],
    filter: TreeFilter = _EVERY_FILE,  # noqa: A002
) -> TreeDigest:
    """Return the content of all files below a folder; a link counts by the file that it leads to.

    Args:
        root: The folder.
        filter: Which files count.

    Raises:
        OSError: A file or folder can't be read, or vanished meanwhile.
    """
    digest, files = _native.digest_tree(
        root, filter.extensions, filter.exclude_dirs, filter.recursive
    )
    return TreeDigest(digest, tuple(files))


class ContentStore:
    """A folder of blobs, `ab/<hex>`, shared by any number of threads and processes.

    Args:
        root: The folder; created where it is missing.
        durable: Whether stored content survives a power cut.

    Raises:
        StoreError: The folder can't be made.
    """

    __slots__ = ("_native", "root")

    def __init__(self, root: str | PathLike[str], *, durable: bool = True) -> None:
        self.root = fspath(root)
        try:
            self._native = _native.ContentStore(root, durable)
        except OSError as error:
            raise _store_error(error) from error

    def put(self, content: bytes) -> str:
        """Store content, unless it is there already.

        Returns:
            Its name: the SHA-256 in hex.

        Raises:
            StoreError: It can't be written; no part of it stays.
        """
        try:
            return self._native.put(content)
        except OSError as error:
            raise _store_error(error) from error

    def get(self, digest: str) -> bytes:
        """Return content by its name, verified while it is read.

        Raises:
            StoreError: It isn't there, or its digest isn't its name. A corrupt blob is moved aside
                into the store's `corrupt` folder.
        """
        try:
            return self._native.get(digest)
        except (OSError, ValueError) as error:
            raise _store_error(error) from error

    def has(self, digest: str) -> bool:
        """Return whether a blob of this name is there, whatever its content.

        Raises:
            StoreError: The name isn't a SHA-256 in hex.
        """
        try:
            return self._native.has(digest)
        except ValueError as error:
            raise _store_error(error) from error

    def verify(self, digest: str) -> bool:
        """Return whether a blob is there and has the digest that it is named by.

        Raises:
            StoreError: It can't be read, or the name isn't a SHA-256 in hex.
        """
        try:
            return self._native.verify(digest)
        except (OSError, ValueError) as error:
            raise _store_error(error) from error


def _store_error(error: OSError | ValueError) -> StoreError:
    if isinstance(error, OSError):
        message = f"The content store failed: {error.strerror} ({error.filename})."
        return StoreError(message, errno=error.errno, path=error.filename)
    return StoreError(f"The content store takes a SHA-256 in hex as a name: {error}.")
