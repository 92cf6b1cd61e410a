"""The calls and tasks of one open Rye, which end when it is closed."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack

from ryecore.errors import RyeClosed
from ryecore.lillux.event_loop import is_without_loop, shielded
from ryecore.lillux.os_errors import exhaustion_of

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

__all__ = ["Running", "Tasks"]

T = TypeVar("T")
Values = TypeVarTuple("Values")


class _Scopes(set["anyio.CancelScope"]):
    """The scopes of what runs; each is removed as it ends."""

    _idle: "anyio.Event | None" = None

    def end(self, scope: "anyio.CancelScope") -> None:
        """Remove a scope, and wake whoever waits for the last one."""
        self.discard(scope)
        if self._idle is not None and not self:
            self._idle.set()

    async def stop(self) -> None:
        """Cancel all, and wait until none is left."""
        for scope in tuple(self):
            scope.cancel()
        if self:
            from anyio import Event  # noqa: PLC0415 - where a loop runs

            self._idle = self._idle or Event()  # shared by all who wait
            with shielded():
                await self._idle.wait()


class Tasks:
    """The task group of one Rye. Closing it waits until every task has ended."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._scopes = _Scopes()
        self._is_stopped = False

    @property
    def are_possible(self) -> bool:
        """Whether tasks can be started: the Rye was entered, and isn't closed."""
        return self._group is not None and not self._is_stopped

    async def open(self) -> None:
        """Open the group; without an event loop there is none."""
        self._is_stopped = False
        if is_without_loop():
            return
        from anyio import create_task_group  # noqa: PLC0415 - where a loop runs

        self._group = await create_task_group().__aenter__()

    def start_soon(
        self, function: Callable[[Unpack[Values]], Awaitable[object]], *args: *Values
    ) -> None:
        """Start a task, which raises nothing but its cancellation."""
        if self._group is None:
            raise RuntimeError("Ask `are_possible` first.")
        from anyio import CancelScope  # noqa: PLC0415 - where a loop runs

        # Each task has its own scope: that of the group also spans the code of the Rye's user.
        scope = CancelScope()
        if self._is_stopped:  # let the task only clean up
            scope.cancel()
        self._scopes.add(scope)
        self._group.start_soon(self._scoped, scope, function, args)

    async def _scoped(
        self,
        scope: "anyio.CancelScope",
        function: Callable[..., Awaitable[object]],
        args: tuple[object, ...],
    ) -> None:
        try:
            with scope:
                await function(*args)
        finally:
            self._scopes.end(scope)

    async def stop(self) -> None:
        """Cancel all tasks, and wait until they have ended. Any task may call this."""
        self._is_stopped = True
        await self._scopes.stop()

    async def close(self) -> None:
        """Leave the group, in the task that opened it."""
        await self.stop()
        group, self._group = self._group, None
        if group is not None:
            await group.__aexit__(None, None, None)


class Running:
    """The calls in progress of one Rye."""

    def __init__(self) -> None:
        self.is_closed = False
        self._scopes = _Scopes()

    async def run(self, ref: object, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call about `ref`, and cancel it if this is closed meanwhile.

        A RyeClosed is raised then; where no descriptor, process, thread or memory is left, a
        ProcessError.
        """
        if self.is_closed:
            raise RyeClosed("This Rye is closed.", next_step="Open another one.").during(str(ref))
        if is_without_loop():
            return await _reporting_exhaustion(ref, call)
        from anyio import CancelScope  # noqa: PLC0415 - where a loop runs

        with CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await _reporting_exhaustion(ref, call)
            finally:
                self._scopes.end(scope)
        raise RyeClosed(
            "The Rye was closed while the call ran; nothing of it is left.",
            next_step="Open another one.",
        ).during(str(ref))

    async def aclose(self) -> None:
        """Cancel every call, and wait until none is left."""
        self.is_closed = True
        await self._scopes.stop()


async def _reporting_exhaustion(ref: object, call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except (OSError, RuntimeError, ExceptionGroup) as problem:
        used_up = exhaustion_of(problem)
        if used_up is None:
            raise
        raise used_up.during(str(ref)) from problem
