"""Give a thread or a run its id and its row.

Source: docs/design/threads.md#thread-ids; decision 36.
"""

import os
import time
from typing import Final

from attrs import frozen

from ryecore.errors import AlreadyStarted, ThreadConflict, ThreadNotFound
from ryecore.items.refs import ItemRef
from ryecore.state.model import Predecessor
from ryecore.state.registry import ThreadRegistry
from ryecore.state.start_keys import IdempotencyKey
from ryecore.state.thread_rows import SpawnLimit

__all__ = ["PARENT_ID", "Registered", "register_thread"]

PARENT_ID: Final = "RYE_PARENT_THREAD_ID"
"""The variable that tells a child's process whose child it is. By itself it proves nothing."""


@frozen
class Registered:
    """A thread that another process has registered, and this one has claimed.

    Attributes:
        thread_id: Its id.
        fence: Its owner's, as `ThreadRegistry.claim` gave it.
    """

    thread_id: str
    fence: int


def register_thread(
    registry: ThreadRegistry,
    ref: ItemRef,
    parent_id: str | None,
    follows: Predecessor | None = None,
    start: IdempotencyKey | None = None,
    spawns: SpawnLimit | None = None,
) -> str:
    """Register a thread.

    Args:
        registry: Where.
        ref: The directive, or the graph.
        parent_id: The thread that starts it.
        follows: What it goes on from.
        start: The idempotency key that it is started with.
        spawns: The parent's limit, which it is counted against; None where it was counted before.

    Returns:
        Its id: `ITEM/LEAF-EPOCH`, with a suffix where that is taken.

    Raises:
        AlreadyStarted: The same was started with this key.
        LimitReached: The parent has started as many children as it may.
        ThreadConflict: Another one goes on from the same already.
        StateError: Nothing can be written.
    """

    def register(thread_id: str) -> None:
        registry.register(
            thread_id, str(ref), parent_id, follows=follows, start=start, spawns=spawns
        )

    leaf = ref.id.rpartition("/")[2]
    thread_id = f"{ref.id}/{leaf}-{int(time.time())}"
    try:
        registry.get_thread(thread_id)
    except ThreadNotFound:
        try:
            register(thread_id)
        except AlreadyStarted:
            raise
        except ThreadConflict:
            pass  # another process was quicker
        else:
            return thread_id
    thread_id = f"{thread_id}-{os.urandom(4).hex()}"
    register(thread_id)
    return thread_id
