"""What runs in an open Rye without anybody waiting for it."""

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple, Unpack

import anyio
from anyio.abc import TaskGroup

__all__ = ["Tasks"]

Values = TypeVarTuple("Values")


class Tasks:
    """The task group of one Rye. The block that it spans is left once all of it has ended."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._scopes: set[anyio.CancelScope] = set()
        self._is_stopped = False
        self._idle: anyio.Event | None = None

    @property
    def are_possible(self) -> bool:
        """Whether something can be started: the Rye was entered, and isn't closed."""
        return self._group is not None and not self._is_stopped

    async def open(self) -> None:
        """Open the group."""
        self._group = await anyio.create_task_group().__aenter__()
        self._is_stopped = False

    def start_soon(
        self, function: Callable[[Unpack[Values]], Awaitable[object]], *args: *Values
    ) -> None:
        """Start a task, which raises nothing but its cancellation."""
        if self._group is None:
            raise RuntimeError("Ask `are_possible` first.")
        # Each has a scope of its own: the group's is also around what the Rye's user does.
        scope = anyio.CancelScope()
        if self._is_stopped:  # it only comes to its end
            scope.cancel()
        self._scopes.add(scope)
        self._group.start_soon(self._scoped, scope, function, args)

    async def _scoped(
        self,
        scope: anyio.CancelScope,
        function: Callable[..., Awaitable[object]],
        args: tuple[object, ...],
    ) -> None:
        try:
            with scope:
                await function(*args)
        finally:
            self._scopes.discard(scope)
            if self._idle is not None and not self._scopes:
                self._idle.set()

    async def stop(self) -> None:
        """Cancel what runs, and wait until it has ended. Any task may call this."""
        self._is_stopped = True
        for scope in tuple(self._scopes):
            scope.cancel()
        if self._scopes:
            self._idle = self._idle or anyio.Event()
            with anyio.CancelScope(shield=True):
                await self._idle.wait()

    async def close(self) -> None:
        """Leave the group, in the task that opened it."""
        await self.stop()
        group, self._group = self._group, None
        if group is not None:
            await group.__aexit__(None, None, None)
