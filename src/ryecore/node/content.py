"""The objects and snapshots of a caller. Nothing of one caller is looked up for another.

Source: docs/design/remote.md#objects-and-pieces; decisions 68, 75 and 82.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, RLock
from typing import BinaryIO, Final

from ryecore.caches import BoundedDict
from ryecore.convert.strict import RECORDS
from ryecore.node.callers import Caller
from ryecore.node.files import (
    cost_of,
    is_older,
    list_files,
    sync_file,
    sync_file_system,
    write_new,
    write_synced,
)
from ryecore.node.partial_objects import PartialObjects, cost_of_part
from ryecore.node.problems import disk_problems, refusal
from ryecore.node.quota import Quota
from ryecore.remote.protocol.models import Missing, StoredAnswer
from ryecore.remote.protocol.pieces import Piece
from ryecore.remote.protocol.snapshots import Snapshot

__all__ = ["CallerContent", "NodeContent"]

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CHUNK_BYTES: Final = 1024 * 1024
_SYNCED_EACH: Final = 4
"""Up to so many new objects are synced each, more of them with their whole file system."""

_TOUCHED_AT_MOST_EACH_S: Final = 60


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
        found.quota.max_bytes = caller.max_bytes
        return found

    def of_fingerprint(self, fingerprint: str) -> "CallerContent":
        """Return the content of whoever has a key, also of one that is no longer allowed."""
        with self._lock:
            found = self._open.get(fingerprint)
            if found is None or not found.is_there:
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
        quota: The bytes that are kept there.
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
        self.quota = Quota(folder, max_bytes, min_free_bytes)
        self.lock = RLock()
        self._max_object_bytes = max_object_bytes
        self._objects = folder / "objects"
        self._snapshots = folder / "snapshots"
        partial = folder / "partial"
        for one in (self._objects, partial, self._snapshots):
            one.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._partial = PartialObjects(partial, self.quota)
        self._complete: BoundedDict[str, Snapshot] = BoundedDict(32)

    @property
    def is_there(self) -> bool:
        """Whether nobody has removed its folder."""
        return os.path.exists(self._partial.folder) and os.path.exists(self._snapshots)

    # Snapshots

    def take(self, snapshot: Snapshot) -> tuple[Missing, ...]:
        """Keep a snapshot, and return the objects of it that are missing.

        Raises:
            NodeProblem: An object is larger than the node takes, has another size than the
                snapshot says, or there is no room.
        """
        with self.lock, disk_problems():
            if snapshot.id in self._complete:
                self._touch(self._snapshots / snapshot.id)
                return ()
            missing = self._missing(snapshot)
            needed = {one.sha256: one.size_bytes for one in snapshot.files}
            lacking = sum(
                cost_of(needed[one.sha256]) - cost_of_part(one.have_bytes) for one in missing
            )
            path, content = self._snapshots / snapshot.id, snapshot.to_bytes()
            if path.exists():
                self._touch(path)
            else:
                self.quota.charge(cost_of(len(content)) + lacking)
                self.quota.charge(-lacking)  # counted as it arrives
                write_synced(path, content)
            if not missing:
                self._complete[snapshot.id] = snapshot
            return missing

    def snapshot(self, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot all of whose objects are here; None where one is missing."""
        known = self._complete.get(snapshot_id)
        if known is not None:
            self._touch(f"{self._snapshots}/{snapshot_id}")
            return known
        if not is_sha256(snapshot_id):
            return None
        with self.lock, disk_problems():
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
                missing.append(Missing(sha256, self._partial.length_of(sha256, size_bytes)))
            elif size != size_bytes:
                raise refusal("invalid", f"The object {sha256} has {size} bytes.")
        return tuple(missing)

    def forget_unused(
        self, unused_since_s: float, pinned: Collection[str], database_bytes: int = 0
    ) -> bool:
        """Remove what was not used since a time: snapshots, then objects that none of them names.

        Args:
            unused_since_s: The time, in seconds since the epoch.
            pinned: The snapshots that are kept, however old.
            database_bytes: What the caller's runs take of the database.

        Returns:
            Whether no snapshot and no object is left.
        """
        with self.lock:
            for path in list_files(self._snapshots):
                if path.name not in pinned and is_older(path, unused_since_s):
                    self._complete.pop(path.name, None)
                    path.unlink(missing_ok=True)
            kept = list_files(self._snapshots)
            named = {one.sha256 for path in kept for one in self._read_snapshot(path).files}
            is_empty = not kept
            for path in (*list_files(self._partial.folder), *list_files(self._objects)):
                if path.name not in named and is_older(path, unused_since_s):
                    self._partial.forget(path.name)
                    path.unlink(missing_ok=True)
                else:
                    is_empty = False
            self.quota.recount(database_bytes)
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

    def discard(self, sha256: str) -> None:
        """Remove an object that isn't what its hash says, so that it is pushed again."""
        path = Path(self.path_of(sha256))
        with self.lock, suppress(FileNotFoundError):
            self._complete.clear()
            size = path.stat().st_size
            path.unlink()
            self.quota.count(-cost_of(size))

    def store(self, pieces: Iterable[Piece]) -> StoredAnswer:
        """Store pieces of objects. A piece that doesn't continue what is here is left out.

        Raises:
            NodeProblem: A piece isn't a part of its object, or there is no room. What came before
                it is stored.
        """
        stored: dict[str, None] = {}
        partial: dict[str, int] = {}
        whole: dict[str, Path] = {}
        with self.lock, disk_problems():
            try:
                for piece in pieces:
                    if piece.sha256 in whole:
                        continue
                    have = self._store(piece, whole)
                    if have is None:
                        stored[piece.sha256] = None
                        partial.pop(piece.sha256, None)
                    else:
                        partial[piece.sha256] = have
            finally:
                self._keep(whole)
        return StoredAnswer(
            tuple(stored), tuple(Missing(sha256, have) for sha256, have in partial.items())
        )

    def put(self, content: bytes | Path | Iterator[bytes]) -> str:
        """Store a result of a run, for its caller to read, and return its SHA-256.

        Raises:
            NodeProblem: `no_room`: the caller's quota or the disk is full.
        """
        temporary, digest = self._partial.new_path(), hashlib.sha256()
        size, charged = 0, cost_of(0)
        self.quota.charge(charged)
        with disk_problems():
            try:
                with temporary.open("xb") as copy:
                    for chunk in _chunks(content):
                        size += len(chunk)
                        self.quota.charge(cost_of(size) - charged)
                        charged = cost_of(size)
                        digest.update(chunk)
                        copy.write(chunk)
                with self.lock:
                    if not self._is_kept(digest.hexdigest()):
                        charged = 0
                        self._keep({digest.hexdigest(): temporary})
            finally:
                self.quota.charge(-charged)
                temporary.unlink(missing_ok=True)
        return digest.hexdigest()

    def _store(self, piece: Piece, whole: dict[str, Path]) -> int | None:
        """Store a piece. Returns the length that is here now; None once the object is whole.

        A whole object is added to `whole`, and isn't kept yet.
        """
        sha256, size, content = piece.sha256, piece.size_bytes, piece.content
        if size > self._max_object_bytes:
            raise self._too_large(size)
        end = piece.offset + len(content)
        if not is_sha256(sha256) or not 0 <= piece.offset <= end <= size:
            raise refusal("invalid", "A piece isn't a part of its object.")
        if self._is_kept(sha256):
            return None
        have = self._partial.length_of(sha256, size)
        if piece.offset != have or (size and not content):
            return have
        if piece.offset == 0 and end == size:
            if hashlib.sha256(content).hexdigest() != sha256:
                return 0
            self.quota.charge(cost_of(size))
            temporary = self._partial.new_path()
            try:
                write_new(temporary, content, is_synced=False)
            except BaseException:
                self.quota.charge(-cost_of(size))
                raise
            whole[sha256] = temporary
            return None
        self.quota.charge(cost_of(end) - cost_of_part(have))
        now = self._partial.append(sha256, have, size, content)
        if now is None:
            whole[sha256] = self._partial.folder / sha256
        return now

    def _is_kept(self, sha256: str) -> bool:
        path = self.path_of(sha256)
        if not os.path.exists(path):
            return False
        self._touch(path)
        return True

    def _keep(self, whole: Mapping[str, Path]) -> None:
        """Give files that have their hash their places among the objects, once they are synced.

        A rename that is lost with the power loses an object, which is pushed again; content is
        never lost behind a rename.
        """
        try:
            if len(whole) > _SYNCED_EACH:
                sync_file_system(self._partial.folder)
            else:
                for path in whole.values():
                    sync_file(path)
        except OSError:
            for path in whole.values():
                self.quota.charge(-cost_of(path.stat().st_size))
                path.unlink()
            raise
        for sha256, path in whole.items():
            path.chmod(0o400)
            place = Path(self.path_of(sha256))
            try:
                path.rename(place)
            except FileNotFoundError:
                place.parent.mkdir(0o700)
                path.rename(place)

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


def _chunks(content: bytes | Path | Iterator[bytes]) -> Iterator[bytes]:
    if not isinstance(content, Path):
        yield from (content,) if isinstance(content, bytes) else content
        return
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
