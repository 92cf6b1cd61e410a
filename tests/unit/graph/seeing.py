"""What is to be seen of a run, from all of its events at once."""

from collections.abc import Iterable

from ryecore.graph.journal.events import GraphEvent
from ryecore.graph.projection import RunSeen, RunSight

__all__ = ["see_run"]


def see_run(events: Iterable[GraphEvent]) -> RunSeen:
    """Fold what a run told into what is to be seen of it."""
    sight = RunSight()
    for event in events:
        sight.take(event)
    return sight.seen()
