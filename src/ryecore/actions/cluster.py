"""The interface `rye.cluster` to the workers of a shared state, and to the runs in its queues."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from ryecore.actions.queue_runs import QueueRuns, queue_of
from ryecore.runs.tasks import Running
from ryecore.state.run_queue import RunQueue
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore
    from ryecore.threads.service import ThreadService

__all__ = ["Cluster"]


class Cluster:
    """The workers of a shared state, and the runs in its queues: `rye.cluster`."""

    def __init__(
        self,
        store: "Callable[[], ThreadStore]",
        threads: "Callable[[], ThreadService]",
        running: Running,
    ) -> None:
        self._store = store
        self._threads = threads
        self._running = running

    async def queue(self) -> RunQueue:
        """Return the queues of this Rye's state.

        Raises:
            StateError: It is in the project's folder, or can't be reached.
        """
        return queue_of(await run_in_thread(self._store))

    @cached_property
    def _runs(self) -> QueueRuns:
        return QueueRuns(self._store, self._threads)

    async def carry_out(self, run_id: str) -> None:
        """Bring a run of a queue to its end, as a worker does; see `rye node work`.

        Args:
            run_id: The run, or the first one of its chain.

        Raises:
            StateError: The state can't be reached, or has no such run.
        """

        async def carry_out() -> None:
            await self._runs.carry_out(run_id)

        await self._running.run(run_id, carry_out)
