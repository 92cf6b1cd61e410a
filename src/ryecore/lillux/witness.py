"""Witnesses: the files and folders that a decision was based on, to check that none has changed."""

import os
from collections.abc import Iterable
from os import PathLike

from attrs import frozen

from ryecore import _native
from ryecore.lillux.digests import TreeFilter

__all__ = ["Evidence", "TreeStat", "Witness"]


@frozen
class TreeStat:
    """A folder whose stats were seen.

    Attributes:
        root: The folder.
        filter: Which of its files count.
        fingerprint: What `stat_tree` gave for it.
    """

    root: str
    filter: TreeFilter
    fingerprint: str


class Witness:
    """Files with their content, paths where nothing was, folders with their stats.

    Args:
        files: Each path with the SHA-256 (hex) of what was read there.
        absent: Paths at which nothing stood, where a new file would change the decision.
        trees: Folders of which the stats count.

    Raises:
        ValueError: A digest is no SHA-256 in lower-case hex.
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        files: Iterable[tuple[str | PathLike[str], str]] = (),
        absent: Iterable[str | PathLike[str]] = (),
        trees: Iterable[TreeStat] = (),
    ) -> None:
        self._native = _native.Witness(tuple(files), absent, tuple(trees))

    def holds(self) -> bool:
        """Whether everything stands as it was seen. Every file is read and hashed whole."""
        return self._native.holds()

    def broken(self) -> str | None:
        """The first path that differs, or None."""
        return self._native.broken()


class Evidence:
    """Collects the files that were read and the paths that were absent.

    A remembered decision holds as long as its witness does: every file is read and hashed again,
    and every path that was absent still is.
    """

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._absent: dict[str, None] = {}
        self._trees: list[TreeStat] = []
        self.expires_at: str | None = None
        self.may_remember = True

    def file(self, path: str, digest: str) -> None:
        """A file was read; `digest` is the SHA-256 of its bytes."""
        self._files[path] = digest

    def absent(self, path: str) -> None:
        """A path was looked for in vain."""
        self._absent[path] = None

    def tree(self, stat: TreeStat) -> None:
        """A tree of files was verified as a whole."""
        self._trees.append(stat)

    def until(self, timestamp: str | None) -> None:
        """The decision holds at most until this UTC time."""
        if timestamp is not None and (self.expires_at is None or timestamp < self.expires_at):
            self.expires_at = timestamp

    def never_remember(self) -> None:
        """The decision rests on something that no witness can ask again."""
        self.may_remember = False

    def add(self, other: "Evidence", *, but_files_below: str | None = None) -> None:
        """Take over what another decision saw.

        Args:
            other: What it saw.
            but_files_below: A folder whose files are left out, because a tree stands for them.
        """
        below = None if but_files_below is None else but_files_below.rstrip("/") + "/"
        for path, digest in other._files.items():
            if below is None or not path.startswith(below):
                self._files[path] = digest
        self._absent.update(other._absent)
        self._trees.extend(other._trees)
        self.until(other.expires_at)
        self.may_remember = self.may_remember and other.may_remember

    def witness(self) -> Witness:
        """What can be asked again in one call."""
        folders: dict[str, str] = {}
        for path in self._absent:
            folder = os.path.dirname(path)
            if folder not in folders:
                folders[folder] = _first_missing(folder)
        absent = {folders[os.path.dirname(path)] or path: None for path in self._absent}
        return Witness(tuple(self._files.items()), tuple(absent), tuple(self._trees))


def _first_missing(folder: str) -> str:
    """The first folder on the way that isn't there; empty where all are.

    While it is missing nothing below it can appear, so it stands for all of it.
    """
    missing = ""
    while folder and not os.path.lexists(folder):
        missing, folder = folder, os.path.dirname(folder)
    return missing
