"""Find what another run has left that is to be gone on with.

Source: decision 47.
"""

from typing import Final

from attrs import frozen

from ryecore.graph.host import GraphHost
from ryecore.graph.journal.recovery import Found, never_began, read_run
from ryecore.graph.lifecycle.going_on import at_its_end
from ryecore.graph.wish import GoingOn
from ryecore.runs.resume import idle_followers, refuse_running
from ryecore.state.attestation import OBJECTS_FOLDER
from ryecore.state.model import Predecessor, ThreadRecord

__all__ = ["OBJECTS", "TakenUp", "take_up"]

OBJECTS: Final = ("state", OBJECTS_FOLDER)


@frozen
class TakenUp:
    """A run that another one goes on with.

    Attributes:
        found: What is found of it.
        follows: What the new run's row says of it.
        call_root: The run whose id stands in the call ids of both, so that a repeated call keeps
            its id; None where the calls are meant to be new ones.
    """

    found: Found
    follows: Predecessor
    call_root: str | None


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
    refuse_running(record)
    if record.status == "completed" and goes_on.at is None:
        raise at_its_end(goes_on.run_id)
    beside = None
    if goes_on.at is None and not goes_on.again:
        beside = _never_began(host, goes_on.run_id)
    found = _read(host, record, goes_on.at, ended=True)
    if found.position is None:
        raise never_began(goes_on.run_id, record.continuation_of)
    root = record.chain_root_id or record.thread_id
    call_root = None
    if goes_on.at is None and not goes_on.again:
        call_root = str(found.started.get("call_root") or record.thread_id)
    return TakenUp(found, Predecessor(record.thread_id, root, beside), call_root)


def _never_began(host: GraphHost, run_id: str) -> frozenset[str]:
    def has_begun(record: ThreadRecord) -> bool:
        return _read(host, record).position is not None

    def next_step(other: str) -> str:
        return (
            f"See it, and how to continue it: rye graph show {other}. To do again what it "
            "does, say --again, or name a step with --at."
        )

    return idle_followers(host.store, run_id, has_begun, next_step)


def _read(
    host: GraphHost, record: ThreadRecord, at: int | None = None, *, ended: bool = False
) -> Found:
    return read_run(
        host.store.folder_of(record.thread_id),
        host.project_root.joinpath(*OBJECTS),
        record.thread_id,
        host.key.public,
        record.transcript_head,
        at=at,
        ended=ended,
    )
