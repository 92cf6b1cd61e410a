"""Store of content by its SHA-256, written whole or not at all, and verified when read."""

from os import PathLike, fspath

from ryecore import _native
from ryecore.errors import StoreError

__all__ = ["ContentStore"]


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
