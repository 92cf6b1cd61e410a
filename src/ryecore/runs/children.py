"""The children of a run: waited for, and asked to stop.

No child outlives its parent: its budget is part of the parent's, whose account closes last.
"""

from typing import Final

import anyio

from ryecore.state.store import ThreadStore

__all__ = ["stop_children", "wait_for_children"]

_CHILDREN_GRACE_S: Final = 30.0


async def wait_for_children(store: ThreadStore, run_id: str) -> None:
    """Wait until the children of a run, and those that continue them, have ended."""
    while running := await running_children(store, run_id):
        for child in running:
            await store.wait(child)


async def stop_children(store: ThreadStore, run_id: str) -> None:
    """Ask the children of a run to stop, and wait a bounded time for their end."""
    running = await running_children(store, run_id)
    for child in running:
        await store.cancel(child)
    if running:
        with anyio.move_on_after(_CHILDREN_GRACE_S):
            await wait_for_children(store, run_id)


async def running_children(store: ThreadStore, run_id: str) -> list[str]:
    """Return the ids of the children of a run that have not ended."""
    children = await store.registry.list_children(run_id)
    return [child.thread_id for child in children if not child.ended]
