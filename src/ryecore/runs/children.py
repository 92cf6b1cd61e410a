"""The children of a thread that is about to end: none of them outlives it.

A child's budget is a part of its parent's, so the parent's account can be closed only after.
"""

import anyio

from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread

__all__ = ["stop_children", "wait_for_children"]

_GRACE_S = 30.0


async def wait_for_children(store: ThreadStore, thread_id: str) -> None:
    """Wait until the threads that one has started have ended, and those that go on with them.

    Args:
        store: The project's threads.
        thread_id: The thread.
    """
    while running := _running(store, thread_id):
        for child in running:  # one after the other: the last is over when all are
            await store.wait(child)


async def stop_children(store: ThreadStore, thread_id: str) -> None:
    """Ask the threads that one has started to stop, and give them half a minute for it.

    Args:
        store: The project's threads.
        thread_id: The thread.
    """
    running = _running(store, thread_id)
    for child in running:
        await run_in_thread(store.cancel, child)
    if running:
        with anyio.move_on_after(_GRACE_S):
            await wait_for_children(store, thread_id)


def _running(store: ThreadStore, thread_id: str) -> list[str]:
    children = store.registry.list_children(thread_id)
    return [child.thread_id for child in children if not child.ended]
