"""Failures of the operating system by errno: the resource that is used up, and the next step."""

import errno
from collections.abc import Mapping
from typing import Final

from ryecore.errors import ProcessError
from ryecore.frozen import frozen

__all__ = ["OsFailure", "exhaustion_of", "failure_of", "refuses_writing"]


@frozen
class OsFailure:
    """A kind of failure; `used_up` names the resource of this process that is used up."""

    next_step: str
    used_up: str = ""


_NO_ROOM: Final = OsFailure("Make room on its disk, or raise your quota; then try again.")
_NO_PERMISSION: Final = OsFailure(
    "Run it as the user who owns the file, or give that user the right to write there."
)
_FAILURES: Final[Mapping[int, OsFailure]] = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.EROFS: OsFailure(
        "Its file system is read-only: mount it for writing, or run where it is writable."
    ),
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EIO: OsFailure("The disk fails: look at the system's log, and restore a backup."),
    errno.ENOTDIR: OsFailure("A file stands where a folder is needed: move it away."),
    errno.ENOENT: OsFailure("Its folder was removed: try again, which makes the folder anew."),
    errno.EMFILE: OsFailure(
        "Raise the limit of open files (ulimit -n), or run fewer things at once.",
        used_up="This process has too many open files.",
    ),
    errno.ENFILE: OsFailure(
        "Raise the machine's limit of open files (sysctl fs.file-max), or end other programs.",
        used_up="The whole machine has too many open files.",
    ),
    errno.EAGAIN: OsFailure(
        "Raise the limit of processes (ulimit -u, or pids.max of the container), or run fewer "
        "things at once. See with rye doctor whether process 1 reaps what has ended.",
        used_up="No further process or thread can be started.",
    ),
    errno.ENOMEM: OsFailure(
        "Free memory, or raise the container's limit; then try again.",
        used_up="No memory is left.",
    ),
}
_UNKNOWN: Final = OsFailure("")
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_THREAD: Final = "can't start new thread"


def failure_of(number: int | None) -> OsFailure:
    """Return what an errno means; without a next step where the table doesn't have it."""
    return _FAILURES.get(number or 0, _UNKNOWN)


def refuses_writing(problem: OSError) -> bool:
    """Return whether a file can't be opened for writing, though it may be readable."""
    return problem.errno in _READ_ONLY


def exhaustion_of(problem: BaseException) -> ProcessError | None:
    """Return the error that names the resource that is used up; None where something else failed.

    Args:
        problem: The exception that was raised: an error of the system, Python's own for a thread
            that can't be started, or a group that holds one of them.
    """
    if isinstance(problem, BaseExceptionGroup):
        return next((found for one in problem.exceptions if (found := exhaustion_of(one))), None)
    if isinstance(problem, RuntimeError) and _NO_THREAD in str(problem):
        failure = failure_of(errno.EAGAIN)
    elif isinstance(problem, OSError):
        failure = failure_of(problem.errno)
    else:
        failure = _UNKNOWN
    return ProcessError(failure.used_up, next_step=failure.next_step) if failure.used_up else None
