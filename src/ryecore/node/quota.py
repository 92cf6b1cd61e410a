"""The bytes that a node keeps for a caller, counted and bounded.

Source: docs/design/remote.md#objects-and-pieces; decisions 68, 75 and 82.
"""

import os
from pathlib import Path
from threading import RLock

from ryecore.node.files import size_of_tree
from ryecore.node.problems import disk_full, refusal

__all__ = ["Quota"]


class Quota:
    """The bytes below a caller's folder. Any thread may call.

    Args:
        folder: The folder.
        max_bytes: How many bytes may be used.
        min_free_bytes: How much of the disk stays free.

    Attributes:
        max_bytes: How many bytes may be used, as the caller's file says now.
    """

    def __init__(self, folder: Path, max_bytes: int, min_free_bytes: int) -> None:
        self._folder = folder
        self.max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._used_bytes: int | None = None
        self._counting = RLock()  # not held while files are written: the event loop counts

    @property
    def used_bytes(self) -> int:
        """The bytes of all that is kept for the caller, spaces and runs included."""
        if self._used_bytes is None:
            with self._counting:
                if self._used_bytes is None:
                    self._used_bytes = size_of_tree(self._folder)
        return self._used_bytes

    def charge(self, size_bytes: int) -> None:
        """Count bytes that are about to be written, or were removed, where negative.

        Raises:
            NodeProblem: `no_room`: the caller's quota or the disk is full.
        """
        used = self.used_bytes
        if size_bytes > 0:
            if used + size_bytes > self.max_bytes:
                raise refusal(
                    "no_room",
                    f"Your quota of {self.max_bytes:,} bytes is used up.",
                    detail=f"{used:,} bytes are kept, and {size_bytes:,} more are needed.",
                    next_step="Push less, or ask the node's operator for a larger quota.",
                )
            room = os.statvfs(self._folder)
            if room.f_bavail * room.f_frsize - size_bytes < self._min_free_bytes:
                raise disk_full()
        self.count(size_bytes)

    def count(self, size_bytes: int) -> None:
        """Count bytes that are kept, or were removed, where negative, whatever the quota is."""
        with self._counting:
            self._used_bytes = self.used_bytes + size_bytes

    def recount(self, elsewhere_bytes: int) -> None:
        """Measure the folder, and count it with the bytes that are kept elsewhere."""
        before = self.used_bytes
        found = size_of_tree(self._folder) + elsewhere_bytes
        with self._counting:  # with what was counted meanwhile
            self._used_bytes = found + self.used_bytes - before
