"""What is to be seen of a run, from all of its events at once."""

from collections.abc import Iterable

from ryecore.graph.projection import RunProjection, RunStatus
from ryecore.state.events import RunEvent

__all__ = ["see_run"]


def see_run(events: Iterable[RunEvent]) -> RunStatus:
    """Fold what a run told into what is to be seen of it."""
    projection = RunProjection()
    for event in events:
        projection.take(event)
    return projection.snapshot()
