"""Refusals: problems of the protocol, raised as exceptions.

Source: docs/design/remote.md#requests; RFC 9457.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ryecore.errors import StateLocked
from ryecore.remote.protocol.models import Problem, ProblemType

__all__ = ["NodeProblem", "disk_full", "disk_problems", "refusal", "refusal_of"]

_STATUS: Final[dict[ProblemType, int]] = {
    "unauthorized": 401,
    "clock": 401,
    "replayed": 401,
    "forbidden": 403,
    "not_found": 404,
    "snapshot_missing": 409,
    "version": 409,
    "other_request": 409,
    "too_large": 413,
    "invalid": 422,
    "too_many_runs": 429,
    "failed": 500,
    "busy": 503,
    "no_room": 507,
}
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SQLITE_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
_RETRY_S: Final = 2


class NodeProblem(Exception):
    """A request that the node refuses.

    Attributes:
        problem: The problem that is answered.
        retry_after_s: When the caller may try again, in seconds; None where that wouldn't help.
    """

    def __init__(self, problem: Problem, *, retry_after_s: int | None = None) -> None:
        super().__init__(problem.title)
        self.problem = problem
        self.retry_after_s = retry_after_s


def refusal(
    name: ProblemType,
    title: str,
    *,
    detail: str = "",
    next_step: str = "",
    retry_after_s: int | None = None,
) -> NodeProblem:
    """Return a refusal, with the status that belongs to its name."""
    problem = Problem(name, title, _STATUS[name], detail, next_step)
    return NodeProblem(problem, retry_after_s=retry_after_s)


def disk_full() -> NodeProblem:
    """Return the refusal of what the node's disk has no room for."""
    return refusal(
        "no_room",
        "The node's disk is full.",
        next_step="Tell the node's operator; repeat the call when there is room.",
    )


def refusal_of(failure: BaseException) -> NodeProblem | None:
    """Return the refusal for a full disk or a locked database; None for another failure."""
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, StateLocked):
            return refusal(
                "busy", "The node is busy.", next_step="Try again.", retry_after_s=_RETRY_S
            )
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return disk_full()
        if isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode in _SQLITE_FULL:
            return disk_full()
        cause = cause.__cause__
    return None


@contextmanager
def disk_problems() -> Iterator[None]:
    """Raise the refusal for a full disk in place of the system's error."""
    try:
        yield
    except OSError as problem:
        refused = refusal_of(problem)
        if refused is None:
            raise
        raise refused from problem
