"""The children of a thread that is about to end: none of them outlives it.

A child's budget is a part of its parent's, so the parent's account can be closed only after.
"""

import time

import anyio
import anyio.to_thread

from ryecore.state.store import ThreadStore

__all__ = ["end_children"]

_GRACE_S = 30.0


async def end_children(
    store: ThreadStore, thread_id: str, *, deadline: float | None, are_wanted: bool
) -> None:
    """Wait for the threads below one to end; ask them to stop where that is due.

    Args:
        store: The project's threads.
        thread_id: The thread.
        deadline: The monotonic time in seconds until which they may go on; None for no bound.
        are_wanted: Whether they may go on at all.
    """
    running = _running(store, thread_id)
    if not running:
        return
    if are_wanted:
        left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
        with anyio.move_on_after(left_s):
            await _all_ended(store, running)
            return
    for child in running:
        await anyio.to_thread.run_sync(store.cancel, child)
    with anyio.move_on_after(_GRACE_S):
        await _all_ended(store, running)


def _running(store: ThreadStore, thread_id: str) -> list[str]:
    children = store.registry.list_children(thread_id)
    return [child.thread_id for child in children if not child.ended]


async def _all_ended(store: ThreadStore, thread_ids: list[str]) -> None:
    async with anyio.create_task_group() as group:
        for thread_id in thread_ids:
            group.start_soon(store.wait, thread_id)
