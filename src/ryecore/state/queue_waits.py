"""Waiting for runs of queues, which workers begin, end, and take over from each other.

Source: docs/design/queues.md.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ryecore.state.model import ThreadRecord
from ryecore.state.owners import LEASE_S, lacks_worker, next_sign
from ryecore.state.store import ThreadStore

__all__ = ["wait_for_continuation", "wait_for_last", "wait_for_worker"]

_LOOK_EVERY_S: Final = LEASE_S


async def wait_for_last(
    store: ThreadStore,
    thread_id: str,
    timeout_s: float | None = None,
    *,
    follow: Callable[[ThreadRecord], Awaitable[None]],
) -> ThreadRecord:
    """Wait until a thread, and the threads that continue it, have ended, or the time is up.

    Args:
        store: The store.
        thread_id: The thread.
        timeout_s: How long to wait, in seconds; None for no bound.
        follow: Called for a thread that another machine runs; see `ThreadStore.wait`.

    Returns:
        The row of the last one.
    """
    with anyio.move_on_after(timeout_s):
        record = await store.wait(thread_id, follow=follow)
        while record.status == "continued":
            if record.continuation_thread_id is not None:
                record = await store.wait(record.continuation_thread_id, follow=follow)
            elif record.awaits_worker:
                record = await wait_for_continuation(store, record.thread_id)
            else:
                break
        return record
    return await store.registry.get_thread(await store.registry.last_of(thread_id))


async def wait_for_continuation(store: ThreadStore, thread_id: str) -> ThreadRecord:
    """Wait until a run whose worker died is continued by another one, or given up.

    Returns:
        Its row.
    """
    async with store.watch(thread_id) as watched:
        while True:
            record = await store.registry.get_thread(thread_id)
            if not record.awaits_worker:
                return record
            await watched.changed(_LOOK_EVERY_S)


async def wait_for_worker(store: ThreadStore, thread_id: str) -> ThreadRecord:
    """Wait until a run that another worker runs has ended, or that worker is dead.

    Returns:
        Its row.
    """
    async with store.watch(thread_id) as watched:
        while True:
            record = await store.look(thread_id)
            if record.ended or lacks_worker(record):
                return record
            await next_sign(watched, record)
