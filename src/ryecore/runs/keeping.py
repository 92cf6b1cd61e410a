"""Keep the threads of this process alive in the registry, and bring them the wish to stop.

One watcher and one timer serve all threads of a Rye, however many there are.

Source: decisions 35 and 46.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import anyio
from attrs import frozen

from ryecore.errors import RyeError, StateError, ThreadConflict
from ryecore.policy import CancelToken
from ryecore.runs.tasks import Tasks
from ryecore.runs.unwritten import Unwritten
from ryecore.state.liveness import LEASE_S
from ryecore.state.locking import run_in_thread
from ryecore.state.model import Status, ThreadRecord
from ryecore.state.signs import Signs
from ryecore.state.store import ThreadStore

__all__ = ["Keeper", "Kept", "tell_wish"]

T = TypeVar("T")

_RENEW_EVERY_S: Final = LEASE_S / 3
_OPEN_AGAIN_S: Final = 1.0


class Kept(Protocol):
    """A thread that is looked after."""

    cancellation: CancelToken
    """Cancelled where somebody wishes that it stops."""

    def want_handoff(self) -> None:
        """Have another thread go on with it."""
        ...


@frozen
class _Owed:
    """An end that couldn't be written."""

    fence: int
    status: Status
    result: object
    unwritten: Unwritten | None
    is_closed: bool


class Keeper:
    """Looks after the threads that run in this process.

    Args:
        store: Opens the project's threads.
    """

    def __init__(self, store: Callable[[], ThreadStore]) -> None:
        self._store = store
        self._kept: dict[str, tuple[int, Kept]] = {}
        self._owed: dict[str, _Owed] = {}
        self._is_running = False

    def start(self, tasks: Tasks) -> None:
        """Look after them from now on, as a task of the Rye; a second time does nothing."""
        if not self._is_running:
            self._is_running = True
            tasks.start_soon(self.run)

    async def during(self, tasks: Tasks, call: Callable[[], Awaitable[T]]) -> T:
        """Look after them at least while something runs, where the Rye was not entered.

        Args:
            tasks: The tasks of the Rye.
            call: What runs.

        Returns:
            What came of it.
        """
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

    def add(self, thread_id: str, fence: int, kept: Kept) -> None:
        """Look after a thread from now on.

        Args:
            thread_id: The thread.
            fence: Its owner's.
            kept: Told what somebody wishes.
        """
        self._kept[thread_id] = (fence, kept)

    def owe(
        self,
        thread_id: str,
        fence: int,
        status: Status,
        result: object,
        unwritten: Unwritten | None = None,
        *,
        is_closed: bool = False,
    ) -> None:
        """Write a thread's end as soon as that can be done: nobody else may while this one lives.

        Args:
            thread_id: The thread.
            fence: Its owner's.
            status: The status that it ends with.
            result: Its result, JSON-ready.
            unwritten: The costs to write first, because the end charges every open hold in full.
            is_closed: Whether its transcript is closed. An open one is closed with the end, with a
                record of each request that cost more than was held for it.
        """
        self._owed[thread_id] = _Owed(fence, status, result, unwritten, is_closed)

    def pay(self) -> None:
        """Try to write the ends that are owed."""
        for thread_id, owed in tuple(self._owed.items()):
            try:
                store, unwritten = self._store(), owed.unwritten
                if unwritten is not None:
                    unwritten.write(store.ledger)
                snapshot = None if unwritten is None else unwritten.cost
                store.settle(thread_id, owed.status, owed.result, owed.fence, snapshot=snapshot)
                told = () if unwritten is None or owed.is_closed else unwritten.overspent
                store.close_files(thread_id, told)
            except ThreadConflict:
                pass  # it has ended otherwise
            except StateError:
                continue
            self._owed.pop(thread_id, None)

    def remove(self, thread_id: str) -> None:
        """Look after a thread no longer."""
        self._kept.pop(thread_id, None)

    async def run(self) -> None:
        """Look after them until this is cancelled."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._renew)
                group.start_soon(self._listen)
        finally:
            self.pay()

    async def _opened(self) -> ThreadStore:
        """The store, once it can be opened. Whoever began a thread was told why it can't."""
        while True:
            with suppress(RyeError):
                return await run_in_thread(self._store)
            await anyio.sleep(_OPEN_AGAIN_S)

    async def _listen(self) -> None:
        store = await self._opened()
        async with Signs(store.folder) as watched:
            while True:
                if self._kept:
                    with suppress(StateError):  # that it can't be read is no wish to stop
                        for wished in await run_in_thread(store.registry.wishes):
                            _, kept = self._kept.get(wished.thread_id, (0, None))
                            if kept is not None:
                                tell_wish(wished, kept)
                await watched.changed(LEASE_S)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(_RENEW_EVERY_S)
            if self._owed:
                await run_in_thread(self.pay)
            for thread_id, (fence, kept) in tuple(self._kept.items()):
                try:
                    registry = self._store().registry
                    await run_in_thread(registry.renew, thread_id, fence)
                except RyeError:
                    with suppress(StateError):
                        registry = self._store().registry
                        found = await run_in_thread(registry.get_thread, thread_id)
                        if found.fence != fence and thread_id in self._kept:
                            kept.cancellation.cancel()  # declared dead: what runs must not go on


def tell_wish(record: ThreadRecord, kept: Kept) -> None:
    """Tell a thread what its row says that somebody wishes."""
    if record.cancel_requested or record.kill_requested:
        kept.cancellation.cancel()
    elif record.handoff_requested:
        kept.want_handoff()
