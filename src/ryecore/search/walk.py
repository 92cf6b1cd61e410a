"""The files that a search looks through, from their folders and stats alone: no file is opened."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from attrs import frozen

from ryecore.caches import BoundedDict
from ryecore.errors import InvalidItemId
from ryecore.items.refs import EXPORT_FOLDER, check_item_id
from ryecore.items.signature import FileTypesReader
from ryecore.items.spaces import EXTENSIONS, SKIPPED_FOLDERS, Space, Spaces
from ryecore.lillux.digests import TreeFilter, stat_tree

__all__ = ["ItemFile", "Place", "ToolListing", "places"]


@frozen
class ItemFile:
    """A file of an item.

    `relative` is the slash path below the kind's folder; `stat`, the inode, size, and the times of
    the last change of content and of anything, in nanoseconds.
    """

    space: Space
    kind: str
    item_id: str
    relative: str
    stat: tuple[int, int, int, int]

    @property
    def path(self) -> Path:
        """The file."""
        return self.space.folder(self.kind) / self.relative

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return self.stat[1]

    @property
    def changed_ns(self) -> int:
        """The time of its last change."""
        return max(self.stat[2:])


@frozen
class Place:
    """The files of one kind in one space, without exports of threads, or these alone."""

    space: Space
    kind: str
    extensions: tuple[str, ...]
    of_exports: bool = False

    def walk(self) -> Iterator[ItemFile]:
        """Yield the files of items; skip what can't be read."""
        root = str(self.space.folder(self.kind))
        if not self.of_exports:
            return _walk(self.space, self.kind, root, "", self.extensions)
        if not _stays_inside(f"{root}/{EXPORT_FOLDER}", root):
            return iter(())
        return _walk(self.space, self.kind, root, f"{EXPORT_FOLDER}/", self.extensions)

    def fingerprint(self) -> str | None:
        """Return a text that changes with the stat of each file; None where one can't be read.

        Taken before a walk, it is the same only while another walk would yield the same.
        """
        root = str(self.space.folder(self.kind))
        if self.of_exports:
            root = f"{root}/{EXPORT_FOLDER}"
            stats = _stats_below(root) if _stays_inside(root, os.path.dirname(root)) else ""
        else:
            stats = _stats_below(root, EXPORT_FOLDER if _has_exports(self.space, self.kind) else "")
        return None if stats is None else " ".join((*self.extensions, stats))


def places(
    spaces: Iterable[Space],
    kinds: Iterable[str],
    more_extensions: Iterable[str],
    *,
    of_exports: bool = False,
) -> tuple[Place, ...]:
    """Return the places of these kinds, or those of exports of threads."""
    if of_exports:
        return tuple(
            Place(one, "knowledge", (".md",), of_exports=True)
            for one in spaces
            if one.name == "project"
        )
    kinds, more = tuple(kinds), tuple(sorted(more_extensions))
    return tuple(
        Place(space, kind, (*EXTENSIONS[kind], *more)) for space in spaces for kind in kinds
    )


def _has_exports(space: Space, kind: str) -> bool:
    return kind == "knowledge" and space.name == "project"


def _walk(
    space: Space, kind: str, root: str, below: str, extensions: tuple[str, ...]
) -> Iterator[ItemFile]:
    try:
        with os.scandir(f"{root}/{below}") as listed:
            entries = list(listed)
    except OSError:
        return
    for entry in entries:
        name = below + entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_FOLDERS and not (
                    name == EXPORT_FOLDER and _has_exports(space, kind)
                ):
                    check_item_id(name)  # no id leads through another name
                    yield from _walk(space, kind, root, f"{name}/", extensions)
                continue
            stem, dot, _ = name.rpartition(".")
            if not dot or not name.endswith(extensions) or not entry.is_file():
                continue
            if entry.is_symlink() and not _stays_inside(entry.path, root):
                continue
            seen = entry.stat()
            check_item_id(stem)
        except (OSError, InvalidItemId):
            continue
        stat = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        yield ItemFile(space, kind, stem, name, stat)


def _stays_inside(path: str, folder: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


_FILES: Final = TreeFilter(exclude_dirs=tuple(sorted(SKIPPED_FOLDERS)))
_TOP_FILES: Final = TreeFilter(recursive=False)


def _stats_below(folder: str, without: str = "") -> str | None:
    """Return a fingerprint of the stats below a folder, but for a path below it.

    It is empty where the folder is missing, and None where something in it can't be read.
    """
    try:
        if not Path(folder).is_dir():
            return ""
        if not without:
            return stat_tree(folder, _FILES)
        name, _, rest = without.partition("/")
        parts: list[str | None] = [stat_tree(folder, _TOP_FILES)]
        with os.scandir(folder) as listed:
            below = sorted(
                one.name
                for one in listed
                if one.name not in SKIPPED_FOLDERS and one.is_dir(follow_symlinks=False)
            )
        for one in below:
            if one != name:
                parts += (one, stat_tree(f"{folder}/{one}", _FILES))
            elif rest:
                parts += (one, _stats_below(f"{folder}/{one}", rest))
    except OSError:  # or it vanished meanwhile
        return None
    known = [part for part in parts if part is not None]
    return "/".join(known) if len(known) == len(parts) else None


_KIND: Final = "tool"
_MAX_LISTED: Final = 256

_Seen: TypeAlias = tuple[tuple[str, ...], tuple[str | None, ...]]
"""The extensions of files, and the fingerprint of each space's folder."""


class ToolListing:
    """A list of the ids of all tools, cached while their folders stay the same."""

    def __init__(self, spaces: Spaces, file_types: FileTypesReader) -> None:
        self._spaces = tuple(spaces)
        self._file_types = file_types
        self._listed: BoundedDict[str, tuple[_Seen, tuple[str, ...]]] = BoundedDict(_MAX_LISTED)

    def ids(self, category: str = "") -> tuple[str, ...]:
        """Return the ids of all tools, sorted and each once; some may not be executable.

        A new, removed or renamed file changes the stats of its folder, so that the next call
        notices it.

        Args:
            category: The first part of their ids, whose folders alone are looked at; by default,
                any.
        """
        # Read before the walk: a change meanwhile makes another fingerprint next time.
        stats = tuple(_stats_below(f"{one.folder(_KIND)}/{category}") for one in self._spaces)
        if all(one == "" for one in stats):
            return ()
        extensions = tuple(sorted(self._file_types()))
        seen = (extensions, stats)
        listed = self._listed.get(category)
        if listed is None or listed[0] != seen or None in stats:
            beginning = f"{category}/" if category else ""
            files = (one for place in places(self._spaces, (_KIND,), extensions)
                     for one in place.walk())  # fmt: skip
            ids = {one.item_id for one in files if one.item_id.startswith(beginning)}
            listed = self._listed[category] = seen, tuple(sorted(ids))
        return listed[1]
