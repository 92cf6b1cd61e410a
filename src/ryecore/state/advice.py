"""The next step for an error with a file of state."""

import errno
import sqlite3
from collections.abc import Mapping
from typing import Final

from ryecore.lillux.os_errors import failure_of

__all__ = ["RESTORE_STEP", "advice"]

_UNKNOWN: Final = "See that the file is yours, and that its disk has room and is in order."
RESTORE_STEP: Final = (
    "Prove it: rye doctor. Then restore a backup of .ai/state, or begin anew: "
    "rye threads adopt --set-aside"
)
"""The next step for a damaged database."""

# SQLite's primary result codes, as the errno that they stand for or a text of their own.
_BY_SQLITE_CODE: Final[Mapping[int, int | str]] = {
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: "The disk fails or is full: make room, and look at the system's log.",
    sqlite3.SQLITE_CANTOPEN: "See that its folder is there and yours, and that files may be opened "
    "(ulimit -n).",
    sqlite3.SQLITE_CORRUPT: RESTORE_STEP,
    sqlite3.SQLITE_NOTADB: RESTORE_STEP,
}


def advice(problem: BaseException) -> str:
    """Return the next step for an error of the operating system or of SQLite.

    Args:
        problem: An `OSError` or `sqlite3.Error`; any other gets the general advice.
    """
    if isinstance(problem, OSError):
        found: int | str | None = problem.errno
    else:
        code = getattr(problem, "sqlite_errorcode", None)
        found = _BY_SQLITE_CODE.get(code & 0xFF) if isinstance(code, int) else None
    return (found if isinstance(found, str) else failure_of(found).next_step) or _UNKNOWN
