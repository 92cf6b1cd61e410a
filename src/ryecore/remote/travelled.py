"""The folders of projects that travelled to a worker: made, held while they are used, and removed.

Several workers of a machine may share them. A process that uses one holds a lock on it, which ends
with the process.

Source: docs/design/queues.md#a-project-that-travels.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ryecore.frozen import frozen
from ryecore.remote.travelling import make_project
from ryecore.state.object_store import ObjectStore

__all__ = ["TRAVELLED", "HeldProject", "prune_projects", "take_project"]

TRAVELLED: Final = "cache/travelled"
"""Where projects that travel become folders, in the `.ai` of a worker's user space."""

MAX_UNUSED_S: Final = 7 * 86_400.0
"""How long a folder stays that nobody uses, in seconds."""

MAX_TRAVELLED_BYTES: Final = 10 * 2**30
"""The size of all folders, beyond which those that were used longest ago are removed."""

_SNAPSHOT: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LEFT: Final = (".making-", ".removing-")
_LEFT_S: Final = 86_400.0
"""How old what a killed process has left is at least when it is removed, in seconds."""


class HeldProject:
    """The folder of a project that travelled, which stays until it is closed.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def close(self) -> None:
        """Let it be removed, once it is old or there is too much."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        with suppress(OSError):
            os.utime(descriptor)  # when it was used last
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked may hold it open
        os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def take_project(objects: ObjectStore, snapshot_id: str, folder: Path) -> HeldProject:
    """Return the folder of a snapshot's project below `folder`, made if it isn't there.

    Where it is made, others that are old, or too much, are removed.

    Raises:
        StoreError: An object is missing or was altered, or the snapshot isn't one.
        OSError: The files can't be written.
    """
    path = folder / snapshot_id
    while True:
        held = _hold(path)
        if held is not None:
            return held
        make_project(objects, snapshot_id, folder)
        held = _hold(path)
        if held is not None:  # else another process has removed it meanwhile
            with suppress(OSError):  # the run has its project
                prune_projects(folder)
            return held


def prune_projects(
    folder: Path,
    *,
    max_unused_s: float = MAX_UNUSED_S,
    max_total_bytes: int = MAX_TRAVELLED_BYTES,
) -> tuple[str, ...]:
    """Remove folders that nobody holds: old ones, and the oldest beyond a total size.

    Args:
        folder: What holds them. Whatever else is in it stays.
        max_unused_s: The age of the last use at which one is removed, in seconds.
        max_total_bytes: The bytes of all that may stay; those that are held count.

    Returns:
        The snapshots whose folders were removed, the oldest first.
    """
    now_s = time.time()
    for left in _left(folder):
        if now_s - left.stat().st_mtime > _LEFT_S:
            shutil.rmtree(left, ignore_errors=True)
    found = sorted(_projects(folder), key=lambda one: one.used_at_s)
    total_bytes = sum(one.size_bytes for one in found)
    gone: list[str] = []
    for one in found:
        is_old = now_s - one.used_at_s > max_unused_s
        if (is_old or total_bytes > max_total_bytes) and _remove(one.path):
            total_bytes -= one.size_bytes
            gone.append(one.path.name)
    return tuple(gone)


@frozen
class _Project:
    """A folder with the time of its last use, and the size of its files."""

    path: Path
    used_at_s: float
    size_bytes: int


def _projects(folder: Path) -> Iterator[_Project]:
    for path in folder.iterdir():
        if _SNAPSHOT.fullmatch(path.name):
            with suppress(FileNotFoundError):  # another process removes it
                used_at_s = path.lstat().st_mtime
                yield _Project(path, used_at_s, _size_bytes(path))


def _left(folder: Path) -> tuple[Path, ...]:
    return tuple(one for one in folder.iterdir() if one.name.startswith(_LEFT))


def _size_bytes(folder: Path) -> int:
    """Return the size of all files below a folder, without those that links lead to."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a tool has removed it meanwhile
                total += os.lstat(os.path.join(root, name)).st_size
    return total


def _hold(path: Path) -> HeldProject | None:
    """Hold a folder; None where there is none, or it is just being removed."""
    descriptor = _open(path)
    if descriptor is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                os.utime(descriptor)
                return HeldProject(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove(path: Path) -> bool:
    """Remove a folder, unless somebody holds it."""
    descriptor = _open(path)
    if descriptor is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        grave = Path(tempfile.mkdtemp(prefix=".removing-", dir=path.parent))
        path.rename(grave / path.name)  # nobody finds it from here on
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(descriptor)
    shutil.rmtree(grave, ignore_errors=True)
    return True


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
