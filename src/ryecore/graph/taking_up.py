"""Find what another run has left that is to be gone on with.

Source: decision 47.
"""

from typing import Final

from ryecore.errors import ThreadConflict
from ryecore.graph.going_on import at_its_end
from ryecore.graph.host import GraphHost
from ryecore.graph.journal.recovery import Found, never_began, read_run
from ryecore.graph.wish import GoingOn
from ryecore.state.model import ThreadRecord

__all__ = ["OBJECTS", "found_of"]

OBJECTS: Final = ("state", "objects")


def found_of(host: GraphHost, goes_on: GoingOn) -> Found:
    """What is found of the run that another one goes on with.

    Raises:
        ThreadConflict: It still runs.
        InputError: It has come to its end.
        StateError: What it left can't be read, or was altered; or it never began.
    """
    record = host.store.look(goes_on.run_id)
    if not record.ended:
        raise ThreadConflict(
            f"The run {goes_on.run_id} still goes on.",
            next_step=f"Wait for it, or stop it: rye threads cancel {goes_on.run_id}",
            thread_id=goes_on.run_id,
            state=record.status,
        )
    if record.status == "completed" and goes_on.at is None:
        raise at_its_end(goes_on.run_id)
    found = _read(host, record, goes_on.at)
    if found.position is None:
        raise never_began(goes_on.run_id, record.continuation_of)
    return found


def _read(host: GraphHost, record: ThreadRecord, at: int | None = None) -> Found:
    return read_run(
        host.store.folder_of(record.thread_id),
        host.project_root.joinpath(*OBJECTS),
        record.thread_id,
        host.key.public,
        record.transcript_head,
        at=at,
    )
