"""The supervisor that keeps runs alive in the registry, and passes them requests to stop.

A run is a thread or the run of a graph. One watcher and one timer serve all runs of a Rye.

Source: decisions 35 and 46.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import anyio

from ryecore.agent.settlements import Unwritten
from ryecore.errors import RyeError, StateError, ThreadConflict, ThreadNotFound
from ryecore.frozen import frozen
from ryecore.lillux.processes import current_process
from ryecore.policy import CancelToken
from ryecore.runs.tasks import Tasks
from ryecore.state.model import Status, ThreadRecord
from ryecore.state.owners import LEASE_S
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread

__all__ = ["Supervised", "Supervisor", "pass_on_requests"]

T = TypeVar("T")

_RENEW_EVERY_S: Final = LEASE_S / 3
_OPEN_AGAIN_S: Final = 1.0
_LOST_AFTER_S: Final = LEASE_S - 10.0
"""How long after the last renewal a lease counts as lost here: before it does elsewhere."""


class Supervised(Protocol):
    """A thread, or the run of a graph, that is supervised."""

    cancellation: CancelToken
    """Cancelled when the run is asked to stop."""

    def want_handoff(self) -> None:
        """Hand the work to another thread."""
        ...

    async def settle_spending(self) -> None:
        """Settle what the run has spent so far."""
        ...

    def lose_lease(self) -> None:
        """Stop the run, where others may take it over because its lease is out."""
        ...


@frozen
class _DeferredEnd:
    """The end of a run that could not be written yet; see `Supervisor.defer`."""

    fence: int | None
    status: Status
    result: object
    unwritten: Unwritten | None
    is_closed: bool


class Supervisor:
    """The supervisor of the runs of this process."""

    def __init__(self, store: Callable[[], ThreadStore]) -> None:
        self._store = store
        self._supervised: dict[str, tuple[int, Supervised]] = {}
        self._renewed: dict[str, float] = {}
        self._deferred: dict[str, _DeferredEnd] = {}
        self._is_running = False

    def start(self, tasks: Tasks) -> None:
        """Supervise as a task of the Rye, once."""
        if not self._is_running:
            self._is_running = True
            tasks.start_soon(self.run)

    async def during(self, tasks: Tasks, call: Callable[[], Awaitable[T]]) -> T:
        """Supervise for the duration of a call, also where the Rye was not entered."""
        if tasks.are_possible:
            self.start(tasks)
            return await call()
        failed: Exception | None = None
        async with anyio.create_task_group() as own:
            own.start_soon(self.run)
            try:
                return await call()
            except Exception as error:  # which the group would wrap
                failed = error
            finally:
                own.cancel_scope.cancel()
        raise failed or AssertionError("the task group is left by the return above")

    def add(self, thread_id: str, fence: int, run: Supervised) -> None:
        """Supervise a run, which receives requests to stop or to hand off."""
        self._supervised[thread_id] = (fence, run)
        self._renewed[thread_id] = time.monotonic()

    def defer(
        self,
        thread_id: str,
        fence: int | None,
        status: Status,
        result: object,
        unwritten: Unwritten | None = None,
        *,
        is_closed: bool = False,
    ) -> None:
        """Write the end of a run as soon as possible. No other process may while this one lives.

        Without a fence, the server's answer was lost as the run was registered or claimed, and
        nothing of it ran: it is ended if it is a run of this process.

        The unwritten costs come first, because the end charges every open hold in full. A
        transcript that isn't closed is closed then, with a record of each request that cost more
        than was held for it.
        """
        self._deferred[thread_id] = _DeferredEnd(fence, status, result, unwritten, is_closed)

    async def flush(self) -> None:
        """Try to write the ends that were deferred."""
        for thread_id, end in tuple(self._deferred.items()):
            try:
                await self._write_end(thread_id, end)
            except (ThreadConflict, ThreadNotFound):
                pass  # another process has ended it, or it was never registered
            except StateError:
                continue
            self._deferred.pop(thread_id, None)

    async def _write_end(self, thread_id: str, end: _DeferredEnd) -> None:
        store, unwritten, fence = self._store(), end.unwritten, end.fence
        if fence is None:
            row = await store.registry.get_thread(thread_id)
            if row.owner != current_process():
                return
            fence = row.fence
            await store.free_start_key(thread_id)
        if unwritten is not None:
            await unwritten.write(store.ledger)
        snapshot = None if unwritten is None else unwritten.cost
        await store.settle(thread_id, end.status, end.result, fence, snapshot=snapshot)
        overspent = () if unwritten is None or end.is_closed else unwritten.overspent
        await store.close_files(thread_id, overspent)

    def remove(self, thread_id: str) -> None:
        """Stop supervising a run."""
        self._supervised.pop(thread_id, None)
        self._renewed.pop(thread_id, None)

    async def run(self) -> None:
        """Supervise until cancelled."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._renew)
                group.start_soon(self._watch_leases)
                group.start_soon(self._listen)
        finally:
            with anyio.CancelScope(shield=True):
                await self.flush()

    async def _opened(self) -> ThreadStore:
        """Return the store once it can be opened. The start of a run reports why it can't."""
        while True:
            with suppress(RyeError):
                return await run_in_thread(self._store)
            await anyio.sleep(_OPEN_AGAIN_S)

    async def _listen(self) -> None:
        store = await self._opened()
        async with store.watch_requests() as watched:
            while True:
                if self._supervised:
                    with suppress(StateError):  # an unreadable row isn't a request to stop
                        for record in await store.registry.pending_requests():
                            _, run = self._supervised.get(record.thread_id, (0, None))
                            if run is not None:
                                pass_on_requests(record, run)
                await watched.changed(LEASE_S)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(_RENEW_EVERY_S)
            if self._deferred:
                await self.flush()
            for thread_id, (fence, run) in tuple(self._supervised.items()):
                try:
                    registry, began_s = self._store().registry, time.monotonic()
                    await registry.renew(thread_id, fence)
                    if thread_id in self._renewed:
                        self._renewed[thread_id] = began_s
                except RyeError:
                    with suppress(StateError):
                        registry = self._store().registry
                        found = await registry.get_thread(thread_id)
                        if found.fence != fence and thread_id in self._supervised:
                            run.cancellation.cancel()  # declared dead, so it must stop

    async def _watch_leases(self) -> None:
        """Stop runs that couldn't renew their lease, however long an attempt to do so takes."""
        while True:
            await anyio.sleep(LEASE_S - _LOST_AFTER_S)
            lost_before_s = time.monotonic() - _LOST_AFTER_S
            for thread_id, (_, run) in tuple(self._supervised.items()):
                if self._renewed[thread_id] < lost_before_s:
                    run.lose_lease()


def pass_on_requests(record: ThreadRecord, run: Supervised) -> None:
    """Pass the requests in the row of a run on to it: to stop, or to hand off."""
    if record.cancel_requested or record.kill_requested:
        run.cancellation.cancel()
    elif record.handoff_requested:
        run.want_handoff()
