"""Keep the threads of this process alive in the registry, and bring them the wish to stop.

One watcher and one timer serve all threads of a Rye, however many there are.

Source: decisions 35 and 46.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread
from attrs import frozen

from ryecore.errors import RyeError, StateError
from ryecore.policy import CancelToken
from ryecore.state.liveness import LEASE_S
from ryecore.state.signs import Signs
from ryecore.state.store import ThreadStore

__all__ = ["Keeper"]

_RENEW_EVERY_S: Final = LEASE_S / 3


@frozen
class _Kept:
    fence: int
    token: CancelToken


class Keeper:
    """Looks after the threads that run in this process.

    Args:
        store: Opens the project's threads.
    """

    def __init__(self, store: Callable[[], ThreadStore]) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}

    def add(self, thread_id: str, fence: int, token: CancelToken) -> None:
        """Look after a thread from now on.

        Args:
            thread_id: The thread.
            fence: Its owner's.
            token: Cancelled where somebody wishes that it stops.
        """
        self._kept[thread_id] = _Kept(fence, token)

    def remove(self, thread_id: str) -> None:
        """Look after a thread no longer."""
        self._kept.pop(thread_id, None)

    def cancel_all(self) -> None:
        """Have every thread stop."""
        for kept in tuple(self._kept.values()):
            kept.token.cancel()

    async def run(self) -> None:
        """Look after them until this is cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._renew)
            group.start_soon(self._listen)

    async def _listen(self) -> None:
        store = self._store()
        async with Signs(store.folder) as watched:
            while True:
                if self._kept:
                    with suppress(StateError):  # that it can't be read is no wish to stop
                        for wished in await anyio.to_thread.run_sync(store.registry.wishes):
                            kept = self._kept.get(wished.thread_id)
                            if kept is not None:
                                kept.token.cancel()
                await watched.changed(LEASE_S)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(_RENEW_EVERY_S)
            registry = self._store().registry
            for thread_id, kept in tuple(self._kept.items()):
                try:
                    await anyio.to_thread.run_sync(registry.renew, thread_id, kept.fence)
                except RyeError:
                    with suppress(StateError):
                        found = await anyio.to_thread.run_sync(registry.get_thread, thread_id)
                        if found.fence != kept.fence and not found.ended:
                            kept.token.cancel()  # declared dead: what runs must not go on
