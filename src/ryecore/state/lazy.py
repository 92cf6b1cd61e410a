"""A project's threads, opened when they are first needed."""

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ryecore.state.model import THREADS_FOLDER, Durability

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["LazyThreadStore"]


class LazyThreadStore:
    """A project's threads, opened when they are first needed, and once.

    Args:
        project_root: The project's `.ai` folder.
        user_root: The user's `.ai` folder.
        durability: What a change survives.
    """

    def __init__(self, project_root: Path, user_root: Path, durability: Durability) -> None:
        self._project_root = project_root
        self._user_root = user_root
        self._durability: Durability = durability
        self._lock = Lock()
        self._store: ThreadStore | None = None

    def open(self) -> "ThreadStore":
        """The threads; their place is made where it is missing.

        Raises:
            StateError: The place can't be made or used.
        """
        with self._lock:
            if self._store is None:
                from ryecore.state.store import ThreadStore  # noqa: PLC0415 - SQLite comes with it

                self._store = ThreadStore.open(
                    self._project_root, self._user_root, self._durability
                )
            return self._store

    def open_existing(self) -> "ThreadStore | None":
        """The threads; None where the project has none, and then nothing is made.

        Raises:
            StateError: The place can't be used.
        """
        place = self._project_root / "state" / THREADS_FOLDER
        if self._store is None and not os.path.lexists(place):
            return None
        return self.open()

    def close(self) -> None:
        """Close what was opened."""
        with self._lock:
            if self._store is not None:
                self._store.close()
