"""The open Ryes of a worker: of its own project, and of the projects that travelled to it.

Source: docs/design/queues.md.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup
from attrs import define, field

from ryecore.errors import StoreError
from ryecore.remote.travelling import take_project
from ryecore.runs.queued_run import QueuedRun
from ryecore.rye import Rye
from ryecore.state.object_store import ObjectStore
from ryecore.state.run_queue import RunQueue
from ryecore.state.waiting import run_in_thread

__all__ = ["WorkerProjects"]

_MAX_IDLE: Final = 4
"""The most projects that are kept open without a run."""


@define(eq=False)
class _Open:
    """A project that travelled here, with its Rye."""

    rye: Rye
    users: int = 0
    used_at_s: float = 0.0
    closing: anyio.Event = field(factory=anyio.Event)


class WorkerProjects:
    """The open Ryes of a worker.

    Args:
        own: The Rye of the worker's project, for runs whose project doesn't travel.
        open_rye: Opens a Rye of the same state and models in another project.
        folder: Where projects that travel become folders.
        queues: The queues.
        objects: Returns the objects by which they travel.
        tasks: What holds the Ryes open.
    """

    def __init__(
        self,
        own: Rye,
        open_rye: Callable[[Path], Rye],
        folder: Path,
        queues: RunQueue,
        objects: Callable[[], ObjectStore],
        tasks: TaskGroup,
    ) -> None:
        self._own = own
        self._open_rye = open_rye
        self._folder = folder
        self._queues = queues
        self._objects = objects
        self._tasks = tasks
        self._lock = anyio.Lock()
        self._open: dict[str, _Open] = {}

    @asynccontextmanager
    async def borrow(self, run_id: str) -> AsyncIterator[Rye]:
        """Borrow the Rye of a run's project.

        Raises:
            StoreError: The project can't be had.
        """
        kept = await self._queues.request_of(run_id)
        snapshot = None if kept is None else QueuedRun.from_text(kept.body).snapshot
        if snapshot is None:
            yield self._own
            return
        async with self._lock:
            found = self._open.get(snapshot)
            if found is None:
                found = self._open[snapshot] = await self._enter(snapshot)
            found.users += 1
        try:
            yield found.rye
        finally:
            found.users -= 1
            found.used_at_s = time.monotonic()
            self._close_oldest()

    async def _enter(self, snapshot: str) -> _Open:
        objects = await run_in_thread(self._objects)
        try:
            project = await run_in_thread(partial(take_project, objects, snapshot, self._folder))
        except OSError as problem:
            raise StoreError(
                f"The project can't be written to {self._folder}: {problem.strerror}.",
                next_step="Make room there, or name another folder: rye node work --spaces PATH",
            ) from problem
        made = _Open(self._open_rye(project))
        await self._tasks.start(self._hold, made)
        return made

    async def _hold(self, one: _Open, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Hold a Rye open until it is to be closed, in the task that has entered it."""
        async with one.rye:
            task_status.started()
            await one.closing.wait()

    def _close_oldest(self) -> None:
        idle = [(one.used_at_s, name) for name, one in self._open.items() if not one.users]
        if len(idle) > _MAX_IDLE:
            self._open.pop(min(idle)[1]).closing.set()
