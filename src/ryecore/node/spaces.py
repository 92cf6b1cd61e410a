"""Spaces: a snapshot's files in a fresh folder, and what runs change in it.

Files are copied from the caller's objects, never linked, and never written through a link. State
and caches of ryecore are made on the node; a snapshot that brings some is refused.

Source: docs/design/remote.md#on-the-node; decisions 66 to 68 and 74.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from ryecore.frozen import frozen
from ryecore.items.refs import EXPORT_FOLDER, KIND_FOLDERS
from ryecore.items.trust import TRUSTED_KEYS_PATH
from ryecore.lillux.digests import sha256_file, stat_beside
from ryecore.node.content import CallerContent
from ryecore.node.files import cost_of, remove_tree
from ryecore.node.problems import refusal
from ryecore.remote.protocol.reports import Change
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile, check_snapshot

__all__ = [
    "FileStats",
    "RunSpace",
    "make_space",
    "remove_left_spaces",
    "remove_space",
    "reopen_space",
]

_log: Final = logging.getLogger("ryecore.node")
_COPY_BYTES: Final = 1024 * 1024
_OWN: Final = (".ai/state", ".ai/cache")
"""Folders of a project, and of user space, that only the node's ryecore writes."""

_KEY_FILES: Final = f".ai/{KIND_FOLDERS['config']}/{TRUSTED_KEYS_PATH}/"
_SIGNING_KEYS: Final = f".ai/{KIND_FOLDERS['config']}/keys/signing"
_EXPORTS: Final = f".ai/{KIND_FOLDERS['knowledge']}/{EXPORT_FOLDER}"
_NEVER_COLLECTED: Final = (".git", _EXPORTS, *_OWN)
_SPACES: Final = ("project", "user")
_MAX_NUMBER: Final = 1_000_000


@frozen
class FileStats:
    """The stats of a file, which tell whether it was touched."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    executable: bool

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStats":
        """Return what counts of a file's stats."""
        is_executable = bool(status.st_mode & stat.S_IXUSR)
        return cls(
            status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, is_executable
        )


@frozen(slots=False)
class RunSpace:
    """A snapshot as files.

    Attributes:
        folder: The folder of its own that holds `project` and `user`.
        snapshot: The snapshot.
        size_bytes: What the snapshot's files take of the quota.
    """

    folder: Path
    snapshot: Snapshot
    size_bytes: int
    _fingerprint: str

    @property
    def project(self) -> Path:
        """The project's folder."""
        return self.folder / "project"

    @property
    def user(self) -> Path:
        """The folder that holds the `.ai` of user space."""
        return self.folder / "user"

    @property
    def is_fresh(self) -> bool:
        """Whether this process has made it."""
        return bool(self._fingerprint)

    def is_unchanged(self) -> bool:
        """Return whether nothing but ryecore's own state has been touched since it was made."""
        try:
            return _fingerprint(self.folder) == self._fingerprint
        except OSError:
            return False

    def stats(self) -> Mapping[str, FileStats]:
        """Return the stats of all project files; none for a space that may have been changed."""
        if not self.is_fresh:
            return {}
        return {path: stats for path, stats in _walk(self.project) if stats is not None}

    def changes(
        self, before: Mapping[str, FileStats], content: CallerContent
    ) -> tuple[Change, ...]:
        """Store each project file that was added or changed, and return all changes by path.

        What has the same stats as before counts as unchanged, which spares reading it. Links and
        special files are left out, as are `.git`, exports of threads, and ryecore's own state.

        Raises:
            OSError: A file can't be read.
            NodeProblem: There is no room for them.
        """
        base = {one.path: one for one in self.snapshot.files if one.space == "project"}
        found: set[str] = set()
        changes: list[Change] = []
        for path, stats in _walk(self.project):
            if stats is None:
                found.add(path)  # in the place of a file stands something that doesn't travel
                continue
            found.add(path)
            if before.get(path) == stats:
                continue
            pushed = base.get(path)
            if pushed is None or pushed.size_bytes != stats.size_bytes:
                content.quota.charge(stats.size_bytes)  # refused before a huge one is read
                content.quota.count(-stats.size_bytes)  # counted as it is stored
            digest = sha256_file(self.project / path)
            if pushed and (pushed.sha256, pushed.executable) == (digest, stats.executable):
                continue
            digest = content.put(self.project / path)
            changes.append(
                Change(
                    path,
                    digest,
                    stats.size_bytes,
                    stats.executable,
                    None if pushed is None else pushed.sha256,
                )
            )
        changes += [
            Change(path, None, 0, False, pushed.sha256)
            for path, pushed in base.items()
            if path not in found and not _is_own(path, _NEVER_COLLECTED)
        ]
        return tuple(sorted(changes, key=lambda one: one.path))


