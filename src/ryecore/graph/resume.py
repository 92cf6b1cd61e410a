"""The resuming of a graph's run: recover the earlier run, and find the new start position.

A call that began and has no known end is not repeated by itself.

Source: decision 47.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from ryecore.agent.outcome import NodeOutcome
from ryecore.errors import InputError, StateError
from ryecore.frozen import frozen
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import RecoveredRun, is_unknown, never_began, read_run
from ryecore.graph.model import (
    ActionForeach,
    AgentForeach,
    ForeachVertex,
    Graph,
    VertexOfGraph,
)
from ryecore.graph.schedule import Position, after, first
from ryecore.runs.elsewhere import refuse_elsewhere
from ryecore.runs.host import RunHost
from ryecore.runs.request import ResumeOptions
from ryecore.runs.resume import idle_followers, refuse_running
from ryecore.state.model import Predecessor, ThreadRecord

__all__ = [
    "Resumed", "StartPosition", "find_resumed", "outcome_options", "start_position",
    "unknown_members",
]  # fmt: skip


@frozen
class Resumed:
    """The run that another one resumes: its state, and the link to it in the new row.

    `call_root` is the run whose id is part of the call ids of both, so that a repeated call keeps
    its id; None where the calls are to be new ones.
    """

    found: RecoveredRun
    follows: Predecessor
    call_root: str | None


async def find_resumed(host: RunHost, options: ResumeOptions) -> Resumed:
    """Read the run that another one is to resume.

    Only one run may continue from the end of another: two would both take the next step. A caller
    that names a step wants to repeat it.

    Raises:
        ThreadConflict: The run hasn't ended, another run continues it, or a node ran it.
        InputError: The run is completed.
        StateError: Its records were altered or can't be read, or it never began.
    """
    record = await host.store.look_closed(options.run_id)
    refuse_running(record)
    if record.place is not None:
        raise await refuse_elsewhere(host.store, record, record.place, "resumed")
    if record.status == "completed" and options.at is None:
        raise _completed(options.run_id)
    beside = None
    if options.at is None and not options.again:
        beside = await _never_began(host, options.run_id)
    if options.failed and options.at is None:
        raise InputError(
            "Without a step, failed members are called again anyway.",
            next_step="Name the step before their foreach with --at, or leave --failed out.",
        )
    found = await _read(host, record, options.at, members=options.failed, ended=True)
    if found.position is None:
        raise never_began(options.run_id, record.continuation_of)
    root = record.chain_root_id or record.thread_id
    call_root = None
    if options.at is None and not options.again:
        call_root = str(found.started.get("call_root") or record.thread_id)
    return Resumed(found, Predecessor(record.thread_id, root, beside), call_root)


async def _never_began(host: RunHost, run_id: str) -> frozenset[str]:
    async def has_begun(record: ThreadRecord) -> bool:
        return (await _read(host, record)).position is not None

    def next_step(other: str) -> str:
        return (
            f"See it and how to continue it: rye graph show {other}. To repeat its "
            "work, pass --again, or a step with --at."
        )

    return await idle_followers(host.store, run_id, has_begun, next_step)


async def _read(
    host: RunHost,
    record: ThreadRecord,
    at: int | None = None,
    *,
    members: bool = False,
    ended: bool = False,
) -> RecoveredRun:
    store, run_id = host.store, record.thread_id
    return await read_run(
        store.records,
        PositionStore(store.objects(run_id), run_id),
        run_id,
        record.transcript_head,
        at=at,
        members=members,
        ended=ended,
    )


@frozen
class StartPosition:
    """The start position of a run, with the `known` outcomes of its first foreach by index."""

    position: Position
    known: Mapping[int, NodeOutcome]


def start_position(
    graph: Graph,
    found: RecoveredRun,
    options: ResumeOptions,
    inputs: Mapping[str, object],
    *,
    now_ms: int = 0,
) -> StartPosition:
    """Return the start position of a run that resumes another one, which has begun. Pure.

    A graph that has changed and a completed run are an InputError; a node that had begun, and whose
    result isn't known, is a StateError.
    """
    if found.started.get("item_hash") != graph.digest and not options.changed:
        raise InputError(
            f"{graph.ref} has changed since the run {options.run_id} began.",
            next_step="See that its nodes still mean the same, and resume with --changed.",
        )
    only = found.started.get("only")
    if only is not None:
        raise InputError(
            f"The run {options.run_id} ran the single node '{only}', so nothing follows it.",
            next_step=f"Run the node again: rye graph step {graph.ref.id} {only}",
        )
    stood = found.position or first(graph)
    if stood.node is None:
        if options.at is not None:
            raise _completed(options.run_id)
        return StartPosition(stood, {})  # its process died before the end was recorded
    position = evolve(stood, ending=None, state={**stood.state, **options.state})
    if position.node not in graph.nodes:
        raise InputError(
            f"{graph.ref} no longer has the node '{position.node}', where the run stands.",
            next_step=f"Its nodes: {', '.join(graph.nodes)}.",
        )
    vertex = graph.nodes[position.node or ""]
    if options.failed and not isinstance(vertex, ForeachVertex):
        raise InputError(
            f"'{vertex.id}', which follows step {options.at}, isn't a foreach.",
            next_step="Name the step before a foreach with --at, or leave --failed out.",
        )
    if options.at is not None and not options.failed:
        return StartPosition(position, {})
    if found.completed is not None:
        moved = after(graph, position, inputs, found.completed, found.control, now_ms=now_ms)
        if moved.ending is None or moved.node is None:
            return StartPosition(moved, {})
        found = found.left_by_failure()  # resuming such a run repeats its last node
    if isinstance(vertex, ForeachVertex):
        return StartPosition(position, {**found.items, **_answered(vertex, found, options)})
    if options.members:
        raise _no_such_members(vertex, options, options.members)
    if is_unknown(vertex, found) and not options.rerun:
        if options.result is ...:
            raise _unknown(f"'{vertex.id}'", options.run_id)
        answer = NodeOutcome("completed", options.result)
        return StartPosition(after(graph, position, inputs, answer, now_ms=now_ms), {})
    return StartPosition(position, found.items)


def _answered(
    vertex: ActionForeach | AgentForeach, found: RecoveredRun, options: ResumeOptions
) -> dict[int, NodeOutcome]:
    """Return the outcomes that the caller passes for the members that have no known end.

    It may name no others, and leave none out.
    """
    strangers = options.members.keys() - found.items_in_flight
    if strangers:
        raise _no_such_members(vertex, options, strangers)
    told = {index: NodeOutcome("completed", result) for index, result in options.members.items()}
    left = found.items_in_flight - told.keys()
    if not left or not is_unknown(vertex, found) or options.rerun:
        return told
    if options.result is ...:
        raise _unknown(f"member {_listed(left)} of '{vertex.id}'", options.run_id, left)
    return told | {index: NodeOutcome("completed", options.result) for index in left}


def _completed(run_id: str) -> InputError:
    """Return the error for a run that is completed."""
    return InputError(
        f"The run {run_id} is completed: nothing is left to continue.",
        next_step="Name an earlier step with --at, or run the graph anew.",
    )


def _unknown(what: str, run_id: str, members: Iterable[int] = ()) -> StateError:
    indexes = tuple(sorted(members))
    found_out = "which took effect" if len(indexes) > 1 else "whether it took effect"
    return StateError(
        f"The run {run_id} ended with {what} interrupted: whether it took effect is unknown.",
        next_step=f"Find out {found_out}. Then resume it with {outcome_options(indexes)}.",
        members=indexes,
        effect_unknown=True,
    )


def unknown_members(
    graph: Graph, found: RecoveredRun, run_id: str, inputs: Mapping[str, object]
) -> tuple[int, ...] | None:
    """Return the members of a foreach for whose outcomes a resume would ask. Pure.

    Empty where it would ask for that of another node; None where it would ask for none.
    """
    try:
        start_position(graph, found, ResumeOptions(run_id, changed=True), inputs)
    except StateError as error:
        members: tuple[int, ...] = getattr(error, "members", ())
        return members
    except InputError:  # another reason not to resume it
        pass
    return None


def outcome_options(members: Sequence[int]) -> str:
    """Return the options that pass the outcome of an interrupted node, or of a foreach's members.

    They complete `rye graph resume RUN`, and the sentence "Resume it with ...".
    """
    if len(members) > 1:
        return (
            f"--member INDEX=JSON for each of member {_listed(members)} that was done, and "
            "--rerun for the others"
        )
    answer = f"--member {members[0]}=JSON" if members else "--result JSON"
    return f"--rerun to do it again, or {answer} where it was done"


def _no_such_members(
    vertex: VertexOfGraph, options: ResumeOptions, members: Iterable[int]
) -> InputError:
    return InputError(
        f"No outcome is needed for member {_listed(members)} of '{vertex.id}': it is known, or "
        "the member had not begun.",
        next_step=f"See which outcomes are unknown: rye graph resume {options.run_id}",
    )


def _listed(members: Iterable[int]) -> str:
    """Format indexes, consecutive ones as a range."""
    ranges: list[list[int]] = []
    for index in sorted(members):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
