"""Objects: content by its SHA-256, in a folder, on PostgreSQL, or in a bucket of S3.

An object never changes. It is visible whole or not at all, and is checked against its name
whenever it is read. So whoever keeps the objects can lose them, but can't change them unnoticed.
`ryecore.testing.objects` tests whether a store keeps these promises.

Source: ADR 043.
"""

import hashlib
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import IO, Final, Protocol, Self

from ryecore.errors import InputError, StoreError
from ryecore.frozen import frozen

__all__ = [
    "CHUNK_BYTES",
    "MAX_WHOLE_BYTES",
    "Content",
    "ObjectStore",
    "Spool",
    "StoredObject",
    "check_digest",
    "check_space",
    "join_whole",
    "missing_object",
    "prune_objects",
    "verified",
]

CHUNK_BYTES: Final = 1024 * 1024
"""The size of the chunks in which objects are read."""

MAX_WHOLE_BYTES: Final = 256 * 1024 * 1024
"""The largest object that `get` returns by default."""

Content = bytes | Iterable[bytes]
"""Content to store: whole, or in chunks."""

_IN_MEMORY_BYTES: Final = 4 * 1024 * 1024
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SPACE: Final = re.compile(rf"{_NAME}(?:/{_NAME})*", re.ASCII)
_MAX_SPACE: Final = 600


@frozen
class StoredObject:
    """An object in a list.

    Attributes:
        sha256: Its name: the SHA-256 of its content, in hex.
        size_bytes: Its length.
        stored_at_s: When it was stored last, in seconds since the epoch, by the store's clock.
    """

    sha256: str
    size_bytes: int
    stored_at_s: float


