"""The ids of all tools that the spaces hold, remembered while their folders stay as they are."""

from typing import Final

from ryecore.items.signature import FileTypesReader
from ryecore.items.spaces import Spaces
from ryecore.lillux.digests import TreeFilter, stat_tree
from ryecore.search.walk import SKIPPED_FOLDERS, walk

__all__ = ["ToolListing"]

_KIND: Final = "tool"
_FILES: Final = TreeFilter(exclude_dirs=tuple(sorted(SKIPPED_FOLDERS)))


class ToolListing:
    """Lists tools by their ids. Whether one can be executed is for its chain to say.

    Args:
        spaces: Where they stand.
        file_types: The extensions that signed runtimes add.
    """

    def __init__(self, spaces: Spaces, file_types: FileTypesReader) -> None:
        self._spaces = tuple(spaces)
        self._file_types = file_types
        self._seen: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self._ids: tuple[str, ...] = ()

    def ids(self) -> tuple[str, ...]:
        """The ids of all tools, sorted; one that stands in several spaces is there once.

        A file that comes, goes or is renamed changes the stats of its folder, so it is noticed by
        the next call.
        """
        extensions = tuple(sorted(self._file_types()))
        # Taken before the walk: what changes meanwhile makes another fingerprint next time.
        seen = (extensions, tuple(_fingerprint(str(one.folder(_KIND))) for one in self._spaces))
        if seen != self._seen:
            found = {file.item_id for file in walk(self._spaces, (_KIND,), extensions)}
            self._ids, self._seen = tuple(sorted(found)), seen
        return self._ids


def _fingerprint(folder: str) -> str:
    try:
        return stat_tree(folder, _FILES)
    except OSError:  # it isn't there, or something vanished while it was looked through
        return ""
