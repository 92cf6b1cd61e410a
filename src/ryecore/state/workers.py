"""Worker threads for what waits for a disk or for a lock.

They are limited apart from anyio's own limit, which is the host's: a burst of waits here keeps no
work of the host's waiting, and the host's work keeps no lease from being renewed.

Source: ADR 028.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

__all__ = ["STATE_WORKERS", "SYNC_WORKERS", "Workers"]

T = TypeVar("T")
Values = TypeVarTuple("Values")


class Workers:
    """Runs work in worker threads; more than fit at once wait for each other.

    Args:
        name: What they do, as the limit of each event loop is called.
        most: How many run at once on behalf of an event loop.
    """

    def __init__(self, name: str, most: int) -> None:
        self._most = most
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(name)

    async def run(self, work: Callable[[*Values], T], *values: *Values) -> T:
        """Run work in a worker thread. A cancelled caller waits until it is done.

        Args:
            work: What is run.
            values: What it is called with.

        Returns:
            What it returns.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._most)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=limiter)


SYNC_WORKERS: Final = Workers("ryecore_syncs", 32)
"""For syncs, and for writing and reading files. None of it waits for another process's lock."""

STATE_WORKERS: Final = Workers("ryecore_state", 32)
"""For what uses the registry, and may wait for a lock."""