def make_space(
    snapshot: Snapshot, content: CallerContent, *, trust: Literal["caller", "operator"]
) -> RunSpace:
    """Make a space of a snapshot in a folder of its own.

    Args:
        snapshot: The snapshot.
        content: The caller's objects, each of which is checked while it is copied.
        trust: With `operator`, the key files of the snapshot's user space are left out, since
            those vouch for themselves.

    Raises:
        NodeProblem: A file of the snapshot may not be part of a space, an object is missing or
            isn't what its hash says, or there is no room.
        OSError: The files can't be written.
    """
    why = check_snapshot(snapshot) or _why_refused(snapshot)
    if why is not None:
        raise refusal("invalid", why, next_step="Push the project again.")
    size_bytes = _size_of(snapshot)
    content.quota.charge(size_bytes)
    folder = _new_folder(content.folder / "spaces", snapshot.id)
    try:
        for name in _SPACES:
            (folder / name).mkdir(0o700)
        made: set[str] = set()
        for one in snapshot.files:
            if trust == "operator" and one.space == "user" and one.path.startswith(_KEY_FILES):
                continue
            _copy(folder / one.space, one, content, made)
        _make_folders(folder / "user" / ".ai")
        return RunSpace(folder, snapshot, size_bytes, _fingerprint(folder))
    except BaseException:
        _remove(folder)
        content.quota.charge(-size_bytes)
        raise


def reopen_space(content: CallerContent, snapshot: Snapshot, name: str) -> RunSpace | None:
    """Return a space that an earlier process made; None where it is gone. It counts as changed."""
    folder = content.folder / "spaces" / name
    if not all((folder / one).is_dir() for one in _SPACES):
        return None
    return RunSpace(folder, snapshot, _size_of(snapshot), "")


def remove_left_spaces(data: Path, used: Collection[tuple[str, str]]) -> None:
    """Remove the spaces of an earlier process, but those that runs use: caller and name."""
    for folder in data.glob("*/spaces/*"):
        if (folder.parent.parent.name, folder.name) not in used:
            _remove(folder)


def remove_space(space: RunSpace, content: CallerContent) -> None:
    """Remove a space, also where its runs have taken away the permission."""
    _remove(space.folder)
    content.quota.charge(-space.size_bytes)


def _remove(folder: Path) -> None:
    try:
        remove_tree(folder)
    except FileNotFoundError:
        pass  # a tool has removed it
    except OSError as problem:
        _log.warning("A space can't be removed: %s", problem)


def _size_of(snapshot: Snapshot) -> int:
    return sum(cost_of(one.size_bytes) for one in snapshot.files)


def _why_refused(snapshot: Snapshot) -> str | None:
    for one in snapshot.files:
        if _is_own(one.path, _OWN):
            return f"{one.path!r} is ryecore's own state, which doesn't travel."
        if _is_own(one.path, (_SIGNING_KEYS,)):
            return f"{one.path!r} may be a private key, which doesn't travel."
    return None


def _is_own(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _new_folder(spaces: Path, snapshot_id: str) -> Path:
    spaces.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(_MAX_NUMBER):
        folder = spaces / f"{snapshot_id}-{number}"
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{spaces} has a million spaces of one snapshot")


def _copy(root: Path, file: SnapshotFile, content: CallerContent, made: set[str]) -> None:
    """Copy an object to a new file. All folders above it were made here, so none is a link."""
    path = root / file.path
    parent = os.path.dirname(file.path)
    if parent and (place := f"{file.space}/{parent}") not in made:
        _make_folders(root / parent)
        made.add(place)
    mode = 0o700 if file.executable else 0o600
    digest, size = hashlib.sha256(), 0
    if content.size_of(file.sha256) is None:
        content.discard(file.sha256)  # so that the snapshot counts as incomplete
        raise refusal(
            "failed",
            "An object of the snapshot is gone from the node.",
            detail=f"{file.sha256}, for {file.path!r}",
            next_step="Repeat the call, which pushes it again.",
        )
    with content.open(file.sha256) as source:
        target = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode
        )
        with open(target, "wb", buffering=0) as written:
            while piece := source.read(_COPY_BYTES):
                digest.update(piece)
                size += len(piece)
                written.write(piece)
    if digest.hexdigest() != file.sha256 or size != file.size_bytes:
        _log.error("The object %s isn't what its hash says, and is removed.", file.sha256)
        content.discard(file.sha256)
        raise refusal(
            "failed",
            "An object on the node wasn't what its hash says, and was removed.",
            detail=f"{file.sha256}, for {file.path!r}",
            next_step="Repeat the call, which pushes it again; and tell the node's operator that "
            "its disk may be damaged.",
        )


def _make_folders(folder: Path) -> None:
    os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103 - pathlib ignores the parents' mode


def _walk(root: Path) -> Iterator[tuple[str, FileStats | None]]:
    """Yield each file below a folder; None for what is neither a file nor a folder.

    Nothing is below what a run has put in the place of the folder, such as a link.
    """
    is_folder = not root.is_symlink() and root.is_dir()
    waiting = [""] if is_folder else []
    while waiting:
        below = waiting.pop()
        with os.scandir(root / below) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                if path in _NEVER_COLLECTED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif entry.is_file(follow_symlinks=False):
                    yield path, FileStats.of(entry.stat(follow_symlinks=False))
                else:
                    yield path, None


def _fingerprint(folder: Path) -> str:
    """Return a fingerprint of the stats of all files but ryecore's own state and caches."""
    return "".join(stat_beside(f"{folder}/{space}", _OWN) for space in _SPACES)
