"""Where a run begins that goes on with another one. Pure.

Source: decision 47. What began without a known end is not run again by itself.
"""

from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from ryecore.errors import InputError, StateError
from ryecore.graph.journal.recovery import Found, is_unknown
from ryecore.graph.model import ForeachVertex, Graph, VertexOfGraph
from ryecore.graph.schedule import NodeResult, Position, after, first
from ryecore.graph.wish import GoingOn

__all__ = ["Begun", "at_its_end", "begun_at"]


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
        found = found.left_by_failure()  # whoever resumes such a run has its last node run again
    vertex = graph.nodes[position.node or ""]
    if isinstance(vertex, ForeachVertex):
        return Begun(position, {**found.items, **_told(vertex, found, wish)})
    if wish.members:
        raise _no_such_members(vertex, wish, wish.members)
    if is_unknown(vertex, found) and not wish.rerun:
        if not wish.answers:
            raise _unknown(f"'{vertex.id}'", wish.run_id)
        answer = NodeResult(wish.answer)
        return Begun(after(graph, position, inputs, answer, now_ms=now_ms), {})
    return Begun(position, found.items)


def _told(vertex: ForeachVertex, found: Found, wish: GoingOn) -> dict[int, NodeResult]:
    """What somebody says of the members of which no end is known.

    Raises:
        InputError: Something is said of other members.
        StateError: Nobody says anything of some.
    """
    strangers = wish.members.keys() - found.items_in_flight
    if strangers:
        raise _no_such_members(vertex, wish, strangers)
    told = {index: NodeResult(result) for index, result in wish.members.items()}
    left = found.items_in_flight - told.keys()
    if not left or not is_unknown(vertex, found) or wish.rerun:
        return told
    if not wish.answers:
        raise _unknown(f"member {_listed(left)} of '{vertex.id}'", wish.run_id, left)
    return told | {index: NodeResult(wish.answer) for index in left}


def at_its_end(run_id: str) -> InputError:
    """The error that says that there is nothing to go on with."""
    return InputError(
        f"The run {run_id} has come to its end: there is nothing to go on with.",
        next_step="Name an earlier step with --at, or run the graph anew.",
    )


def _unknown(what: str, run_id: str, members: Iterable[int] = ()) -> StateError:
    next_step = (
        "Find out. Then resume it with --rerun to do it again, or with --result JSON "
        "where it was done."
    )
    if members:
        next_step = (
            "Find out. Then resume it with --member INDEX=JSON for each that was done, and with "
            "--rerun for the others."
        )
    return StateError(
        f"The run {run_id} ended with {what} broken off: whether it has had its effect is not "
        "known.",
        next_step=next_step,
        members=tuple(sorted(members)),
    )


def _no_such_members(vertex: VertexOfGraph, wish: GoingOn, members: Iterable[int]) -> InputError:
    return InputError(
        f"Nobody asks what came of member {_listed(members)} of '{vertex.id}': that is known, or "
        "it had not begun.",
        next_step=f"See what is not known: rye graph resume {wish.run_id}",
    )


def _listed(members: Iterable[int]) -> str:
    """Indexes, with those that follow one another as a range."""
    ranges: list[list[int]] = []
    for index in sorted(members):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
