"""Ensure that only one run continues an earlier one from its end.

Two would both take the next step. A fork of a thread begins a chain of its own, and isn't counted.

Source: decision 47.
"""

from collections.abc import Callable

from ryecore.errors import ThreadConflict
from ryecore.state.model import ThreadRecord
from ryecore.state.refusals import already_continued
from ryecore.state.store import ThreadStore

__all__ = ["idle_followers", "refuse_running"]


def refuse_running(record: ThreadRecord) -> None:
    """Refuse to continue a run that has not ended.

    Raises:
        ThreadConflict: It still runs.
    """
    if record.ended:
        return
    kind = "thread" if record.item_id.startswith("directive:") else "run"
    raise ThreadConflict(
        f"The {kind} {record.thread_id} still runs, so it can't be resumed.",
        next_step=f"Wait for it, or stop it: rye threads cancel {record.thread_id}",
        thread_id=record.thread_id,
        state=record.status,
    )


def idle_followers(
    store: ThreadStore,
    run_id: str,
    has_begun: Callable[[ThreadRecord], bool],
    next_step: Callable[[str], str],
) -> frozenset[str]:
    """Return the runs that were started to continue one, and ended before they did anything.

    Args:
        store: The project's threads.
        run_id: The run.
        has_begun: Whether a run that has ended did anything.
        next_step: The next step of the error, by the id of the run that continues it.

    Raises:
        ThreadConflict: Another run continues it, or did.
        StateError: The records of another one can't be read, or were altered.
    """
    idle: set[str] = set()
    for one in store.registry.list_following(run_id):
        if one.chain_root_id is None:
            continue
        record = store.look(one.thread_id)
        if not record.ended or has_begun(record):
            refused = already_continued(run_id, record.thread_id, record.status)
            refused.next_step = next_step(record.thread_id)
            raise refused
        idle.add(record.thread_id)
    return frozenset(idle)
