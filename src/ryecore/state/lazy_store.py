"""The store of a project's threads, opened when it is first needed."""

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ryecore.state.object_places import IN_PROJECT, ObjectPlace

if TYPE_CHECKING:
    from ryecore.state.model import Durability
    from ryecore.state.run_queue import RunQueue
    from ryecore.state.sql_tables import SqlTables
    from ryecore.state.store import ThreadStore

__all__ = ["LazyThreadStore"]


class LazyThreadStore:
    """The store of a project's threads, opened once, when it is first needed."""

    def __init__(
        self,
        project_root: Path,
        user_root: Path,
        durability: "Durability",
        state: str | None = None,
        objects: ObjectPlace = IN_PROJECT,
    ) -> None:
        self._project_root = project_root
        self._user_root = user_root
        self._durability: Durability = durability
        self._state = state
        self._objects = objects
        self._lock = Lock()
        self._store: ThreadStore | None = None
        self._removed: list[ThreadStore] = []
        self._shared_tables: SqlTables | None = None

    def open(self) -> "ThreadStore":
        """Return the store of threads, and make its folder if it is missing."""
        with self._lock:
            if self._store is not None and not self._store.is_in_place():
                self._removed.append(self._store)  # not closed yet: calls may still use it
                self._store = None
            return self._opened()

    def last(self) -> "ThreadStore":
        """Return the store that was opened last, also if its folder was removed since."""
        with self._lock:
            return self._opened()

    def _opened(self) -> "ThreadStore":
        if self._store is None:
            from ryecore.state.store import ThreadStore  # noqa: PLC0415 - SQLite comes with it

            self._store = ThreadStore.open(
                self._project_root, self._user_root, self._durability, self._state, self._objects
            )
            self._store.begin_log()
        return self._store

    def open_existing(self) -> "ThreadStore | None":
        """Return the store of threads; None if the project has none. Nothing is made or moved.

        If its folder was removed, the store that this process has opened is returned. A server may
        have threads of other machines, so its store is always opened.
        """
        if self._state is not None:
            return self.open()
        from ryecore.state.attestation import find_attested_folder  # noqa: PLC0415
        from ryecore.state.model import THREADS_FOLDER  # noqa: PLC0415
        from ryecore.state.store import ThreadStore  # noqa: PLC0415 - SQLite comes with it

        with self._lock:
            if self._store is not None and self._store.is_in_place():
                return self._store
            found = find_attested_folder(
                self._project_root / "state", THREADS_FOLDER, self._user_root
            )
            if found is None:
                return self._store
            if self._store is not None:
                self._removed.append(self._store)
            self._store = ThreadStore(
                found, self._durability, self._user_root, objects=self._objects
            )
            return self._store

    def read_queue(self) -> "RunQueue | None":
        """Return the queues of the state, to be read; None for a state in the project's folder.

        No folder is made: there may be no project here.
        """
        if self._state is None:
            return None
        from ryecore.state.attestation import AttestedFolder  # noqa: PLC0415
        from ryecore.state.model import THREADS_FOLDER  # noqa: PLC0415
        from ryecore.state.open_tables import open_tables  # noqa: PLC0415 - SQLite comes with it

        with self._lock:
            if self._store is not None:
                return self._store.queue
            if self._shared_tables is None:
                folder = self._project_root / "state" / THREADS_FOLDER
                place = AttestedFolder(folder, folder)  # which tells this folder's changes alone
                self._shared_tables = open_tables(place, self._durability, self._state)
            return self._shared_tables.queue

    @property
    def is_open(self) -> bool:
        """Whether a store is open."""
        return self._store is not None

    def close(self) -> None:
        """Close the opened stores."""
        with self._lock:
            for store in (*self._removed, self._store):
                if store is not None:
                    store.close()
            if self._shared_tables is not None:
                self._shared_tables.database.close()
