"""The files that a search looks through, from only their folders and stats: no file is opened."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ryecore.caches import BoundedDict
from ryecore.errors import InvalidItemId
from ryecore.frozen import frozen
from ryecore.items.refs import EXPORT_FOLDER, check_item_id
from ryecore.items.signature import FileTypesReader
from ryecore.items.spaces import EXTENSIONS, SKIPPED_FOLDERS, Space, Spaces
from ryecore.lillux.digests import TreeFilter, stat_tree

__all__ = ["GRAIN_NS", "ItemFile", "ItemListing", "ListedItem", "Place", "places"]

GRAIN_NS: Final = 200_000_000
"""What was changed so recently can change again with the same time stamp."""


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
    """The files of one kind in one space, without exports of threads, or only these."""

    space: Space
    kind: str
    extensions: tuple[str, ...]
    of_exports: bool = False

    def walk(
        self, category: str = "", enter: Callable[[str], object] = lambda _: None
    ) -> Iterator[ItemFile]:
        """Yield the files of items, perhaps of only one category; skip what can't be read.

        `enter` is called with each folder before it is listed, and each link before it is followed.
        """
        root = str(self.space.folder(self.kind))
        if category:
            enter(f"{root}/{category}")
            if category in SKIPPED_FOLDERS or Path(root, category).is_symlink():
                return iter(())
        if not self.of_exports:
            return _walk(self, root, f"{category}/" if category else "", enter)
        if not _stays_inside(f"{root}/{EXPORT_FOLDER}", root):
            return iter(())
        return _walk(self, root, f"{EXPORT_FOLDER}/", enter)

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
    place: Place, root: str, below: str, enter: Callable[[str], object]
) -> Iterator[ItemFile]:
    space, kind = place.space, place.kind
    enter(f"{root}/{below}")
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
                    yield from _walk(place, root, f"{name}/", enter)
                continue
            stem, dot, _ = name.rpartition(".")
            if not dot or not name.endswith(place.extensions):
                continue
            is_link = entry.is_symlink()
            if is_link:
                enter(entry.path)
            if not entry.is_file() or (is_link and not _stays_inside(entry.path, root)):
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


_MAX_LISTED: Final = 256

_Facts: TypeAlias = tuple[int, int, int, int]


@frozen
class ListedItem:
    """An item's id, and the space that it is found in first."""

    item_id: str
    space: Space


@frozen
class _Listed:
    """Listed items, and what was seen of each folder and link before it was listed.

    `extensions` are those of their files; None where something changed just now.
    """

    items: tuple[ListedItem, ...]
    seen: dict[str, _Facts | None]
    extensions: tuple[str, ...] | None

    def holds(self, extensions: tuple[str, ...]) -> bool:
        """Return whether nothing has changed since."""
        return extensions == self.extensions and all(
            _facts(path) == facts for path, facts in self.seen.items()
        )


class ItemListing:
    """A list of all items of a kind, cached while their folders stay the same.

    Args:
        spaces: Where they are, in the order in which they are searched.
        kind: The kind.
        file_types: Returns the extensions that runtimes add to those of tools.
    """

    def __init__(self, spaces: Spaces, kind: str, file_types: FileTypesReader) -> None:
        self._spaces = tuple(spaces)
        self._kind = kind
        self._folders = tuple(str(one.folder(kind)) for one in self._spaces)
        self._file_types = file_types
        self._listed: BoundedDict[str, _Listed] = BoundedDict(_MAX_LISTED)

    def ids(self, category: str = "") -> tuple[str, ...]:
        """Return the ids of all items, sorted and each once; see `items`."""
        return tuple(one.item_id for one in self.items(category))

    def items(self, category: str = "") -> tuple[ListedItem, ...]:
        """Return all items, sorted and each once; some may not be usable.

        A new, removed or renamed file changes the stat of its folder, so that the next call notices
        it by only the stats of the folders and links. The same tuple means that nothing changed.

        Args:
            category: The first part of their ids, the folders that are looked at; by default,
                any.
        """
        paths = (f"{folder}/{category}" for folder in self._folders)
        if not any(map(os.path.isdir, paths)):  # a Path takes five times as long
            return ()
        extensions = tuple(sorted(self._file_types()))
        listed = self._listed.get(category)
        if listed is None or not listed.holds(extensions):
            listed = self._listed[category] = self._list(category, extensions)
        return listed.items

    def _list(self, category: str, extensions: tuple[str, ...]) -> _Listed:
        seen: dict[str, _Facts | None] = {}
        begun_ns = time.time_ns()
        found: dict[str, ListedItem] = {}
        for place in places(self._spaces, (self._kind,), extensions):
            # Before it is listed: a change meanwhile is noticed by the next call.
            for file in place.walk(category, lambda path: seen.setdefault(path, _facts(path))):
                found.setdefault(file.item_id, ListedItem(file.item_id, place.space))
        newest_ns = max((one[-1] for one in seen.values() if one is not None), default=0)
        # What changed just now can change again with the same time stamp.
        is_settled = begun_ns - newest_ns > GRAIN_NS
        items = tuple(found[item_id] for item_id in sorted(found))
        return _Listed(items, seen, extensions if is_settled else None)


def _facts(path: str) -> _Facts | None:
    """Return what changes with a folder, or with the file of a link; None where there is none."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns)
