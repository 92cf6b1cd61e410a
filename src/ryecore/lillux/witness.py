"""What a cached decision saw on disk, and whether it still stands there."""

from collections.abc import Iterable
from os import PathLike

from attrs import frozen

from ryecore import _native
from ryecore.lillux.digests import TreeFilter

__all__ = ["TreeStat", "Witness"]


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
        seen = [
            (t.root, t.filter.extensions, t.filter.exclude_dirs, t.filter.recursive, t.fingerprint)
            for t in trees
        ]
        self._native = _native.Witness(list(files), absent, seen)

    def holds(self) -> bool:
        """Whether everything stands as it was seen. Every file is read and hashed whole."""
        return self._native.holds()

    def broken(self) -> str | None:
        """The first path that differs, or None."""
        return self._native.broken()
