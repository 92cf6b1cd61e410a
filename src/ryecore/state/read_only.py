"""Read a SQLite file where nothing may be written: a read-only disk, or another user's file."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

__all__ = ["connect_read_only", "opened_copy"]

_SUFFIXES: Final = ("", "-wal")


def connect_read_only(path: Path, version: int) -> sqlite3.Connection:
    """Connect to a database without writing beside it.

    SQLite needs a file of shared memory for a log. Where a process that may write has left one, the
    database is read in place. Elsewhere a copy is made and read.

    Args:
        path: The database.
        version: The `user_version` that it has to have.

    Raises:
        OSError: It can't be read.
        sqlite3.Error: The file is not a database, or has another version.
    """
    with suppress(sqlite3.Error):
        place = f"file:{quote(str(path))}?mode=ro"
        connection = sqlite3.connect(
            place, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        if _version_of(connection) == version:
            return connection
        connection.close()
    with opened_copy(path) as copy:
        found = _version_of(copy)
        if found != version:
            raise sqlite3.DatabaseError(
                f"its schema has version {found}, and this ryecore reads version {version} where "
                "it may not be changed"
            )
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        copy.backup(connection)
        return connection


@contextmanager
def opened_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a SQLite file with its log, so that nothing is written beside the file.

    Raises:
        OSError: It can't be copied.
        sqlite3.Error: The file is not a database.
    """
    with tempfile.TemporaryDirectory(prefix="rye-") as temporary:
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{temporary}/copy.db{suffix}")
        with closing(sqlite3.connect(f"{temporary}/copy.db", isolation_level=None)) as opened:
            opened.row_factory = sqlite3.Row
            opened.execute("PRAGMA trusted_schema = OFF")
            yield opened


def _version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the log, too
    return int(version)
