"""The stores of whole results of which models get previews."""

import hashlib
from collections import OrderedDict
from os import PathLike
from threading import Lock
from typing import Final, Protocol

from ryecore.errors import StoreError
from ryecore.lillux.digests import ContentStore
from ryecore.state.object_store import ObjectStore

__all__ = [
    "FolderResultStore",
    "MemoryResultStore",
    "ObjectResultStore",
    "ResultStore",
    "digest_of",
    "handle_of",
]

_SCHEME: Final = "result://"
_MAX_MEMORY: Final = 256 * 1024 * 1024


class ResultStore(Protocol):
    """Keeps results by the handle of their content. It is called on worker threads."""

    def put(self, content: bytes) -> str:
        """Store content.

        Returns:
            Its handle: `result://` and its SHA-256 in hex.

        Raises:
            StoreError: It can't be stored.
        """
        ...

    def read(self, handle: str) -> bytes:
        """Read the content of a handle.

        Raises:
            StoreError: It is missing, or doesn't match its handle.
        """
        ...


class FolderResultStore:
    """Results in a folder, verified when they are read.

    Args:
        root: The folder; it is made if it is missing.

    Raises:
        StoreError: The folder can't be made.
    """

    def __init__(self, root: str | PathLike[str]) -> None:
        self._store = ContentStore(root, durable=False)

    def put(self, content: bytes) -> str:
        """Store content, and return its handle."""
        return handle_of(self._store.put(content))

    def read(self, handle: str) -> bytes:
        """Read the content of a handle."""
        return self._store.get(digest_of(handle))


class ObjectResultStore:
    """Results in a store of objects, such as a bucket, for every machine that reads it.

    Args:
        objects: The store, or a space of it.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def put(self, content: bytes) -> str:
        """Store content, and return its handle."""
        return handle_of(self._objects.put(content))

    def read(self, handle: str) -> bytes:
        """Read the content of a handle."""
        return self._objects.get(digest_of(handle))


class MemoryResultStore:
    """Results in memory; the least recently used make room for new ones.

    Args:
        max_bytes: The bound of all stored results.
    """

    def __init__(self, max_bytes: int = _MAX_MEMORY) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def put(self, content: bytes) -> str:
        """Store content, and return its handle."""
        if len(content) > self._max_bytes:
            raise StoreError(f"{len(content):,} bytes are more than this store can hold.")
        digest = hashlib.sha256(content).hexdigest()
        with self._lock:
            if digest not in self._contents:
                self._bytes += len(content)
            self._contents[digest] = content
            self._contents.move_to_end(digest)
            while self._bytes > self._max_bytes:
                _, oldest = self._contents.popitem(last=False)
                self._bytes -= len(oldest)
        return handle_of(digest)

    def read(self, handle: str) -> bytes:
        """Read the content of a handle."""
        digest = digest_of(handle)
        with self._lock:
            content = self._contents.get(digest)
            if content is None:
                raise StoreError("This store has no result with this handle, or no longer.")
            self._contents.move_to_end(digest)
            return content


def handle_of(digest: str) -> str:
    """Return the handle of content, by its SHA-256 in hex."""
    return _SCHEME + digest


def digest_of(handle: str) -> str:
    """Return the SHA-256 in a handle."""
    if not handle.startswith(_SCHEME):
        raise StoreError(f"This isn't a handle of a result: those begin with {_SCHEME}.")
    return handle.removeprefix(_SCHEME)
