"""The limits of file systems: read-only files, and disks that machines share."""

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

__all__ = ["connect_read_only", "file_system_of", "is_shared", "opened_copy"]

# SQLite's shared memory needs one kernel: with these file systems, two machines could write.
_SHARED_FILE_SYSTEMS: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|gfs2|glusterfs|lustre|ncpfs|nfs4?|ocfs2|smb3|smbfs"
    r"|fuse\.(?:ceph|gcsfuse|glusterfs|rclone|s3fs|sshfs)"
)
_SUFFIXES: Final = ("", "-wal")


def connect_read_only(path: Path, version: int) -> sqlite3.Connection:
    """Connect to a database without writing beside it. Another `user_version` is refused.

    To read a log, SQLite needs a file of shared memory. If a writing process has left one, the
    database is read in place, else a copy is made and read.
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
    """Open a copy of a SQLite file with its log, so that nothing is written beside the file."""
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


def is_shared(file_system: str) -> bool:
    """Return whether several machines may mount a file system of this type at once."""
    return _SHARED_FILE_SYSTEMS.fullmatch(file_system) is not None


def file_system_of(folder: Path) -> str:
    """Return the type of a folder's file system; empty if unknown."""
    try:
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                mount, _, details = line.partition(" - ")
                if mount.split(" ", 3)[2] == number:
                    return details.split(" ", 1)[0]
    except (OSError, IndexError):
        pass
    return ""
