"""The objects and snapshots of a caller. Nothing of one caller is looked up for another.

Source: docs/design/remote.md#objects-and-pieces; decisions 68, 75 and 82.
"""

import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import BinaryIO, Final, Protocol

from ryecore.caches import BoundedDict
from ryecore.convert.strict import RECORDS
from ryecore.node.callers import Caller
from ryecore.node.problems import refusal
from ryecore.remote.protocol.models import Missing, StoredAnswer
from ryecore.remote.protocol.snapshots import Snapshot

__all__ = ["CallerContent", "NodeContent", "Piece", "is_sha256"]

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CHUNK_BYTES: Final = 1024 * 1024
_MAX_HASHED: Final = 64
_TOUCHED_AT_MOST_EACH_S: Final = 60
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Piece(Protocol):
    """A part of an object, as it arrives."""

    @property
    def sha256(self) -> str: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def content(self) -> memoryview | bytes: ...  # noqa: D102


def is_sha256(text: str) -> bool:
    """Return whether a text is a SHA-256 in lower-case hexadecimal digits."""
    return _SHA256.fullmatch(text) is not None


class NodeContent:
    """The content of all callers, below `data/` of the node's folder.

    Args:
        folder: The node's folder.
        max_object_bytes: The largest object.
        min_free_bytes: How much of the disk stays free.
    """

    def __init__(self, folder: Path, *, max_object_bytes: int, min_free_bytes: int) -> None:
        self.folder = folder / "data"
        self._max_object_bytes = max_object_bytes
        self._min_free_bytes = min_free_bytes
        self._open: dict[str, CallerContent] = {}
        self._lock = Lock()

    def of(self, caller: Caller) -> "CallerContent":
        """Return the content of a caller, with the caller's present quota."""
        found = self.of_fingerprint(caller.fingerprint)
        found.max_bytes = caller.max_bytes
        return found

    def of_fingerprint(self, fingerprint: str) -> "CallerContent":
        """Return the content of whoever has a key, also of one that is no longer allowed."""
        with self._lock:
            found = self._open.get(fingerprint)
            if found is None:
                found = self._open[fingerprint] = CallerContent(
                    self.folder / fingerprint,
                    max_object_bytes=self._max_object_bytes,
                    min_free_bytes=self._min_free_bytes,
                )
            return found

    def close(self, fingerprint: str) -> None:
        """Forget a content whose folder is about to be removed."""
        with self._lock:
            self._open.pop(fingerprint, None)


