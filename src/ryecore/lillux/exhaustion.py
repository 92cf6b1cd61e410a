"""Tell where the system has no descriptor, process, thread or memory left for this process."""

import errno
from typing import Final

from ryecore.errors import ProcessError

__all__ = ["exhaustion_of", "exhaustion_step"]

_STEPS: Final = {
    errno.EMFILE: "Raise the limit of open files (ulimit -n), or run fewer things at once.",
    errno.ENFILE: "The whole machine has too many files open: see fs.file-max.",
    errno.EAGAIN: "Raise the limit of processes (ulimit -u, or pids.max of the container), or run "
    "fewer things at once; see that process 1 reaps what has ended: rye doctor.",
    errno.ENOMEM: "Free memory, or raise the container's limit; then try again.",
}
_NO_THREAD: Final = "can't start new thread"


def exhaustion_step(number: int | None) -> str:
    """Return the next step for an errno that says that something is used up; else nothing."""
    return _STEPS.get(number or 0, "")


def exhaustion_of(problem: BaseException) -> ProcessError | None:
    """Return the error for whatever is used up; None where something else failed.

    Args:
        problem: What was raised: an error of the system, Python's own for a thread that can't be
            started, or a group that holds one.
    """
    if isinstance(problem, BaseExceptionGroup):
        return next((found for one in problem.exceptions if (found := exhaustion_of(one))), None)
    if isinstance(problem, RuntimeError) and _NO_THREAD in str(problem):
        message, step = "No further thread can be started.", exhaustion_step(errno.EAGAIN)
    elif isinstance(problem, OSError):
        step = exhaustion_step(problem.errno)
        message = f"The system refuses: {problem.strerror}."
    else:
        message = step = ""
    return ProcessError(message, next_step=step) if step else None
