"""What to do about a file of state that the system refuses."""

import errno
from typing import Final

from ryecore.lillux.exhaustion import exhaustion_step

__all__ = ["advice"]

_ROOM: Final = "Make room on its disk, or raise your quota; then try again."
_READ_ONLY: Final = "Its file system is read-only: mount it for writing, or run where it is."
_RIGHTS: Final = "Run it as the user who owns the file, or give that user the right to write there."
_BROKEN: Final = (
    "Prove it: rye doctor. Then restore a backup of .ai/state, or begin anew: "
    "rye threads adopt --set-aside"
)
_BY_ERRNO: Final = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: _ROOM,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EIO: "The disk fails: look at the system's log, and restore a backup.",
    errno.ENOTDIR: "Something else stands where a folder is needed: move it away.",
    errno.ENOENT: "Its folder was removed: try again, so that it is made anew.",
}
# SQLite's primary result codes, which say less than an errno.
_BY_SQLITE_CODE: Final = {
    3: _RIGHTS,  # PERM
    8: _READ_ONLY,  # READONLY
    10: "The disk fails or is full: make room, and look at the system's log.",  # IOERR
    11: _BROKEN,  # CORRUPT
    13: _ROOM,  # FULL
    14: "See that its folder is there and yours, and that files may be opened (ulimit -n).",
    26: _BROKEN,  # NOTADB
}


def advice(problem: BaseException) -> str:
    """Return the next step for an error of the operating system or of SQLite.

    Args:
        problem: An `OSError` or `sqlite3.Error`; others have no advice of their own.
    """
    if isinstance(problem, OSError):
        found: str | None = _BY_ERRNO.get(problem.errno or 0) or exhaustion_step(problem.errno)
    else:
        code = getattr(problem, "sqlite_errorcode", None)
        found = _BY_SQLITE_CODE.get(code & 0xFF) if isinstance(code, int) else None
    return found or "See that the file is yours, and that its disk has room and is in order."
