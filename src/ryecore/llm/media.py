"""Media by the handle of their content."""

import hashlib
from os import PathLike
from typing import Final, Protocol

from ryecore.errors import StoreError
from ryecore.lillux.store import ContentStore
from ryecore.llm.parts import MediaPart

__all__ = ["FolderMediaStore", "MediaStore", "MemoryMediaStore"]

_SCHEME: Final = "media://"


class MediaStore(Protocol):
    """Where media are kept."""

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Keep content, and give its handle. The same content has the same handle.

        Raises:
            StoreError: It can't be kept.
        """
        ...

    def read(self, part: MediaPart) -> bytes:
        """The content behind a handle.

        Raises:
            StoreError: It isn't there, or isn't what its handle says.
        """
        ...


class FolderMediaStore:
    """Media in a folder, by their SHA-256; verified while they are read.

    Args:
        root: The folder; it is made where it is missing.

    Raises:
        StoreError: The folder can't be made.
    """

    def __init__(self, root: str | PathLike[str]) -> None:
        self._store = ContentStore(root, durable=False)

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Keep content, and give its handle."""
        return MediaPart(_SCHEME + self._store.put(content), media_type, len(content), name)

    def read(self, part: MediaPart) -> bytes:
        """The content behind a handle."""
        return self._store.get(_digest(part))


class MemoryMediaStore:
    """Media in memory, for as long as the store lives."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Keep content, and give its handle."""
        digest = hashlib.sha256(content).hexdigest()
        self._contents[digest] = content
        return MediaPart(_SCHEME + digest, media_type, len(content), name)

    def read(self, part: MediaPart) -> bytes:
        """The content behind a handle."""
        try:
            return self._contents[_digest(part)]
        except KeyError:
            raise StoreError(f"No medium has the handle {part.handle}.") from None


def _digest(part: MediaPart) -> str:
    if not part.handle.startswith(_SCHEME):
        raise StoreError(f"{part.handle!r} is no handle of a medium.")
    return part.handle.removeprefix(_SCHEME)
