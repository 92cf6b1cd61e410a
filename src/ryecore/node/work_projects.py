"""The runs of a worker in its open Ryes: of its project, of those that travelled, and of spaces.

Source: docs/design/queues.md.
"""

import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup
from attrs import define, field

from ryecore.actions.cluster import Cluster
from ryecore.errors import RyeError, StateError, StateUnreachable, StoreError, ThreadNotFound
from ryecore.remote.travelled import HeldProject, take_project
from ryecore.runs.queued_run import TakenRun
from ryecore.rye import Rye
from ryecore.state.object_store import ObjectStore
from ryecore.state.run_queue import RunQueue
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.node.work_spaces import WorkerSpaces

__all__ = ["WorkerProjects", "end_failed"]

_log: Final = logging.getLogger("ryecore.node")

_RETRY_S: Final = 1.0
_MAX_IDLE: Final = 4
"""The most projects that are kept open without a run."""


@define(eq=False)
class _Open:
    """A project that travelled here, with its Rye."""

    rye: Rye
    held: HeldProject
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
        spaces: The spaces of runs that nodes put into the queue; None where no node does.
    """

    def __init__(
        self,
        own: Rye,
        open_rye: Callable[[Path], Rye],
        folder: Path,
        queues: RunQueue,
        objects: Callable[[], ObjectStore],
        tasks: TaskGroup,
        spaces: "WorkerSpaces | None" = None,
    ) -> None:
        self._own = own
        self._open_rye = open_rye
        self._folder = folder
        self._queues = queues
        self._objects = objects
        self._tasks = tasks
        self._spaces = spaces
        self._lock = anyio.Lock()
        self._open: dict[str, _Open] = {}

    @asynccontextmanager
    async def borrow(self, run_id: str, taken: TakenRun | None) -> AsyncIterator[Rye]:
        """Borrow the Rye of the project of a run.

        Raises:
            StoreError: The project can't be had.
        """
        run = None if taken is None else taken.queued
        is_told = taken is None or taken.kept.outcome is not None
        if run is not None and run.space is not None and self._spaces is not None and not is_told:
            async with self._spaces.borrow(run_id, run) as rye:
                yield rye
            return
        snapshot = None if run is None or run.space is not None else run.snapshot
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

    async def carry_out(self, run_id: str) -> None:
        """Bring a run to its end in its project, however long the state can't be reached.

        A run that this process can't carry out ends with the reason.
        """
        while True:
            try:
                taken = await TakenRun.find(self._queues, run_id)
                async with self.borrow(run_id, taken) as rye:
                    await rye.cluster.carry_out(run_id, taken)
                return
            except StateUnreachable:
                pass
            except Exception as problem:  # of any kind: else nobody would end its row
                if await end_failed(self._own.cluster, run_id, problem):
                    return
            await anyio.sleep(_RETRY_S)

    async def _enter(self, snapshot: str) -> _Open:
        objects = await run_in_thread(self._objects)
        try:
            held = await run_in_thread(partial(take_project, objects, snapshot, self._folder))
        except OSError as problem:
            raise StoreError(
                f"The project can't be written to {self._folder}: {problem.strerror}.",
                next_step="Make room there, or name another folder: rye node work --spaces PATH",
            ) from problem
        try:
            made = _Open(self._open_rye(held.path), held)
            await self._tasks.start(self._hold, made)
        except BaseException:
            held.close()
            raise
        return made

    async def _hold(self, one: _Open, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Hold a Rye open until it is to be closed, in the task that has entered it."""
        with one.held:
            async with one.rye:
                task_status.started()
                await one.closing.wait()

    def _close_oldest(self) -> None:
        idle = [(one.used_at_s, name) for name, one in self._open.items() if not one.users]
        if len(idle) > _MAX_IDLE:
            self._open.pop(min(idle)[1]).closing.set()


async def end_failed(cluster: Cluster, run_id: str, problem: Exception) -> bool:
    """End a run that this process can't carry out, with the reason.

    Args:
        cluster: The runs of the state.
        run_id: The run.
        problem: Why. Of an error that isn't ryecore's only the type is told: its text may hold a
            secret.

    Returns:
        Whether it has ended: not where that can't be written now, so that it is to be tried again.
    """
    failed = problem
    if not isinstance(failed, RyeError):
        _log.error("The run %s failed in ryecore itself.", run_id, exc_info=problem)
        failed = StateError(
            f"ryecore itself failed: {type(problem).__name__}.",
            next_step=f"See the worker's log on {socket.gethostname()}, and report it.",
        )
    try:
        await cluster.fail(run_id, failed)
    except StateUnreachable:
        return False
    except ThreadNotFound:
        return True
    except RyeError as error:  # such as a full disk: else the run would wait for ever
        _log.warning("The run %s can't be ended now: %s", run_id, error)
        return False
    return True
