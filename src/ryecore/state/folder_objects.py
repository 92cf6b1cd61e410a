"""Objects in a folder, of one machine or of a file system that machines share."""

import hashlib
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Self

from ryecore.errors import StoreError
from ryecore.lillux.digests import ContentStore
from ryecore.state.object_store import (
    CHUNK_BYTES,
    MAX_WHOLE_BYTES,
    Content,
    StoredObject,
    check_content,
    check_digest,
    check_space,
    chunks_of,
    join_whole,
    missing_object,
    object_path,
    verified,
)
from ryecore.state.refusals import advice

__all__ = ["FolderObjects"]

_LOOK: Final = "See that the folder can be written, and the disk has room."
_SHARDS: Final = frozenset(f"{number:02x}" for number in range(256))


class FolderObjects:
    """Objects in a folder, as files `ab/HEX` that nobody writes again.

    Args:
        root: The folder; it is made with the first object.
        durable: Whether a stored object survives the loss of power.
    """

    def __init__(self, root: str | PathLike[str], *, durable: bool = False) -> None:
        self.root = fspath(root)
        self._durable = durable
        self._opened: ContentStore | None = None

    @property
    def shown(self) -> str:
        """The folder."""
        return self.root

    def below(self, space: str) -> Self:
        """Return the store of a space, a folder below."""
        # No name of a space is one of the store's own folders, as none begins with a =.
        folders = "/".join(f"={name}" for name in check_space(space).split("/"))
        return type(self)(f"{self.root}/{folders}", durable=self._durable)

    def put(self, content: Content, *, sha256: str | None = None) -> str:
        """Store content; see `ObjectStore.put`."""
        if sha256 is not None:
            check_digest(sha256)
        with _failing(self.root):
            if isinstance(content, bytes):
                check_content(hashlib.sha256(content).hexdigest(), sha256)
                stored = self._store().put(content)
                os.utime(object_path(self.root, stored))
                return stored
            return self._put_chunks(content, sha256)

    def get(self, sha256: str, *, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
        """Return the content of an object; see `ObjectStore.get`."""
        return join_whole(self.read(sha256), sha256, max_bytes)

    def read(self, sha256: str) -> Iterator[bytes]:
        """Yield the content of an object in chunks; see `ObjectStore.read`."""
        return verified(self._chunks(check_digest(sha256)), sha256, self.root)

    def missing(self, digests: Collection[str]) -> set[str]:
        """Return the names that no object has here."""
        paths = {one: object_path(self.root, check_digest(one)) for one in digests}
        return {one for one, path in paths.items() if not os.path.isfile(path)}

    def list(self) -> Iterator[StoredObject]:
        """Yield the objects of this space."""
        with _failing(self.root):
            for shard in sorted(_SHARDS.intersection(_names_in(self.root))):
                with os.scandir(f"{self.root}/{shard}") as entries:
                    for one in entries:
                        with suppress(FileNotFoundError):  # deleted meanwhile
                            found = one.stat(follow_symlinks=False)
                            yield StoredObject(one.name, found.st_size, found.st_mtime)

    def delete(self, digests: Collection[str]) -> None:
        """Delete objects."""
        with _failing(self.root):
            for one in digests:
                with suppress(FileNotFoundError, NotADirectoryError):
                    Path(object_path(self.root, check_digest(one))).unlink()

    def close(self) -> None:
        """Do nothing: a folder has no connection."""

    def _store(self) -> ContentStore:
        if self._opened is None:
            self._opened = ContentStore(self.root, durable=self._durable)
        return self._opened

    def _put_chunks(self, content: Content, sha256: str | None) -> str:
        """Write chunks beside the objects, and give the file its place once it is whole."""
        self._store()  # which makes the folders
        temporary = Path(self.root, "tmp", f"blob-{os.getpid()}-{secrets.token_hex(8)}")
        digest = hashlib.sha256()
        try:
            with open(temporary, "xb", opener=_open_private) as file:
                for chunk in chunks_of(content):
                    digest.update(chunk)
                    file.write(chunk)
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            found = digest.hexdigest()
            check_content(found, sha256)
            place = Path(object_path(self.root, found))
            place.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
        if self._durable:
            for folder in (place.parent, place.parent.parent):
                _sync(folder)
        return found

    def _chunks(self, sha256: str) -> Iterator[bytes]:
        try:
            with (
                _failing(self.root),
                open(object_path(self.root, sha256), "rb", buffering=0) as file,
            ):
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except FileNotFoundError:
            raise missing_object(sha256, self.root) from None


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o444)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _failing(root: str) -> Iterator[None]:
    try:
        yield
    except StoreError as problem:
        problem.next_step = problem.next_step or _LOOK
        raise
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise StoreError(
            f"The objects in {root} can't be used: {problem.strerror or problem}.",
            next_step=advice(problem),
        ) from problem
