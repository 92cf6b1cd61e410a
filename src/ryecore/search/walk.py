"""The files that a search looks through, from their folders and stats alone: no file is opened."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from ryecore.errors import InvalidItemId
from ryecore.items.refs import EXPORT_FOLDER, check_item_id
from ryecore.items.signature import FileTypesReader
from ryecore.items.spaces import EXTENSIONS, SKIPPED_FOLDERS, Space, Spaces
from ryecore.lillux.digests import TreeFilter, stat_tree

__all__ = ["ItemFile", "ToolListing", "walk", "walk_exports"]


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


def walk_exports(spaces: Iterable[Space]) -> Iterator[ItemFile]:
    """Yield the exports of threads in project space; skip what can't be read."""
    for space in spaces:
        if space.name == "project":
            root = str(space.folder("knowledge"))
            if _stays_inside(f"{root}/{EXPORT_FOLDER}", root):
                yield from _walk(space, "knowledge", root, f"{EXPORT_FOLDER}/", (".md",))


def walk(
    spaces: Iterable[Space], kinds: Iterable[str], more_extensions: Sequence[str]
) -> Iterator[ItemFile]:
    """Yield the files of items, without exports of threads; skip what can't be read."""
    kinds = tuple(kinds)
    for space in spaces:
        for kind in kinds:
            extensions = (*EXTENSIONS[kind], *more_extensions)
            yield from _walk(space, kind, str(space.folder(kind)), "", extensions)


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
                    name == EXPORT_FOLDER and kind == "knowledge" and space.name == "project"
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


_KIND: Final = "tool"
_FILES: Final = TreeFilter(exclude_dirs=tuple(sorted(SKIPPED_FOLDERS)))


class ToolListing:
    """A list of the ids of all tools, cached while their folders stay the same."""

    def __init__(self, spaces: Spaces, file_types: FileTypesReader) -> None:
        self._spaces = tuple(spaces)
        self._file_types = file_types
        self._seen: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self._ids: tuple[str, ...] = ()

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all tools, sorted and each once; some may not be executable.

        A new, removed or renamed file changes the stats of its folder, so that the next call
        notices it.
        """
        extensions = tuple(sorted(self._file_types()))
        # Read before the walk: a change meanwhile makes another fingerprint next time.
        seen = (extensions, tuple(_fingerprint(str(one.folder(_KIND))) for one in self._spaces))
        if seen != self._seen:
            found = {file.item_id for file in walk(self._spaces, (_KIND,), extensions)}
            self._ids, self._seen = tuple(sorted(found)), seen
        return self._ids


def _fingerprint(folder: str) -> str:
    try:
        return stat_tree(folder, _FILES)
    except OSError:  # it is missing, or a file vanished meanwhile
        return ""
