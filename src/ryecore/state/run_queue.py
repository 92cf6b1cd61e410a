"""Runs that wait in queues, and the workers that run them, on a server that machines share.

Source: docs/design/queues.md; ADR 041.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from attrs import field

from ryecore.frozen import frozen
from ryecore.lillux.processes import ProcessId
from ryecore.state.model import ThreadRecord

__all__ = ["QueueEntry", "QueueLoad", "QueuedRequest", "RunQueue", "WorkerRecord"]


@frozen
class QueuedRequest:
    """The request of a run in a queue.

    Attributes:
        body: The document of the run, as `runs/queued_run.py` writes it.
        priority: Its place in the queue: a lower number runs earlier.
        deadline: The Unix time in seconds when the run must have ended; None without one.
        takeovers: How often another worker has taken the run over.
        outcome: What its worker tells the node that has put it into the queue, once it has ended;
            empty where nothing but its row tells of its end.
    """

    body: str = field(repr=False)
    priority: int = 0
    deadline: float | None = None
    takeovers: int = 0
    outcome: str | None = field(default=None, repr=False)


@frozen
class WorkerRecord:
    """A worker of a queue.

    Attributes:
        worker_id: Its unique id, which is that of its executor in DBOS.
        queue: The queue.
        concurrency: How many runs it runs at once.
        host: The name of its machine.
        project: The project's folder there.
        process: The process.
        started_at: When it began, in UTC.
        lease_until: The Unix time in seconds until which it counts as alive elsewhere.
        lease_machine_s: The same within one boot, in seconds that the machine has been awake.
    """

    worker_id: str
    queue: str
    concurrency: int
    host: str
    project: str
    process: ProcessId
    started_at: str = ""
    lease_until: float = 0.0
    lease_machine_s: float = 0.0


@frozen
class QueueLoad:
    """How many runs of a queue wait, or run in one process.

    Attributes:
        queue: The queue.
        process: The process that runs them; None where they wait.
        runs: How many.
        oldest_at: When the oldest of them was registered, in UTC.
        lease_until: The Unix time in seconds of the lease among them that ends first; 0 where they
            wait.
    """

    queue: str
    process: ProcessId | None
    runs: int
    oldest_at: str
    lease_until: float = 0.0


QueueEntry: TypeAlias = tuple[str, Sequence[object]]
"""An SQL statement that puts a run into a queue of DBOS, and its values."""


class RunQueue(Protocol):
    """The requests of runs in queues, and the workers."""

    async def put(
        self, thread_id: str, request: QueuedRequest, entry: QueueEntry | None = None
    ) -> None:
        """Keep the request of a run, in the transaction that registers it.

        Args:
            thread_id: The run.
            request: Its request.
            entry: The statement that puts the run into its queue, in the same transaction; None
                where that is done later.
        """
        ...

    async def active(self) -> tuple[QueuedRequest, ...]:
        """Return the requests of all runs that have not ended."""
        ...

    async def find(self, thread_id: str) -> tuple[QueuedRequest, ThreadRecord] | None:
        """Return the request and the row of a run that was put into a queue; None without one."""
        ...

    async def request_of(self, thread_id: str) -> QueuedRequest | None:
        """Return the request of a run, or of the first one of its chain; None without one."""
        ...

    async def waiting(self, queue: str, *, least_age_s: float = 0.0) -> tuple[ThreadRecord, ...]:
        """Return the runs that no worker has begun, in the order in which they were registered.

        Args:
            queue: The queue.
            least_age_s: How long ago they were registered at least, in seconds.
        """
        ...

    async def end_dead(self, record: ThreadRecord) -> bool:
        """End a run whose worker is dead as `continued`, for another worker to resume it.

        What it held is charged in full, and its subtree is asked to stop.

        Returns:
            Whether it did: not if the row has changed since it was read.
        """
        ...

    async def begin_anew(self, record: ThreadRecord) -> bool:
        """Let a run whose worker died before its log began wait again, as if never begun."""
        ...

    async def give_up(self, thread_id: str, result: object) -> None:
        """End a run that `end_dead` has ended and that can't be resumed, as an error."""
        ...

    async def count_takeover(self, thread_id: str) -> int:
        """Count that another worker takes a run over, and return how often that was."""
        ...

    async def put_outcome(self, thread_id: str, outcome: str) -> None:
        """Keep the outcome of a run that has ended, unless it has one; wake who waits for it."""
        ...

    async def enter(self, worker: WorkerRecord) -> None:
        """Note a worker, with a new lease; also one that was removed meanwhile."""
        ...

    async def leave(self, worker_id: str) -> None:
        """Remove a worker."""
        ...

    async def load(self) -> tuple[QueueLoad, ...]:
        """Return how many runs wait in each queue, and run in each process."""
        ...

    async def workers(self) -> tuple[WorkerRecord, ...]:
        """Return the workers of all queues, oldest first."""
        ...
