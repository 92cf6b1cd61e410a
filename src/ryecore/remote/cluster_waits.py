"""Runs that wait for a worker of a Ray cluster: each is ended once the cluster lacks what it takes.

Ray itself lets them wait for ever. Whoever has sent a run, or waits for its end, looks.

Source: docs/design/ray.md#while-a-run-waits.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import anyio
from anyio import to_thread

from ryecore.errors import RyeError
from ryecore.remote.config import Remote, RemotesConfig
from ryecore.remote.ports import ClusterSender
from ryecore.remote.queue_address import RAY_QUEUE
from ryecore.remote.ray_rules import Lacked, look_interval_s
from ryecore.runs.host import RunHost
from ryecore.state.owners import lacks_worker
from ryecore.state.store import ThreadStore

__all__ = ["ClusterWaits", "waiting_of"]

T = TypeVar("T")


async def waiting_of(store: ThreadStore, queue: str, *, least_age_s: float = 0.0) -> frozenset[str]:
    """Return the runs of a queue that wait for a worker, each by the first one of its chain.

    Args:
        store: The threads.
        queue: The queue.
        least_age_s: How old those are at least that no worker has begun, in seconds.
    """
    if store.queue is None:
        return frozenset()
    waiting = [*await store.queue.waiting(queue, least_age_s=least_age_s)]
    active = await store.registry.list_active()
    waiting += [one for one in active if one.queue == queue and lacks_worker(one)]
    return frozenset(one.chain_root_id or one.thread_id for one in waiting)


class ClusterWaits:
    """Looks after the runs that wait for Ray clusters, as tasks of one open Rye.

    Args:
        host: The host of runs.
        remotes: Reads the remotes.
        sender: Connects to a cluster. It blocks.
        fail: Ends a run, unless a worker has it by now.
    """

    def __init__(
        self,
        host: RunHost,
        remotes: Callable[[], RemotesConfig],
        sender: Callable[[Remote], ClusterSender],
        fail: Callable[[str, RyeError], Awaitable[None]],
    ) -> None:
        self._host = host
        self._remotes = remotes
        self._sender = sender
        self._fail = fail
        self._looking: set[str] = set()
        self._limiter = anyio.CapacityLimiter(math.inf)  # others wait for processes and files

    def look_after(self, queue: str) -> None:
        """Look after the runs of a cluster's queue, until none of them waits."""
        tasks = self._host.tasks
        if queue.startswith(RAY_QUEUE) and queue not in self._looking and tasks.are_possible:
            self._looking.add(queue)
            tasks.start_soon(self._look_after, queue)

    async def _look_after(self, queue: str) -> None:
        lacked = Lacked()
        try:
            remote = self._remotes().find(f"remote:{queue.removeprefix(RAY_QUEUE)}")
            patience_s = remote.settings.patience_s
            while True:
                await anyio.sleep(look_interval_s(patience_s))
                waiting = await waiting_of(await self._host.open_store(), queue)
                if not waiting:
                    return
                sender = await self._in_thread(partial(self._sender, remote))
                lacking = await self._in_thread(partial(sender.lacking, waiting))
                await self._end_hopeless(sender, lacking, lacked, patience_s)
        except RyeError:  # who waits for a run asks again within a minute
            return
        finally:
            self._looking.discard(queue)

    async def _end_hopeless(
        self,
        sender: ClusterSender,
        lacking: Mapping[str, RyeError],
        lacked: Lacked,
        patience_s: float,
    ) -> None:
        """End the runs for whose resources no node was there for long enough."""
        for run_id in lacked.longer_than(patience_s, lacking, time.monotonic()):
            await self._fail(run_id, lacking[run_id])
            await self._in_thread(partial(sender.forget, run_id))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._limiter)
