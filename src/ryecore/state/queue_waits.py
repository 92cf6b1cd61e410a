"""Waiting for runs of queues, which workers begin, end, and take over from each other.

Source: docs/design/queues.md.
"""

from typing import Final

from ryecore.state.model import ThreadRecord
from ryecore.state.owners import LEASE_S, lacks_worker, next_sign
from ryecore.state.store import ThreadStore

__all__ = ["wait_for_continuation", "wait_for_worker"]

_LOOK_EVERY_S: Final = LEASE_S


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
