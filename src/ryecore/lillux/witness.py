"""Witnesses: the files and folders that a decision was based on, to check that none has changed."""

import os
from collections.abc import Iterable
from os import PathLike

from ryecore import _native
from ryecore.frozen import frozen
from ryecore.lillux.digests import TreeFilter

__all__ = ["Evidence", "TreeStat", "Witness"]


@frozen
class TreeStat:
    """A folder with the fingerprint of its stats.

    Attributes:
        root: The folder.
        filter: The filter of its files.
        fingerprint: The result of `stat_tree`.
    """

    root: str
    filter: TreeFilter
    fingerprint: str


class Witness:
    """Files with their content, paths at which nothing was, and folders with their stats.

    Args:
        files: Each path with the SHA-256 (hex) of the file.
        absent: Paths at which a new file would change the decision.
        trees: Folders with their stats.

    Raises:
        ValueError: A digest isn't a SHA-256 in lower-case hex.
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
        """Return whether nothing has changed; each file is read and hashed whole."""
        return self._native.holds()

    def broken(self) -> str | None:
        """Return the first path that has changed; None where none has."""
        return self._native.broken()


class Evidence:
    """The evidence of a decision, collected while it is made: files read, and paths absent.

    A cached decision holds as long as its witness: each file has the same content, and each absent
    path is still absent.

    Attributes:
        expires_at: The UTC time until which the decision holds at most; None for no limit.
        may_remember: Whether the decision may be cached.
    """

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._absent: dict[str, None] = {}
        self._trees: list[TreeStat] = []
        self.expires_at: str | None = None
        self.may_remember = True

    def file(self, path: str, digest: str) -> None:
        """Note a file that was read, with the SHA-256 (hex) of its bytes."""
        self._files[path] = digest

    def absent(self, path: str) -> None:
        """Note a path at which nothing was found."""
        self._absent[path] = None

    def tree(self, stat: TreeStat) -> None:
        """Note a folder that was verified as a whole."""
        self._trees.append(stat)

    def until(self, timestamp: str | None) -> None:
        """Limit the decision to this UTC time; None for no limit."""
        if timestamp is not None and (self.expires_at is None or timestamp < self.expires_at):
            self.expires_at = timestamp

    def never_remember(self) -> None:
        """Note that the decision rests on something that no witness can check."""
        self.may_remember = False

    def add(self, other: "Evidence", *, but_files_below: str | None = None) -> None:
        """Add the evidence of another decision, but for files below a folder that a tree covers."""
        below = None if but_files_below is None else but_files_below.rstrip("/") + "/"
        for path, digest in other._files.items():
            if below is None or not path.startswith(below):
                self._files[path] = digest
        self._absent.update(other._absent)
        self._trees.extend(other._trees)
        self.until(other.expires_at)
        self.may_remember = self.may_remember and other.may_remember

    def witness(self) -> Witness:
        """Return the witness, which checks all of it in one call."""
        folders: dict[str, str] = {}
        for path in self._absent:
            folder = os.path.dirname(path)
            if folder not in folders:
                folders[folder] = _first_missing(folder)
        absent = {folders[os.path.dirname(path)] or path: None for path in self._absent}
        return Witness(tuple(self._files.items()), tuple(absent), tuple(self._trees))


def _first_missing(folder: str) -> str:
    """Return the topmost folder of a path that is missing; empty where all exist.

    While it is missing, nothing below it can appear, so it stands for all of it.
    """
    missing = ""
    while folder and not os.path.lexists(folder):
        missing, folder = folder, os.path.dirname(folder)
    return missing
