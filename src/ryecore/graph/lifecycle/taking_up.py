"""Find what another run has left that is to be gone on with.

Source: decision 47.
"""

from typing import Final

from attrs import frozen

from ryecore.errors import ThreadConflict
from ryecore.graph.host import GraphHost
from ryecore.graph.journal.recovery import Found, never_began, read_run
from ryecore.graph.lifecycle.going_on import at_its_end
from ryecore.graph.wish import GoingOn
from ryecore.state.model import Follows, ThreadRecord
from ryecore.state.refusals import gone_on_with

__all__ = ["OBJECTS", "TakenUp", "take_up"]

OBJECTS: Final = ("state", "objects")


@frozen
class TakenUp:
    """A run that another one goes on with.

    Attributes:
        found: What is found of it.
        follows: What the new run's row says of it.
    """

    found: Found
    follows: Follows


def take_up(host: GraphHost, goes_on: GoingOn) -> TakenUp:
    """Look at a run that another one is to go on with.

    From a run's end one other run goes on: two would both do what comes next. Who names the step
    means to do it again.

    Raises:
        ThreadConflict: It still runs, or another run goes on with it.
        InputError: It has come to its end.
        StateError: What it left can't be read, or was altered; or it never began.
    """
    record = host.store.look_closed(goes_on.run_id)
    if not record.ended:
        raise ThreadConflict(
            f"The run {goes_on.run_id} still goes on.",
            next_step=f"Wait for it, or stop it: rye threads cancel {goes_on.run_id}",
            thread_id=goes_on.run_id,
            state=record.status,
        )
    if record.status == "completed" and goes_on.at is None:
        raise at_its_end(goes_on.run_id)
    beside = None
    if goes_on.at is None and not goes_on.again:
        beside = _never_began(host, goes_on.run_id)
    found = _read(host, record, goes_on.at)
    if found.position is None:
        raise never_began(goes_on.run_id, record.continuation_of)
    root = record.chain_root_id or record.thread_id
    return TakenUp(found, Follows(record.thread_id, root, beside))


def _never_began(host: GraphHost, run_id: str) -> frozenset[str]:
    """The runs that were to go on with one, and ended before they did anything.

    Raises:
        ThreadConflict: Another one goes on with it, or did.
        StateError: What another one left can't be read, or was altered.
    """
    idle: set[str] = set()
    for one in host.registry.list_following(run_id):
        record = host.store.look(one.thread_id)
        if not record.ended or _read(host, record).position is not None:
            other = record.thread_id
            refused = gone_on_with(run_id, other, record.status)
            refused.next_step = (
                f"See it, and how to go on with it: rye graph show {other}. To do again what it "
                "does, say --again, or name a step with --at."
            )
            raise refused
        idle.add(record.thread_id)
    return frozenset(idle)


def _read(host: GraphHost, record: ThreadRecord, at: int | None = None) -> Found:
    return read_run(
        host.store.folder_of(record.thread_id),
        host.project_root.joinpath(*OBJECTS),
        record.thread_id,
        host.key.public,
        record.transcript_head,
        at=at,
    )
