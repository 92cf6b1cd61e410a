"""Metrics of a node.

Source: docs/design/remote.md#requests.
"""

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from ryecore.actions.cluster import METRICS
from ryecore.convert.prometheus import Sample

__all__ = ["HELP", "RequestMetrics"]

_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)


class RequestMetrics:
    """Counts of the requests that a process has answered, by their route."""

    def __init__(self) -> None:
        self.started_s: Final = time.time()
        self._answers: Counter[tuple[str, str]] = Counter()
        self._problems: Counter[str] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(
            lambda: [0] * (len(_BUCKETS_S) + 1)
        )
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, duration_s: float, problem: str | None) -> None:
        """Count an answer.

        Args:
            route: The route's path, with names in the place of values.
            status: The status of the answer.
            duration_s: How long it took, in seconds; of a stream, to its beginning.
            problem: The name of the problem that was answered.
        """
        self._answers[route, str(status)] += 1
        self._seconds[route] += duration_s
        self._buckets[route][bisect_left(_BUCKETS_S, duration_s)] += 1
        if problem is not None:
            self._problems[problem] += 1

    def samples(self) -> Iterable[Sample]:
        """Yield all counts."""
        yield "ryecore_node_start_time_seconds", (), self.started_s
        for (route, status), count in sorted(self._answers.items()):
            yield "ryecore_node_requests_total", (("route", route), ("status", status)), count
        for problem, count in sorted(self._problems.items()):
            yield "ryecore_node_problems_total", (("type", problem),), count
        name = "ryecore_node_request_duration_seconds"
        for route, counts in sorted(self._buckets.items()):
            below = 0
            for most, count in zip((*map(str, _BUCKETS_S), "+Inf"), counts, strict=True):
                below += count
                yield f"{name}_bucket", (("route", route), ("le", most)), below
            yield f"{name}_sum", (("route", route),), self._seconds[route]
            yield f"{name}_count", (("route", route),), below


HELP: Final[Mapping[str, tuple[str, str]]] = {
    "ryecore_node_info": ("gauge", "The version of ryecore, and the fingerprint of the node."),
    "ryecore_node_start_time_seconds": ("gauge", "When the node started."),
    "ryecore_node_requests_total": ("counter", "Requests answered."),
    "ryecore_node_problems_total": ("counter", "Requests refused, by the name of the problem."),
    "ryecore_node_request_duration_seconds": ("histogram", "How long an answer took."),
    "ryecore_node_runs": ("gauge", "Runs that have not ended, by caller."),
    "ryecore_node_ended_runs": ("gauge", "Runs that are kept and have ended, by status."),
    "ryecore_node_spend_usd": ("gauge", "What the runs of a caller have spent on models."),
    "ryecore_node_stored_bytes": ("gauge", "Bytes that are kept for a caller."),
    "ryecore_node_free_bytes": ("gauge", "Free bytes of the disk that holds the node's folder."),
    "ryecore_node_body_bytes": ("gauge", "Bytes of the bodies that are held in memory."),
    "ryecore_node_state_up": ("gauge", "Whether the state shared with workers can be read."),
    **METRICS,
}
"""The kind and the meaning of each metric."""
