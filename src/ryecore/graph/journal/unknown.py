"""What nobody knows of a run whose process died. Pure.

Source: decision 47. What began without a known end is not run again by itself.
"""

from ryecore.graph.journal.recovery import Found
from ryecore.graph.model import ActionVertex, AgentVertex, ForeachVertex, VertexOfGraph

__all__ = ["is_unknown"]


def is_unknown(vertex: VertexOfGraph, found: Found) -> bool:
    """Whether something with an effect had begun that may not simply be done again."""
    if isinstance(vertex, ForeachVertex):
        return bool(found.items_in_flight) and not _may_repeat(vertex)
    if isinstance(vertex, ActionVertex):
        return found.in_flight is not None and not _may_repeat(vertex)
    return found.in_flight is not None and isinstance(vertex, AgentVertex)


def _may_repeat(vertex: ActionVertex | ForeachVertex) -> bool:
    """Whether its author lets it be done more than once."""
    return vertex.tries.max > 1 or vertex.cache_result
