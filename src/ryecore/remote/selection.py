"""The walk that finds what travels to a node.

Source: docs/design/remote.md#at-home; decision 66.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from attrs import astuple

from ryecore.errors import InputError, LinkLeavesSpace
from ryecore.frozen import frozen
from ryecore.items.files import leads_out
from ryecore.items.refs import KIND_FOLDERS
from ryecore.remote.protocol.snapshots import MAX_FILES
from ryecore.remote.rules import Pattern, why_it_stays

__all__ = [
    "FileIdentity",
    "LeftOut",
    "SelectedFile",
    "Selection",
    "select_files",
]

SpaceName = Literal["project", "user"]
_MAX_DEPTH: Final = 64


@frozen
class FileIdentity:
    """What a file's stat says: a file with the same identity has the same content."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileIdentity":
        """Return the identity that a stat has."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


@frozen
class SelectedFile:
    """A file that travels, by its path.

    Attributes:
        space: The space that it belongs to.
        path: Its path in a snapshot.
        source: The file here, all links followed.
        identity: Its stat.
        executable: Whether its owner may execute it.
    """

    space: SpaceName
    path: str
    source: str
    identity: FileIdentity
    executable: bool


@frozen
class LeftOut:
    """A file or folder that doesn't travel, and why, as the end of a sentence."""

    space: SpaceName
    path: str
    reason: str


@frozen(slots=False)
class Selection:
    """What travels by its path, in the order of a snapshot, and what doesn't.

    Attributes:
        files: The files that travel.
        left_out: What lies among them and doesn't.
        unmatched: The patterns of `push.include` that no file matches.
        folders: The folders that were looked through, each with its stat; None where it is missing.
        has_links: Whether links were met, so that the files and folders here don't tell all.
    """

    files: tuple[SelectedFile, ...]
    left_out: tuple[LeftOut, ...]
    unmatched: tuple[str, ...]
    folders: tuple[tuple[str, FileIdentity | None], ...] = ()
    has_links: bool = False

    def is_current(self) -> bool:
        """Return whether a new walk would find the same, as far as stats tell."""
        return not self.has_links and all(_stat_of(path) == stat for path, stat in self._stats)

    @cached_property
    def _stats(self) -> Sequence[tuple[str, tuple[int, ...] | None]]:
        """What counts of the stat of each folder and file, folders first."""
        found = [*self.folders, *((one.source, one.identity) for one in self.files)]
        return [(path, None if one is None else astuple(one)) for path, one in found]


def _identity_of(path: str) -> FileIdentity | None:
    found = _stat_of(path)
    return None if found is None else FileIdentity(*found)


