"""Storage of an index: a file of the user's cache, or memory. It can always be built again."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from ryecore.errors import ConfigError, StateError, StateLocked
from ryecore.items.spaces import Spaces
from ryecore.search.query import FIELDS
from ryecore.state.database import Database

__all__ = ["Connection", "IndexStore", "Store"]

T = TypeVar("T")

Connection: TypeAlias = sqlite3.Connection
"""A connection to an index's database, within a transaction."""

_SCHEMA: Final = (
    "CREATE TABLE files (id INTEGER PRIMARY KEY, space TEXT NOT NULL, kind TEXT NOT NULL,"
    " item_id TEXT NOT NULL, relative TEXT NOT NULL, stat TEXT NOT NULL, hash TEXT NOT NULL,"
    " extent TEXT NOT NULL,"
    " UNIQUE (space, kind, relative))",
    "CREATE INDEX files_by_id ON files (kind, item_id)",
    # The fingerprints of the places whose files are indexed as they were found.
    "CREATE TABLE places (space TEXT NOT NULL, kind TEXT NOT NULL, fingerprint TEXT NOT NULL,"
    " PRIMARY KEY (space, kind)) WITHOUT ROWID",
    f"CREATE VIRTUAL TABLE items USING fts5({', '.join(FIELDS)},"
    ' tokenize = "unicode61 remove_diacritics 2")',
)
_FORMAT: Final = "4"
"""The version of the schema; another one is another file."""

_MAX_UNUSED_S: Final = 60 * 24 * 3600
_SUFFIXES: Final = ("", "-wal", "-shm", ".gate")


class MemoryDatabase:
    """An index in memory."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        self._connection.row_factory = sqlite3.Row
        for statement in _SCHEMA:
            self._connection.execute(statement)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        yield self._connection

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        return self._connection.execute(query, parameters).fetchall()

    def close(self) -> None:
        self._connection.close()


Store: TypeAlias = Database | MemoryDatabase
"""The database of an index, in a file or in memory."""


class IndexStore:
    """The index of one project, with its user and system spaces.

    It lies in the user's cache, never in the project: a clone must not supply it. With
    `of_exports`, it is the index of exports of threads, a file of its own.
    """

    def __init__(self, spaces: Spaces, folder: Path, *, of_exports: bool = False) -> None:
        digest = hashlib.sha256(f"{_FORMAT}{'exports' * of_exports}".encode())
        for space in spaces:
            digest.update(f"\0{space.label}\0".encode())
            digest.update(os.fsencode(space.root))
        self.path = folder / f"{digest.hexdigest()[:32]}.db"
        self._store: Store | None = None
        self._lock = Lock()
        self._closed = False

    def use(self, work: Callable[[Store], T]) -> T:
        """Call a function with the store, one at a time.

        A broken index is built again. Where the cache can't be written, the index is held in
        memory. A ConfigError says that this Python's SQLite can't search text.
        """
        with self._lock:
            try:
                return self._use(work)
            finally:
                if self._closed:
                    self._close()

    def _use(self, work: Callable[[Store], T]) -> T:
        for _ in range(2):
            try:
                self._store = self._store or self._open()
                return work(self._store)
            except StateError as problem:
                self._close()
                if not _is_broken(problem):
                    break
                self._remove()
        self._store = MemoryDatabase()
        return work(self._store)

    def close(self) -> None:
        """Close the file. A search that is still running opens it, and closes it again."""
        with self._lock:
            self._closed = True
            self._close()

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _open(self) -> Store:
        _check_fts5()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.path.exists():
                _remove_unused(self.path.parent)
            database = Database(self.path, [_SCHEMA], page_size_bytes=4096)
            os.utime(self.path)  # the time of its last use
        except OSError as problem:
            raise StateError(f"{self.path} can't be opened: {problem.strerror}.") from problem
        return database

    def _remove(self) -> None:
        for suffix in _SUFFIXES:
            with suppress(OSError):
                Path(f"{self.path}{suffix}").unlink()


def _check_fts5() -> None:
    connection = sqlite3.connect(":memory:")
    try:
        found = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
        if found.fetchone() is None:
            raise ConfigError(
                f"This Python's SQLite {sqlite3.sqlite_version} has no FTS5, which searches text.",
                next_step="Use a Python whose SQLite has it, as nearly all have.",
            )
    finally:
        connection.close()


def _is_broken(problem: StateError) -> bool:
    """Return whether the file is damaged or of another form, rather than inaccessible."""
    if isinstance(problem, StateLocked):
        return False
    cause = problem.__cause__
    if isinstance(cause, sqlite3.OperationalError):
        return "no such" in str(cause)  # a table or a column that is not there
    return cause is None or isinstance(cause, sqlite3.DatabaseError)


def _remove_unused(folder: Path) -> None:
    """Remove the indexes of projects that weren't searched for two months."""
    oldest = time.time() - _MAX_UNUSED_S
    with suppress(OSError):
        for path in folder.glob("*.db"):
            if path.stat().st_mtime < oldest:
                for suffix in _SUFFIXES:
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