class ObjectStore(Protocol):
    """A store of objects, shared by any number of threads, processes and machines.

    Its methods block: an event loop calls them on worker threads. All raise a StateUnreachable
    where a server can't be reached, or lets nobody in.
    """

    @property
    def shown(self) -> str:
        """Where the objects are, for people: without passwords and keys."""
        ...

    def below(self, space: str) -> Self:
        """Return the store of a space, whose objects are apart from those of every other.

        Args:
            space: Names joined by `/`, each of letters, digits, `.`, `_` and `-`; the first
                character is a letter, a digit or `_`.
        """
        ...

    def put(self, content: Content, *, sha256: str | None = None) -> str:
        """Store content. Content that is there already is not stored twice.

        Once this has returned, `list` shows a time within the last hour for the object, whoever
        stored it first: pruning by age can't remove what was just stored.

        Args:
            content: The content: bytes, or chunks, of which only a few are held in memory.
            sha256: What the digest of the content has to be.

        Returns:
            Its name: the SHA-256 in hex.

        Raises:
            StoreError: It has another digest, or can't be stored. Nothing of it is visible.
        """
        ...

    def get(self, sha256: str, *, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
        """Return the content of an object.

        Args:
            sha256: Its name.
            max_bytes: A larger object is refused.

        Raises:
            StoreError: It is missing, larger, or was altered.
        """
        ...

    def read(self, sha256: str) -> Iterator[bytes]:
        """Yield the content of an object in chunks of at most 1 MiB.

        The last chunk is yielded once the digest of all of them is checked, so that nobody gets
        the whole of an altered object.

        Args:
            sha256: Its name.

        Raises:
            StoreError: It is missing, or was altered.
        """
        ...

    def missing(self, digests: Collection[str]) -> set[str]:
        """Return those of many names that no object has here.

        Args:
            digests: The names.
        """
        ...

    def list(self) -> Iterator[StoredObject]:
        """Yield the objects of this space, in no particular order."""
        ...

    def delete(self, digests: Collection[str]) -> None:
        """Delete objects. A missing one is passed over.

        Args:
            digests: The names.
        """
        ...

    def close(self) -> None:
        """Close the store's connections."""
        ...


def prune_objects(
    store: ObjectStore,
    *,
    stored_before_s: float | None = None,
    max_total_bytes: int | None = None,
    kept: Collection[str] = (),
) -> tuple[StoredObject, ...]:
    """Delete old objects of a space, and the oldest beyond a total size.

    Args:
        store: The space.
        stored_before_s: Objects that were stored last before this time are deleted: seconds since
            the epoch. Leave a day for work that goes on.
        max_total_bytes: The bytes that may stay.
        kept: Names of objects that stay in any case, and count to the total.

    Returns:
        The deleted objects, the oldest first.
    """
    names = frozenset(kept)
    total_bytes, candidates = 0, []
    for one in store.list():
        total_bytes += one.size_bytes
        if one.sha256 not in names:
            candidates.append(one)
    going: list[StoredObject] = []
    for one in sorted(candidates, key=lambda one: (one.stored_at_s, one.sha256)):
        is_old = stored_before_s is not None and one.stored_at_s < stored_before_s
        is_beyond = max_total_bytes is not None and total_bytes > max_total_bytes
        if not (is_old or is_beyond):
            break
        total_bytes -= one.size_bytes
        going.append(one)
    store.delete([one.sha256 for one in going])
    return tuple(going)


class Spool:
    """Content that was read to its end, hashed and checked: in memory, or in a temporary file.

    Attributes:
        sha256: The digest of the content, in hex.
        size_bytes: Its length.
    """

    def __init__(self, file: IO[bytes], sha256: str, size_bytes: int) -> None:
        self.file = file
        self.sha256 = sha256
        self.size_bytes = size_bytes

    @classmethod
    @contextmanager
    def of(cls, content: Content, sha256: str | None) -> Iterator[Self]:
        """Read content, of which a store has to know the digest before it stores a byte.

        Args:
            content: The content. What is larger than 4 MiB is read into a temporary file.
            sha256: The digest that it has to have, if that is known.
        """
        if sha256 is not None:
            check_digest(sha256)
        digest = hashlib.sha256()
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
            try:
                for chunk in chunks_of(content):
                    digest.update(chunk)
                    file.write(chunk)
            except OSError as problem:
                raise StoreError(
                    f"An object can't be read into a temporary file: {problem.strerror}.",
                    next_step="Make room where TMPDIR leads, by default in /tmp.",
                ) from problem
            check_content(digest.hexdigest(), sha256)
            yield cls(file, digest.hexdigest(), file.tell())

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks of 1 MiB."""
        self.file.seek(0)
        while chunk := self.file.read(CHUNK_BYTES):
            yield chunk


def chunks_of(content: Content) -> Iterable[bytes]:
    """Return content as chunks."""
    return (content,) if isinstance(content, bytes) else content


def check_content(found: str, expected: str | None) -> None:
    """Refuse content that hasn't the digest that it should have."""
    if expected is not None and found != expected:
        raise StoreError(
            f"The content has the SHA-256 {found}, and not {expected}: nothing was stored.",
            next_step="Send it again, whole and unchanged, or name it by its own digest.",
        )


def verified(chunks: Iterable[bytes], sha256: str, shown: str) -> Iterator[bytes]:
    """Yield chunks of an object, the last one only if all of them have the object's digest."""
    digest, last = hashlib.sha256(), None
    for chunk in chunks:
        if last is not None:
            yield last
        digest.update(chunk)
        last = chunk
    if digest.hexdigest() != sha256:
        raise StoreError(
            f"The object {sha256} in {shown} was altered: its content has another SHA-256.",
            next_step="Delete it, and have whoever has its content store it again.",
        )
    if last is not None:
        yield last


def join_whole(chunks: Iterable[bytes], sha256: str, max_bytes: int) -> bytes:
    """Return the chunks of an object as one, unless they are larger than is allowed."""
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise StoreError(
                f"The object {sha256} is larger than {max_bytes:,} bytes.",
                next_step="Read it in chunks, or allow more with max_bytes.",
            )
        parts.append(chunk)
    return b"".join(parts)


def missing_object(sha256: str, shown: str) -> StoreError:
    """Return the error that an object is missing."""
    return StoreError(
        f"There is no object {sha256} in {shown}.",
        next_step="See that this machine uses the same store as the one that has stored it.",
    )


def check_digest(sha256: str) -> str:
    """Return the name of an object, refusing what can't be one."""
    if isinstance(sha256, str) and _DIGEST.fullmatch(sha256):
        return sha256
    raise StoreError(
        f"{sha256!r:.80} can't be the name of an object.",
        next_step="Name it by its SHA-256, in 64 lower-case hexadecimal digits.",
    )


def check_space(space: str) -> str:
    """Return the name of a space, refusing what can't be one."""
    if len(space) <= _MAX_SPACE and _SPACE.fullmatch(space):
        return space
    raise InputError(
        f"{space!r:.80} can't be a space of objects.",
        next_step="Join names of letters, digits, dots, underscores and hyphens by /.",
    )


def object_path(root: str | PathLike[str], sha256: str) -> str:
    """Return the path of an object below the folder of its space."""
    return f"{root}/{sha256[:2]}/{sha256}"
