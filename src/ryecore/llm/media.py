"""Stores of media, by the handle of their content."""

import hashlib
from os import PathLike
from typing import TYPE_CHECKING, Final, Protocol

from ryecore.errors import StoreError
from ryecore.lillux.digests import ContentStore
from ryecore.llm.parts import MediaPart

if TYPE_CHECKING:
    from ryecore.state.object_store import ObjectStore

__all__ = [
    "UNKNOWN",
    "FolderMediaStore",
    "MediaStore",
    "MemoryMediaStore",
    "ObjectMediaStore",
    "media_digest",
    "media_handle",
    "media_type_of",
]

_SCHEME: Final = "media://"

UNKNOWN: Final = "application/octet-stream"
"""The type of content whose type can't be told."""

_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_CONTAINERS: Final = ((b"WEBP", "image/webp"), (b"WAVE", "audio/wav"))
_BRANDS: Final = ((b"avif", "image/avif"), (b"heic", "image/heic"), (b"M4A ", "audio/mp4"))


class MediaStore(Protocol):
    """A store of media. Providers call it on worker threads."""

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Store content, and return its handle. The same content has the same handle.

        Raises:
            StoreError: It can't be stored.
        """
        ...

    def read(self, part: MediaPart) -> bytes:
        """Read the content of a handle.

        Raises:
            StoreError: It is missing, or doesn't match its handle.
        """
        ...


class FolderMediaStore:
    """Media in a folder, by SHA-256, verified when they are read.

    Args:
        root: The folder; it is made if it is missing.

    Raises:
        StoreError: The folder can't be made.
    """

    def __init__(self, root: str | PathLike[str]) -> None:
        self._store = ContentStore(root, durable=False)

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Store content, and return its handle."""
        return MediaPart(media_handle(self._store.put(content)), media_type, len(content), name)

    def read(self, part: MediaPart) -> bytes:
        """Read the content of a handle."""
        return self._store.get(media_digest(part))


class ObjectMediaStore:
    """Media in a store of objects, such as a bucket, for every machine that reads it.

    Args:
        objects: The store, or a space of it.
    """

    def __init__(self, objects: "ObjectStore") -> None:
        self._objects = objects

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Store content, and return its handle."""
        return MediaPart(media_handle(self._objects.put(content)), media_type, len(content), name)

    def read(self, part: MediaPart) -> bytes:
        """Read the content of a handle."""
        return self._objects.get(media_digest(part))


class MemoryMediaStore:
    """Media in memory, for the lifetime of the store."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
        """Store content, and return its handle."""
        digest = hashlib.sha256(content).hexdigest()
        self._contents[digest] = content
        return MediaPart(media_handle(digest), media_type, len(content), name)

    def read(self, part: MediaPart) -> bytes:
        """Read the content of a handle."""
        try:
            return self._contents[media_digest(part)]
        except KeyError:
            raise StoreError(
                f"This store has no medium with the handle {part.handle}.",
                next_step="Keep media in a FolderMediaStore: it outlives the process.",
            ) from None


def media_type_of(content: bytes) -> str:
    """Return the media type that content shows by its first bytes; else `UNKNOWN`."""
    for start, media_type in _STARTS:
        if content.startswith(start):
            return media_type
    if content.startswith(b"RIFF"):
        return dict(_CONTAINERS).get(content[8:12], UNKNOWN)
    if content[4:8] == b"ftyp":
        return dict(_BRANDS).get(content[8:12], "video/mp4")
    return UNKNOWN


def media_handle(sha256: str) -> str:
    """Return the handle of content, by its SHA-256 in hex."""
    return _SCHEME + sha256


def media_digest(part: MediaPart) -> str:
    """Return the SHA-256 in the handle of a medium, in hex.

    Raises:
        StoreError: It isn't a handle of a medium.
    """
    if not part.handle.startswith(_SCHEME):
        raise StoreError(f"{part.handle!r} isn't a handle of a medium: those begin with {_SCHEME}.")
    return part.handle.removeprefix(_SCHEME)
