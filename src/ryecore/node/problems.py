"""Refusals: problems of the protocol, raised as exceptions.

Source: docs/design/remote.md#requests; RFC 9457.
"""

from typing import Final

from ryecore.remote.protocol.models import Problem, ProblemType

__all__ = ["NodeProblem", "refusal"]

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