def _stat_of(path: str) -> tuple[int, ...] | None:
    """Return the fields of a path's `FileIdentity`; None where it is missing."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (
        found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns,
    )  # fmt: skip


def select_files(
    project: Path,
    user: Path,
    include: Sequence[str] = (),
    *,
    check: Callable[[], None] = lambda: None,
) -> Selection:
    """Return the files that travel to a node.

    Args:
        project: The project's folder.
        user: The folder that holds user space's `.ai`.
        include: Patterns of more files of the project.
        check: Called before each folder is read; what it raises ends the walk.

    Raises:
        LinkLeavesSpace: A link among them leaves the project, or the user's `.ai`.
        InputError: They are more than a snapshot may have, or can't be read.
    """
    patterns = [Pattern(one) for one in include]
    met: set[str] = set()
    files: dict[tuple[str, str], SelectedFile] = {}
    left_out: list[LeftOut] = []
    walks = [_Walk("project", project, project, left_out, check)]
    if user != project:
        walks.append(_Walk("user", user, user / ".ai", left_out, check))
    for walk in walks:
        walk.note_folder(".ai")
        for folder in KIND_FOLDERS.values():
            _collect(walk.below(f".ai/{folder}"), files)
    if patterns:
        _collect(walks[0].matching(patterns, met), files)
    return Selection(
        tuple(files[place] for place in sorted(files)),
        tuple(sorted(set(left_out), key=lambda one: (one.space, one.path))),
        tuple(one.text for one in patterns if one.text not in met),
        tuple((path, identity) for walk in walks for path, identity in walk.folders.items()),
        any(walk.has_links for walk in walks),
    )


def _collect(found: Iterator[SelectedFile], files: dict[tuple[str, str], SelectedFile]) -> None:
    for one in found:
        files[one.space, one.path] = one
        if len(files) > MAX_FILES:
            raise InputError(
                f"More than {MAX_FILES:,} files would travel.",
                next_step="Narrow push.include in remotes.yaml; see: rye remote plan",
            )


_States = list[tuple[Pattern, frozenset[int]]]


class _Walk:
    """A walk through the folders of a space, which follows links only within a boundary."""

    def __init__(
        self,
        space: SpaceName,
        root: Path,
        boundary: Path,
        left_out: list[LeftOut],
        check: Callable[[], None],
    ) -> None:
        self._space: SpaceName = space
        self._root = str(root)
        self._boundary = boundary
        self._real = os.path.realpath(root)
        self._left_out = left_out
        self._check = check
        self.folders: dict[str, FileIdentity | None] = {}
        self.has_links = False

    def note_folder(self, path: str) -> None:
        """Note the stat of a folder, which changes with the names in it."""
        where = f"{self._root}/{path}" if path else self._root
        self.folders[where] = _identity_of(where)

    def below(self, path: str) -> Iterator[SelectedFile]:
        """Yield the files below a folder; none where it is missing."""
        where = f"{self._root}/{path}"
        if not Path(where).is_dir():
            return
        self.has_links = self.has_links or os.path.realpath(where) != f"{self._real}/{path}"
        real = self._target(path, is_folder=True)
        if real is None or why_it_stays(real, is_folder=True) is not None:
            return
        yield from self._folder(path, real, None, {real}, 0)

    def matching(self, patterns: Sequence[Pattern], met: set[str]) -> Iterator[SelectedFile]:
        """Yield the files that patterns match, outside `.ai`; and note the patterns met."""
        self._met = met
        states = [(one, one.begin()) for one in patterns]
        yield from self._folder("", "", states, set(), 0)

    def _folder(
        self,
        folder: str,
        real_folder: str,
        states: _States | None,
        real_above: set[str],
        depth: int,
    ) -> Iterator[SelectedFile]:
        """Yield the files below a folder.

        Args:
            folder: Its path below the root; empty for the root.
            real_folder: The same with all links followed.
            states: The patterns that may match, and how far they do; None where all files count.
            real_above: The folders above it that were entered.
            depth: How many they are.
        """
        where = f"{self._root}/{folder}" if folder else self._root
        if depth > _MAX_DEPTH:
            self._left_out.append(LeftOut(self._space, folder, "lies too deep"))
            return
        self._check()
        self.note_folder(folder)  # before it is read: a later change is seen
        try:
            with os.scandir(where) as found:
                entries = sorted(found, key=lambda one: one.name)
        except OSError as problem:
            raise InputError(
                f"{where} can't be read: {problem.strerror}.",
                next_step="See that you may read the folder.",
            ) from problem
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            behind: _States | None = None
            if states is not None:
                if path == ".ai":
                    continue
                behind = [(one, at) for one, was in states if (at := one.step(was, entry.name))]
                if not behind:
                    continue
            is_folder = _is_folder(entry)
            if not is_folder and behind is not None:
                met = [one for one, at in behind if one.is_met(at)]
                if not met:
                    continue
                self._met.update(one.text for one in met)
            real = f"{real_folder}/{entry.name}" if real_folder else entry.name
            if entry.is_symlink():
                self.has_links = True
                target = self._target(path, is_folder=is_folder)
                if target is None:
                    continue
                real = target
            reason = why_it_stays(path, is_folder=is_folder)
            if reason is None and real != path:
                reason = why_it_stays(real, is_folder=is_folder)
            if reason is not None:
                self._left_out.append(LeftOut(self._space, path, reason))
            elif not is_folder:
                yield from self._file(path, real)
            elif real in real_above:
                reason = "is a link to a folder above it"
                self._left_out.append(LeftOut(self._space, path, reason))
            else:
                yield from self._folder(path, real, behind, {*real_above, real}, depth + 1)

    def _file(self, path: str, real: str) -> Iterator[SelectedFile]:
        source = f"{self._real}/{real}"
        try:
            status = os.stat(source, follow_symlinks=False)
        except FileNotFoundError:  # removed meanwhile
            return
        if not stat.S_ISREG(status.st_mode):
            self._left_out.append(LeftOut(self._space, path, "isn't a regular file"))
            return
        identity = FileIdentity.of(status)
        yield SelectedFile(self._space, path, source, identity, bool(status.st_mode & 0o100))

    def _target(self, path: str, *, is_folder: bool) -> str | None:
        """Return the path below the root to which a link leads; None where it leads nowhere.

        Raises:
            LinkLeavesSpace: It leads out of the boundary, and would travel by its own name.
        """
        where = f"{self._root}/{path}"
        real = os.path.realpath(where)
        if not os.path.exists(real):
            self._left_out.append(LeftOut(self._space, path, "is a link that leads nowhere"))
            return None
        if not leads_out(Path(real), self._boundary):
            below = os.path.relpath(real, self._real)
            return "" if below == "." else below
        reason = why_it_stays(path, is_folder=is_folder)
        if reason is not None:
            self._left_out.append(LeftOut(self._space, path, reason))
            return None
        raise LinkLeavesSpace(
            f"{where} is a link that leaves {self._boundary}: it leads to {real}, and nothing "
            "from there travels.",
            next_step="Put the file or folder itself in place of the link.",
            path=Path(where),
            leads_to=Path(real),
        )


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a folder, or a link to one; a link in a circle is neither."""
    try:
        return entry.is_dir()
    except OSError:
        return False
