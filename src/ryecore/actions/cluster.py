"""The interface `rye.cluster` to the workers of a shared state, and to the runs in its queues.

Source: docs/design/queues.md.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from attrs import asdict, field

from ryecore.convert.prometheus import Sample, render_metrics
from ryecore.display.text import Rendered, StyledText, counted, duration, status_mark
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.runs.tasks import Running
from ryecore.state.owners import is_lost
from ryecore.state.run_queue import QueueLoad, RunQueue, WorkerRecord
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.actions.targets.handed_runs import HandedRuns
    from ryecore.actions.targets.remote_parts import RemoteParts
    from ryecore.errors import RyeError
    from ryecore.runs.queued_run import TakenRun
    from ryecore.state.lazy_store import LazyThreadStore
    from ryecore.state.object_store import ObjectStore

__all__ = ["METRICS", "Cluster", "ClusterStatus", "QueueStatus", "WorkerStatus"]


@frozen
class QueueStatus:
    """A queue, its load and its bounds.

    Attributes:
        name: Its name.
        waiting: The runs that wait for a worker.
        oldest_s: How long the first of them has waited, in seconds; 0 without one.
        running: The runs that workers have begun.
        workers: The workers that live.
        concurrency: The most runs of one worker at once; None where no worker has begun yet.
        total: The most runs of all workers at once; None for no bound.
        rate: The most runs that begin within `period_s`; None for no bound.
        period_s: The period of the rate, in seconds.
        begun: The runs that have begun in the last period, where there is a rate.
    """

    name: str
    waiting: int = 0
    oldest_s: float = 0.0
    running: int = 0
    workers: int = 0
    concurrency: int | None = None
    total: int | None = None
    rate: int | None = None
    period_s: float | None = None
    begun: int = 0


@frozen
class WorkerStatus:
    """A worker, its runs and its lease.

    Attributes:
        worker_id: Its id.
        queue: Its queue.
        host: The name of its machine.
        project: The project's folder there.
        pid: The number of its process there.
        started_at: When it began, in UTC.
        is_alive: Whether its lease is valid, and its process lives where that can be seen.
        lease_s: For how long its lease is valid yet, in seconds; negative once it is out.
        running: The runs that it has begun.
        run_lease_s: For how long the lease of one of them is valid yet that ends first, in seconds;
            None without a run.
    """

    worker_id: str
    queue: str
    host: str
    project: str
    pid: int
    started_at: str
    is_alive: bool
    lease_s: float
    running: int = 0
    run_lease_s: float | None = None


@frozen(repr=False)
class ClusterStatus(Rendered):
    """The queues of a shared state, and their workers.

    Attributes:
        queues: The queues, by name.
        workers: The workers, oldest first; dead ones until another has put their runs back.
    """

    queues: tuple[QueueStatus, ...] = field(default=())
    workers: tuple[WorkerStatus, ...] = field(default=())

    def to_dict(self) -> Mapping[str, object]:
        """Return it as a JSON-ready object."""
        return {
            "queues": [asdict(one) for one in self.queues],
            "workers": [asdict(one) for one in self.workers],
        }

    def render(self) -> StyledText:
        """Render it for a terminal or a notebook."""
        text = StyledText()
        for queue in self.queues:
            text.line((queue.name, "strong"), *_load_words(queue))
            text.line((f"  {_bounds_words(queue)}", "dim"))
        for worker in self.workers:
            mark = status_mark("running" if worker.is_alive else "problem")
            lease = f"lease {duration(max(worker.lease_s, 0))}" if worker.is_alive else "dead"
            text.line(
                mark,
                (worker.worker_id, "id"),
                f"  {worker.queue}  {counted(worker.running, 'run')}",
                (f"  {lease}  {worker.host}:{worker.project}", "dim"),
            )
        if not self.queues:
            text.line("no queue yet; start a worker with: rye node work")
        return text

    def metrics(self) -> str:
        """Return it in the text format of Prometheus."""
        return render_metrics(self.samples(), METRICS)

    def samples(self) -> Iterator[Sample]:
        """Yield it as samples of the metrics in `METRICS`."""
        return _samples(self)


METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "ryecore_queue_waiting_runs": ("gauge", "Runs that wait for a worker."),
    "ryecore_queue_oldest_wait_seconds": ("gauge", "How long the first waiting run has waited."),
    "ryecore_queue_running_runs": ("gauge", "Runs that workers have begun."),
    "ryecore_queue_workers": ("gauge", "Workers that live."),
    "ryecore_queue_worker_concurrency": ("gauge", "The most runs of one worker at once."),
    "ryecore_queue_total_concurrency": ("gauge", "The most runs of all workers at once."),
    "ryecore_queue_rate_limit": ("gauge", "The most runs that begin within the rate's period."),
    "ryecore_queue_rate_period_seconds": ("gauge", "The period of the rate."),
    "ryecore_queue_begun_runs": ("gauge", "Runs that have begun in the last period of the rate."),
    "ryecore_worker_up": ("gauge", "Whether a worker lives."),
    "ryecore_worker_lease_seconds": ("gauge", "For how long a worker's lease is valid yet."),
    "ryecore_worker_running_runs": ("gauge", "Runs that a worker has begun."),
}
"""The kind and the meaning of each metric of queues and workers."""


def _samples(status: ClusterStatus) -> Iterator[Sample]:
    for queue in status.queues:
        about = (("queue", queue.name),)
        yield "ryecore_queue_waiting_runs", about, queue.waiting
        yield "ryecore_queue_oldest_wait_seconds", about, queue.oldest_s
        yield "ryecore_queue_running_runs", about, queue.running
        yield "ryecore_queue_workers", about, queue.workers
        if queue.concurrency is not None:
            yield "ryecore_queue_worker_concurrency", about, queue.concurrency
        if queue.total is not None:
            yield "ryecore_queue_total_concurrency", about, queue.total
        if queue.rate is not None and queue.period_s is not None:
            yield "ryecore_queue_rate_limit", about, queue.rate
            yield "ryecore_queue_rate_period_seconds", about, queue.period_s
            yield "ryecore_queue_begun_runs", about, queue.begun
    for worker in status.workers:
        named = (("worker", worker.worker_id), ("queue", worker.queue), ("host", worker.host))
        yield "ryecore_worker_up", named, int(worker.is_alive)
        yield "ryecore_worker_lease_seconds", named, worker.lease_s
        yield "ryecore_worker_running_runs", named, worker.running


class Cluster:
    """The workers of a shared state, and the runs in its queues: `rye.cluster`."""

    def __init__(
        self,
        store: "LazyThreadStore",
        remote: "RemoteParts",
        running: Running,
    ) -> None:
        self._store = store
        self._remote = remote
        self._running = running

    async def status(self) -> ClusterStatus:
        """Return the queues of this Rye's state with their load and bounds, and the workers.

        Raises:
            StateError: The state is in the project's folder, or can't be reached.
            MissingExtra: The extra dbos isn't installed.
        """
        return await self._running.run("cluster", self._status)

    async def _status(self) -> ClusterStatus:
        from ryecore.actions.targets.queue_runs import queue_of  # noqa: PLC0415 - the store comes with it

        queue = queue_of(await run_in_thread(self._store.read_queue))
        bounds = await run_in_thread(self._remote.queued.bounds)
        loads, records = await queue.load(), await queue.workers()
        now = time.time()
        workers = tuple(_worker_status(one, loads, now) for one in records)
        names = {*bounds, *(one.queue for one in loads), *(one.queue for one in records)}
        queues: list[QueueStatus] = []
        for name in sorted(names):
            of_queue = [one for one in loads if one.queue == name]
            waiting = [one for one in of_queue if one.process is None]
            found = bounds.get(name)
            oldest_s = max((now - _unix_s(one.oldest_at) for one in waiting), default=0.0)
            queues.append(
                QueueStatus(
                    name,
                    waiting=sum(one.runs for one in waiting),
                    oldest_s=max(oldest_s, 0.0),
                    running=sum(one.runs for one in of_queue if one.process is not None),
                    workers=sum(one.queue == name and one.is_alive for one in workers),
                    concurrency=None if found is None else found.concurrency,
                    total=None if found is None else found.total,
                    rate=None if found is None else found.rate,
                    period_s=None if found is None or found.rate is None else found.period_s,
                    begun=0 if found is None else found.begun,
                )
            )
        return ClusterStatus(tuple(queues), workers)

    async def check(self, target: str = "remote") -> ClusterStatus:
        """Check that a remote is a queue of this Rye's state; return it with its workers.

        Args:
            target: `remote` or `remote:NAME`.

        Returns:
            The queue and its workers; without queues where no worker and no run has used it.

        Raises:
            RyeError: The remote is unknown, isn't a queue, or is one of another state.
            StateError: The state can't be reached.
            MissingExtra: The extra dbos isn't installed.
        """

        async def check() -> ClusterStatus:
            remote = self._remote.read().find(target)
            if remote.kind != "queue":
                raise InputError(
                    f"The remote {remote.name} isn't a queue.",
                    next_step=f"Check it: rye remote check {remote.name}",
                )
            _, name = await run_in_thread(self._remote.queued.place, remote)
            found = await self._status()
            return ClusterStatus(
                tuple(one for one in found.queues if one.name == name),
                tuple(one for one in found.workers if one.queue == name),
            )

        return await self._running.run("cluster", check)

    async def queue(self) -> RunQueue:
        """Return the queues of this Rye's state, as a worker uses them.

        Raises:
            StateError: It is in the project's folder, or can't be reached.
        """
        from ryecore.actions.targets.queue_runs import queue_of  # noqa: PLC0415 - brings the store

        return queue_of((await run_in_thread(self._store.open)).queue)

    def travelling(self) -> "ObjectStore":
        """Return the objects by which projects travel to workers. It waits for their server.

        Raises:
            ConfigError: They are in the project's folder.
        """
        return self._store.open().travelling()

    @property
    def handed(self) -> "HandedRuns":
        """The runs that nodes hand to workers, at either end."""
        return self._remote.handed

    async def carry_out(self, run_id: str, taken: "TakenRun | None" = None) -> None:
        """Bring a run of a queue to its end, as a worker does; see `rye node work`.

        Args:
            run_id: The run, or the first one of its chain.
            taken: The same run, where it was read already.

        Raises:
            StateError: The state can't be reached, or has no such run.
        """

        async def carry_out() -> None:
            await self._remote.queue_runs.carry_out(run_id, taken)

        await self._running.run(run_id, carry_out)

    async def fail(self, run_id: str, error: "RyeError") -> None:
        """End a run of a queue that this process can't carry out, with the reason.

        Args:
            run_id: The run, or the first one of its chain.
            error: Why.

        Raises:
            StateError: The state can't be reached, or has no such run.
        """
        await self._remote.queue_runs.fail(run_id, error)


def _worker_status(record: WorkerRecord, loads: Iterable[QueueLoad], now: float) -> WorkerStatus:
    own = [one for one in loads if one.process == record.process]
    lease_ends = [one.lease_until for one in own]
    return WorkerStatus(
        record.worker_id,
        record.queue,
        record.host,
        record.project,
        record.process.pid,
        record.started_at,
        is_alive=not is_lost(record.process, record.lease_until, record.lease_machine_s),
        lease_s=record.lease_until - now,
        running=sum(one.runs for one in own),
        run_lease_s=min(lease_ends) - now if lease_ends else None,
    )


def _unix_s(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _load_words(queue: QueueStatus) -> Iterator[str]:
    yield f"  {queue.waiting:,} waiting"
    if queue.waiting:
        yield f" for up to {duration(queue.oldest_s)}"
    yield f", {queue.running:,} running, {counted(queue.workers, 'worker')}"


def _bounds_words(queue: QueueStatus) -> str:
    if queue.concurrency is None:
        return "no worker has begun yet"
    words = [f"at most {queue.concurrency:,} of one worker"]
    if queue.total is not None:
        words.append(f"{queue.total:,} of all")
    if queue.rate is not None and queue.period_s is not None:
        words.append(f"{queue.begun:,} of {queue.rate:,} begun in {queue.period_s:g} s")
    return ", ".join(words)