class CallerContent:
    """The objects and snapshots of one caller. Its methods wait for the disk; any thread may call.

    Attributes:
        folder: Its folder, with `objects`, `partial`, `snapshots` and `spaces`.
        max_bytes: How many bytes may be used.
        lock: Held by each change; upkeep holds it while it removes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = 2**60,
        max_object_bytes: int = 2**50,
        min_free_bytes: int = 0,
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.lock = RLock()
        self._max_object_bytes = max_object_bytes
        self._min_free_bytes = min_free_bytes
        self._objects = folder / "objects"
        self._partial = folder / "partial"
        self._snapshots = folder / "snapshots"
        for one in (self._objects, self._partial, self._snapshots):
            one.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._used_bytes: int | None = None
        self._complete: BoundedDict[str, Snapshot] = BoundedDict(32)
        # The hash of each partial object so far, which would else be read again for each piece.
        self._hashes: BoundedDict[str, tuple[int, hashlib._Hash]] = BoundedDict(_MAX_HASHED)

    @property
    def used_bytes(self) -> int:
        """The bytes of all that is kept for the caller, spaces included."""
        if self._used_bytes is None:
            with self.lock:
                if self._used_bytes is None:
                    self._used_bytes = _size_of_tree(self.folder)
        return self._used_bytes

    def charge(self, size_bytes: int) -> None:
        """Count bytes that are about to be written, or were removed, where negative.

        Raises:
            NodeProblem: `no_room`: the caller's quota or the disk is full.
        """
        used = self.used_bytes
        if size_bytes > 0:
            if used + size_bytes > self.max_bytes:
                raise refusal(
                    "no_room",
                    f"Your quota of {self.max_bytes:,} bytes is used up.",
                    detail=f"{used:,} bytes are kept, and {size_bytes:,} more are needed.",
                    next_step="Push less, or ask the node's operator for a larger quota.",
                )
            room = os.statvfs(self.folder)
            if room.f_bavail * room.f_frsize - size_bytes < self._min_free_bytes:
                raise _disk_full()
        with self.lock:
            self._used_bytes = self.used_bytes + size_bytes

    # Snapshots

    def take(self, snapshot: Snapshot) -> tuple[Missing, ...]:
        """Keep a snapshot, and return the objects of it that are missing.

        Raises:
            NodeProblem: An object is larger than the node takes, has another size than the
                snapshot says, or there is no room.
        """
        with self.lock, _disk_problems():
            if snapshot.id in self._complete:
                self._touch(self._snapshots / snapshot.id)
                return ()
            missing = self._missing(snapshot)
            needed = {one.sha256: one.size_bytes for one in snapshot.files}
            lacking = sum(needed[one.sha256] - one.have_bytes for one in missing)
            path, content = self._snapshots / snapshot.id, snapshot.to_bytes()
            if path.exists():
                self._touch(path)
            else:
                self.charge(len(content) + lacking)
                self.charge(-lacking)  # counted as it arrives
                _write(path, content)
            if not missing:
                self._complete[snapshot.id] = snapshot
            return missing

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot all of whose objects are here; None where one is missing."""
        known = self._complete.get(snapshot_id)
        if known is not None:
            self._touch(self._snapshots / snapshot_id)
            return known
        if not is_sha256(snapshot_id):
            return None
        with self.lock, _disk_problems():
            found = self._read_snapshot(self._snapshots / snapshot_id)
            if found.id != snapshot_id or self._missing(found):
                return None
            self._touch(self._snapshots / snapshot_id)
            self._complete[snapshot_id] = found
            return found

    def _read_snapshot(self, path: Path) -> Snapshot:
        """Read a snapshot's file; a missing or broken one is read as empty."""
        try:
            return RECORDS.read(json.loads(path.read_bytes()), Snapshot)
        except (FileNotFoundError, ValueError):
            return Snapshot(())

    def _missing(self, snapshot: Snapshot) -> tuple[Missing, ...]:
        missing: list[Missing] = []
        for sha256, size_bytes in {one.sha256: one.size_bytes for one in snapshot.files}.items():
            size = self.size_of(sha256)
            if size is None:
                if size_bytes > self._max_object_bytes:
                    raise self._too_large(size_bytes)
                missing.append(Missing(sha256, self._partial_bytes(sha256)))
            elif size != size_bytes:
                raise refusal("invalid", f"The object {sha256} has {size} bytes.")
        return tuple(missing)

    def forget_unused(self, unused_since_s: float, pinned: Collection[str]) -> bool:
        """Remove what was not used since a time: snapshots, then objects that none of them names.

        Args:
            unused_since_s: The time, in seconds since the epoch.
            pinned: The snapshots that are kept, however old.

        Returns:
            Whether no snapshot and no object is left.
        """
        with self.lock:
            for path in _files_in(self._snapshots):
                if path.name not in pinned and _is_older(path, unused_since_s):
                    self._complete.pop(path.name, None)
                    path.unlink(missing_ok=True)
            kept = _files_in(self._snapshots)
            named = {one.sha256 for path in kept for one in self._read_snapshot(path).files}
            is_empty = not kept
            for path in (*_files_in(self._partial), *_files_in(self._objects)):
                if path.name not in named and _is_older(path, unused_since_s):
                    self._hashes.pop(path.name, None)
                    path.unlink(missing_ok=True)
                else:
                    is_empty = False
            self._used_bytes = _size_of_tree(self.folder)
            return is_empty

    # Objects

    def size_of(self, sha256: str) -> int | None:
        """Return the length of an object; None if it isn't here."""
        try:
            return os.stat(self.path_of(sha256)).st_size
        except FileNotFoundError:
            return None

    def path_of(self, sha256: str) -> str:
        """Return the path of an object, which nobody may write."""
        if not is_sha256(sha256):
            raise refusal("invalid", "That isn't a SHA-256 in hexadecimal digits.")
        return f"{self._objects}/{sha256[:2]}/{sha256}"

    def open(self, sha256: str) -> BinaryIO:
        """Open an object for reading.

        Raises:
            NodeProblem: `not_found`: this caller has no such object.
        """
        try:
            return open(self.path_of(sha256), "rb")
        except FileNotFoundError:
            raise refusal("not_found", "You have no such object here.") from None

    def store(self, pieces: Iterable[Piece]) -> StoredAnswer:
        """Store pieces of objects. A piece that doesn't continue what is here is left out.

        Raises:
            NodeProblem: A piece isn't a part of its object, or there is no room. What came before
                it is stored.
        """
        stored: dict[str, None] = {}
        partial: dict[str, int] = {}
        with self.lock, _disk_problems():
            for piece in pieces:
                have = self._store(piece)
                if have is None:
                    stored[piece.sha256] = None
                    partial.pop(piece.sha256, None)
                else:
                    partial[piece.sha256] = have
        return StoredAnswer(
            tuple(stored), tuple(Missing(sha256, have) for sha256, have in partial.items())
        )

    def put(self, content: bytes | Path) -> str:
        """Store a result of a run, for its caller to read, and return its SHA-256.

        Raises:
            NodeProblem: `no_room`: the caller's quota or the disk is full.
        """
        with _disk_problems():
            if isinstance(content, bytes):
                sha256 = hashlib.sha256(content).hexdigest()
                with self.lock:
                    if self._is_kept(sha256):
                        return sha256
                    self.charge(len(content))
                    self._keep_bytes(sha256, content)
                return sha256
            return self._put_file(content)

    def _put_file(self, source: Path) -> str:
        temporary = self._partial / f"put.{os.urandom(8).hex()}"
        digest, size = hashlib.sha256(), 0
        try:
            with source.open("rb") as file, temporary.open("xb") as copy:
                while chunk := file.read(_CHUNK_BYTES):
                    self.charge(len(chunk))
                    size += len(chunk)
                    digest.update(chunk)
                    copy.write(chunk)
                copy.flush()
                os.fsync(copy.fileno())
            sha256 = digest.hexdigest()
            with self.lock:
                if not self._is_kept(sha256):
                    self._keep_file(sha256, temporary)
                    return sha256
        except BaseException:
            self.charge(-size)
            temporary.unlink(missing_ok=True)
            raise
        self.charge(-size)
        temporary.unlink(missing_ok=True)
        return sha256

    def _store(self, piece: Piece) -> int | None:
        """Store a piece. Returns the length that is here now; None once the object is whole."""
        sha256, size, content = piece.sha256, piece.size_bytes, piece.content
        if size > self._max_object_bytes:
            raise self._too_large(size)
        end = piece.offset + len(content)
        if not is_sha256(sha256) or not 0 <= piece.offset <= end <= size:
            raise refusal("invalid", "A piece isn't a part of its object.")
        if self._is_kept(sha256):
            return None
        have = self._partial_bytes(sha256)
        if piece.offset != have:
            return have
        if piece.offset == 0 and end == size:
            if hashlib.sha256(content).hexdigest() != sha256:
                return 0
            self.charge(size)
            self._keep_bytes(sha256, content)
            return None
        self.charge(len(content))
        return self._append(sha256, have, size, content)

    def _append(self, sha256: str, have: int, size: int, content: memoryview | bytes) -> int | None:
        path = self._partial / sha256
        digest = self._hash_so_far(sha256, have)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                _write_at(descriptor, content, have)
            except OSError:
                self._hashes.pop(sha256, None)
                os.ftruncate(descriptor, have)
                self.charge(-len(content))
                raise
            digest.update(content)
            have += len(content)
            self._hashes[sha256] = (have, digest)
            if have < size:
                return have
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._hashes.pop(sha256, None)
        if digest.hexdigest() != sha256:
            path.unlink()
            self.charge(-size)
            return 0
        self._keep_file(sha256, path)
        return None

    def _hash_so_far(self, sha256: str, have: int) -> "hashlib._Hash":
        known = self._hashes.get(sha256)
        if known is not None and known[0] == have:
            return known[1]
        digest = hashlib.sha256()
        if have:
            with (self._partial / sha256).open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        return digest

    def _partial_bytes(self, sha256: str) -> int:
        try:
            return os.stat(self._partial / sha256).st_size
        except FileNotFoundError:
            return 0

    def _is_kept(self, sha256: str) -> bool:
        path = self.path_of(sha256)
        if not os.path.exists(path):
            return False
        self._touch(path)
        return True

    def _keep_bytes(self, sha256: str, content: memoryview | bytes) -> None:
        temporary = self._partial / f"put.{os.urandom(8).hex()}"
        try:
            _write(temporary, content)
            self._keep_file(sha256, temporary)
        except BaseException:
            self.charge(-len(content))
            temporary.unlink(missing_ok=True)
            raise

    def _keep_file(self, sha256: str, temporary: Path) -> None:
        """Give a file that is synced its place among the objects."""
        path = self.path_of(sha256)
        os.chmod(temporary, 0o400)
        try:
            os.rename(temporary, path)  # noqa: PTH104
        except FileNotFoundError:
            folder = os.path.dirname(path)
            os.mkdir(folder, 0o700)  # noqa: PTH102
            _sync_folder(str(self._objects))
            os.rename(temporary, path)  # noqa: PTH104
        _sync_folder(os.path.dirname(path))

    def _touch(self, path: str | Path) -> None:
        """Note that something was used, for the upkeep."""
        with suppress(OSError):
            if time.time() - os.stat(path).st_mtime > _TOUCHED_AT_MOST_EACH_S:
                os.utime(path)

    def _too_large(self, size_bytes: int) -> Exception:
        return refusal(
            "too_large",
            f"An object of {size_bytes:,} bytes is larger than this node takes.",
            detail=f"It takes {self._max_object_bytes:,} bytes.",
            next_step="Leave the file out of push.include, or ask the node's operator.",
        )


def _write(path: Path, content: memoryview | bytes) -> None:
    """Write a new file and sync it, by way of a temporary one where others may see it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            _write_at(descriptor, content, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)  # noqa: PTH104
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _write_at(descriptor: int, content: memoryview | bytes, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files_in(folder: Path) -> Sequence[Path]:
    return [Path(path, name) for path, _, names in os.walk(folder) for name in names]


def _is_older(path: Path, time_s: float) -> bool:
    try:
        return path.stat().st_mtime < time_s
    except FileNotFoundError:
        return False


def _size_of_tree(folder: Path) -> int:
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(path, name)).st_size
    return size


def _disk_full() -> Exception:
    return refusal(
        "no_room",
        "The node's disk is full.",
        next_step="Tell the node's operator; repeat the call when there is room.",
    )


@contextmanager
def _disk_problems() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno in _FULL:
            raise _disk_full() from problem
        raise
