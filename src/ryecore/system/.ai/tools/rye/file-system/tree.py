# rye:signed:2026-11-28T17:20:55Z:ee33962ddab8f1f36742086e130d55c58cf17cbf913f0e8943458fae2019fafd:Dj15uX6o1jMkdfbJj-Y2MTlo2BfpA49xx1u5NSD2dwxglhin8Uvrd4iGcqwTBQIejDJxpzhf5FjMWWz5v4KVDQ:a50d0ff255b90b74
"""Walking a folder tree by descriptors: no link is followed, no order is left to chance."""

from __future__ import annotations

import os

from answers import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from confined import Place

    State = TypeVar("State")

SKIPPED = frozenset((".git", "node_modules", ".venv", "__pycache__"))


class Entry:
    """One thing in a folder."""

    __slots__ = ("kind", "name", "place", "size")

    def __init__(self, place: Place, name: str, kind: str, size: int | None) -> None:
        self.place = place
        self.name = name
        self.kind = kind  # file, directory, symlink or other
        self.size = size  # of a file, where sizes were asked for


def walk(
    top: Place,
    state: State,
    enter: Callable[[State, str], State | None],
    missed: list[str],
    sizes: bool = False,
) -> Iterator[tuple[Entry, State]]:
    """Go through a tree, each folder sorted by name and before what lies in it.

    Yield each entry with the state of its folder. `enter` takes a folder's state and the name of
    one in it; it returns the inner folder's state, or None to leave it out. `missed` gets the
    folders that could not be read.
    """
    pending = [(entry, state) for entry in _scanned(top, sizes)]
    while pending:
        entry, state = pending.pop()
        yield entry, state
        if entry.kind != "directory":
            continue
        inner = enter(state, entry.name)
        if inner is None:
            continue
        try:
            pending.extend((below, inner) for below in _scanned(entry.place, sizes))
        except (Refused, OSError):
            missed.append(entry.place.shown)


def _scanned(place: Place, sizes: bool) -> list[Entry]:
    """The entries of a folder, the last first."""
    folder = place.open_folder()
    try:
        with os.scandir(folder) as found:
            entries = [_entry(place, item, sizes) for item in found]
    finally:
        os.close(folder)
    entries.sort(key=lambda entry: entry.name, reverse=True)
    return entries


def _entry(place: Place, item: os.DirEntry[str], sizes: bool) -> Entry:
    size = None
    if item.is_symlink():
        kind = "symlink"
    elif item.is_dir(follow_symlinks=False):
        kind = "directory"
    elif item.is_file(follow_symlinks=False):
        kind = "file"
        if sizes:
            try:
                size = item.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                kind = "other"  # it is gone meanwhile
    else:
        kind = "other"
    return Entry(place.child(item.name), item.name, kind, size)
