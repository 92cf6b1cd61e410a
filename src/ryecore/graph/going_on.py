"""Where a run begins that goes on with another one. Pure.

Source: decision 47: what had begun, and of which no end is known, isn't done again by itself.
"""

from collections.abc import Mapping

from attrs import evolve, frozen

from ryecore.errors import InputError, StateError
from ryecore.graph.journal.recovery import Found
from ryecore.graph.model import ActionVertex, AgentVertex, ForeachVertex, Graph, VertexOfGraph
from ryecore.graph.schedule import NodeResult, Position, after, first
from ryecore.graph.wish import GoingOn

__all__ = ["Begun", "at_its_end", "begun_at", "is_unknown"]


@frozen
class Begun:
    """Where a run begins.

    Attributes:
        position: Where.
        known: What came of members of its first foreach already, by their indexes.
    """

    position: Position
    known: Mapping[int, NodeResult]


def begun_at(
    graph: Graph,
    found: Found,
    wish: GoingOn,
    inputs: Mapping[str, object],
    *,
    now_ms: int = 0,
) -> Begun:
    """Where a run begins that goes on with another one.

    Args:
        graph: The graph as it is now.
        found: What was found of the other run, which has begun.
        wish: How it is to be gone on with.
        inputs: The run's inputs.
        now_ms: The time, in milliseconds since 1970.

    Raises:
        InputError: The graph has changed, or the run has come to its end.
        StateError: A node had begun, and nobody says what came of it.
    """
    if found.started.get("item_hash") != graph.digest and not wish.changed:
        raise InputError(
            f"{graph.ref} has changed since the run {wish.run_id} began.",
            next_step="See that its nodes still mean the same, and resume with --changed.",
        )
    only = found.started.get("only")
    if only is not None:
        raise InputError(
            f"The run {wish.run_id} was of the single node '{only}': there is nothing behind it.",
            next_step=f"Run the node again: rye graph step {graph.ref.id} {only}",
        )
    stood = found.position or first(graph)
    if stood.node is None:
        if wish.at is not None:
            raise at_its_end(wish.run_id)
        return Begun(stood, {})  # its process died before anybody was told
    position = evolve(stood, ending=None, state={**stood.state, **wish.state})
    if position.node not in graph.nodes:
        raise InputError(
            f"{graph.ref} no longer has the node '{position.node}', where the run stands.",
            next_step=f"Its nodes: {', '.join(graph.nodes)}.",
        )
    if wish.at is not None:
        return Begun(position, {})
    if found.completed is not None:
        moved = after(graph, position, inputs, found.completed, found.control, now_ms=now_ms)
        if moved.ending is None or moved.node is None:
            return Begun(moved, {})
        # It has failed for good: whoever goes on with such a run has its last node run again.
        well = {index: one for index, one in found.items.items() if one.error is None}
        return Begun(position, well)
    vertex = graph.nodes[position.node or ""]
    if is_unknown(vertex, found) and not wish.rerun:
        if not wish.answers:
            raise _unknown(vertex, found, wish.run_id)
        if isinstance(vertex, ForeachVertex):
            answered = {index: NodeResult(wish.answer) for index in found.items_in_flight}
            return Begun(position, {**found.items, **answered})
        answer = NodeResult(wish.answer)
        return Begun(after(graph, position, inputs, answer, now_ms=now_ms), {})
    return Begun(position, found.items)


def at_its_end(run_id: str) -> InputError:
    """The error that says that there is nothing to go on with."""
    return InputError(
        f"The run {run_id} has come to its end: there is nothing to go on with.",
        next_step="Name an earlier step with --at, or run the graph anew.",
    )


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


def _unknown(vertex: VertexOfGraph, found: Found, run_id: str) -> StateError:
    what = f"'{vertex.id}'"
    if isinstance(vertex, ForeachVertex):
        listed = ", ".join(map(str, sorted(found.items_in_flight)[:10]))
        what = f"member {listed} of '{vertex.id}'"
    return StateError(
        f"The run {run_id} ended while {what} was being done; whether it was is not known.",
        next_step="Find out. Then resume it with --rerun to do it again, or with --result JSON "
        "where it was done.",
    )
