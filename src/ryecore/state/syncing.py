"""Syncs to disk, away from event loops and shared by whoever waits for one.

In machine durability a write on an event loop's thread goes to the operating system at once, and
to the disk before its effect: who causes the effect awaits `synced`. On any other thread a write
is synced before it returns.

Source: ADR 028; decision 38.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Final, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel

from ryecore.state.model import Durability
from ryecore.state.workers import SYNC_WORKERS

__all__ = ["INLINE_BYTES", "GroupSync", "is_event_loop", "run_off_loop"]

T = TypeVar("T")
Values = TypeVarTuple("Values")

INLINE_BYTES: Final = 128 * 1024
"""How much of a file an event loop reads itself, which takes a few milliseconds at most."""


def is_event_loop() -> bool:
    """Return whether this code runs in a task of an event loop, which a wait would hold up."""
    with suppress(RuntimeError):
        return anyio.get_current_task() is not None
    return False


async def run_off_loop(
    durability: Durability,
    work: Callable[[*Values], T],
    *values: *Values,
    reads_bytes: int = 0,
) -> T:
    """Call what writes or reads files, in a worker thread where that takes long.

    Args:
        durability: What is written survives that. In process durability no write waits for the
            disk, so a short call is made here, which is faster.
        work: What is called.
        values: What it is called with.
        reads_bytes: How many bytes it reads.

    Returns:
        What it returns.
    """
    if durability == "process" and reads_bytes <= INLINE_BYTES:
        return work(*values)
    return await SYNC_WORKERS.run(work, *values)


class GroupSync:
    """Syncs one file; writers that wait at the same time share a sync.

    Args:
        sync: Syncs the file. It is called in a worker thread where an event loop is.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._lock = Lock()
        self._written = 0
        self._synced = 0

    @property
    def is_behind(self) -> bool:
        """Whether something was written that is not synced."""
        return self._synced < self._written

    def after_write(self) -> None:
        """Count a write. Off an event loop it is synced before this returns.

        Raises:
            OSError: It can't be synced.
        """
        self._written += 1
        if not is_event_loop():
            self._sync_until(self._written)

    async def synced(self) -> None:
        """Wait until all that was written so far is synced.

        A sync is never cut short. A caller that is cancelled meanwhile is so once it is done, so
        that no effect follows whose intent waited here.

        Raises:
            OSError: It can't be synced.
        """
        until = self._written
        if self._synced < until:
            await SYNC_WORKERS.run(self._sync_until, until)
            await anyio.lowlevel.checkpoint_if_cancelled()

    def sync_now(self) -> None:
        """Sync what was written so far, on this thread.

        Raises:
            OSError: It can't be synced.
        """
        self._sync_until(self._written)

    def _sync_until(self, until: int) -> None:
        with self._lock:
            if self._synced >= until:
                return  # by the sync of another writer that waited
            covered = self._written
            self._sync()
            self._synced = covered
