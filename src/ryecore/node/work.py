"""A worker of a queue: it takes runs from DBOS, and carries them out in one open Rye.

DBOS keeps the order of the queue, its priorities, its bounds and its rate, and says which worker
gets a run. The lease of a run, and its fence, are in the registry; so DBOS may give a run to two
workers, and one of them waits.

Source: docs/design/queues.md; ADR 041.
"""

import logging
import math
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

import anyio
from dbos import DBOS, DBOSConfig
from sqlalchemy import exc

from ryecore.caches import BoundedDict
from ryecore.errors import RyeError
from ryecore.lillux.processes import current_process
from ryecore.llm.prices import bundled_context_tokens
from ryecore.node.hosts import HostOptions
from ryecore.node.work_projects import WorkerProjects
from ryecore.node.work_spaces import worker_spaces
from ryecore.remote.dbos_queue import (
    APPLICATION,
    RUN,
    VERSION,
    IdSerializer,
    QueueBounds,
    schema_of,
    set_up,
    url_of,
    workflow_of,
)
from ryecore.rye import Rye
from ryecore.state.owners import LEASE_S, is_lost
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.run_queue import RunQueue, WorkerRecord

__all__ = ["QueueWorker", "import_ahead", "poll_interval_s", "trying_again"]

_POLL_S: Final = 0.05
"""How often each of few workers with room polls for runs, in seconds: DBOS notifies none."""

_FEW_POLLING: Final = 4
"""The most workers that each poll every `_POLL_S`; more of them together poll as often as these."""

_LONGEST_POLL_S: Final = 1.0
"""How long one of many workers waits at most before it asks again, in seconds."""

_LOOK_EVERY_S: Final = 1.0
"""How often one of few workers looks whether another one has died, in seconds."""

_FEW: Final = 20
"""So many workers each look as often as one."""

_SWEEP_EVERY_S: Final = 5.0
_LEAST_AGE_S: Final = 10.0
"""How old a run is that its caller should have put into the queue by now, in seconds."""

_KEPT_S: Final = 24 * 3600.0
"""How long DBOS's rows of workflows that have ended are kept, in seconds."""

_MOST_FORGOTTEN: Final = 1_000
_OF_NODES: Final = "nodes"
"""The folder of the spaces of runs that nodes put into the queue; no snapshot has this name."""

_MAX_KNOWN: Final = 100_000

_OF_FIRST_RUN: Final = (
    "cattrs.gen.typeddicts",
    "defusedxml.ElementTree",
    "ryecore.actions.dispatch",
    "ryecore.actions.pruning",
    "ryecore.search.walk",
)
"""What a process imports for its first run, besides the prices of models."""

_log: Final = logging.getLogger("ryecore.node")


@contextmanager
def trying_again(what: str) -> Iterator[None]:
    """Log a failure of any kind, such as of DBOS's own: the next round tries again."""
    try:
        yield
    except RyeError as error:
        _log.warning("The worker can't %s now: %s", what, error)
    except exc.OperationalError as error:  # the server is away: a line, not its traceback
        kind = type(error.orig).__name__
        _log.warning("The worker can't %s now: the state's server failed with %s.", what, kind)
    except Exception:
        _log.warning("The worker can't %s now.", what, exc_info=True)


def import_ahead() -> None:
    """Import what the first run would wait for: about 0.2 s of processor time."""
    for name in _OF_FIRST_RUN:
        import_module(name)
    bundled_context_tokens("", "")  # the prices come with it, where they are installed


def poll_interval_s(workers: int) -> float:
    """Return how often each of some workers asks its queue for runs, in seconds."""
    return min(_POLL_S * max(workers / _FEW_POLLING, 1.0), _LONGEST_POLL_S)


class QueueWorker:
    """A worker of a queue. A process has one, as DBOS is one of a process.

    Args:
        rye: The open Rye, whose state is at `state`.
        open_rye: Opens a Rye of the same state and models in another project.
        folder: Where projects that travel become folders.
        state: The address of the state.
        queue: The queue.
        bounds: The bounds that the queue has from now on.
        options: What the Ryes get that are opened for runs of nodes.
    """

    def __init__(
        self,
        rye: Rye,
        open_rye: Callable[[Path], Rye],
        folder: Path,
        state: PostgresAddress,
        queue: str,
        bounds: QueueBounds,
        options: HostOptions,
    ) -> None:
        self._options = options
        self._rye = rye
        self._open_rye = open_rye
        self._folder = folder
        self._state = state
        self._queue = queue
        self._bounds = bounds
        host = socket.gethostname()
        self._record = WorkerRecord(
            worker_id=f"{host}-{os.getpid()}-{os.urandom(4).hex()}",
            queue=queue,
            concurrency=bounds.concurrency,
            host=host,
            project=str(rye.project),
            process=current_process(),
        )
        self._known: BoundedDict[str, bool] = BoundedDict(_MAX_KNOWN)
        self._running: Counter[str] = Counter()
        self._left: set[str] = set()
        self._poll_s = _POLL_S

    async def serve(
        self,
        stop: anyio.Event,
        *,
        grace_s: float = 30.0,
        announce: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Take runs and carry them out until `stop` is set.

        Args:
            stop: Ends the taking; runs may end for `grace_s` then.
            grace_s: How long runs may take to end by themselves, in seconds.
            announce: Called with the worker's id once it takes runs.

        Returns:
            How many runs had not ended: with the end of this process, other workers resume them.

        Raises:
            StateError: The state can't be reached as it begins.
        """
        cluster = self._rye.cluster
        queues = await cluster.queue()
        await anyio.to_thread.run_sync(set_up, self._state)
        await anyio.to_thread.run_sync(import_ahead)
        await queues.enter(self._record)
        place = self._folder / _OF_NODES
        async with (
            worker_spaces(self._rye, place, self._options) as spaces,
            anyio.create_task_group() as tasks,
        ):
            self._projects = WorkerProjects(
                self._rye, self._open_rye, self._folder, queues, cluster.travelling, tasks, spaces
            )
            self._launch()
            await self._register()
            announce(self._record.worker_id)
            tasks.start_soon(self._renew, queues)
            tasks.start_soon(self._look, queues)
            tasks.start_soon(self._sweep, queues)
            await stop.wait()
            await self._end_taking(grace_s)
            tasks.cancel_scope.cancel()
        if not self._running:
            with suppress(RyeError):
                await queues.leave(self._record.worker_id)
        return len(self._running)

    def _launch(self) -> None:
        """Launch DBOS on this event loop, which runs its workflows from now on."""
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_url": url_of(self._state),
            "dbos_system_schema": schema_of(self._state),
            "executor_id": self._record.worker_id,
            "application_version": VERSION,
            "serializer": IdSerializer(),
            "run_migrations": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)

        @DBOS.workflow(name=RUN, max_recovery_attempts=None)
        async def run(run_id: str) -> None:
            await self._run(run_id)

        DBOS.listen_queues([self._queue])
        DBOS.launch()

    async def _register(self) -> None:
        bounds = self._bounds
        self._dbos_queue = await DBOS.register_queue_async(
            self._queue,
            worker_concurrency=min(bounds.concurrency, bounds.total or bounds.concurrency),
            global_concurrency=bounds.total,
            limiter=None
            if bounds.rate is None
            else {"limit": bounds.rate, "period": bounds.period_s},
            polling_interval_sec=_POLL_S,
            on_conflict="always_update",
        )

    async def _run(self, run_id: str) -> None:
        """Carry a run out, as DBOS's workflow."""
        self._running[run_id] += 1
        try:
            await self._projects.carry_out(run_id)
        except Exception as problem:
            # DBOS would store its text, which may hold a secret.
            _log.exception("The workflow of %s failed.", run_id)
            raise RuntimeError(type(problem).__name__) from None
        finally:
            self._running[run_id] -= 1
            self._running += Counter()  # without those that are at zero

    async def _end_taking(self, grace_s: float) -> None:
        """Take no more runs, and wait for those that are running."""
        waits_s = math.ceil(grace_s) if self._running else 0
        end = partial(DBOS.destroy, workflow_completion_timeout_sec=waits_s)
        await anyio.to_thread.run_sync(end, abandon_on_cancel=True)

    # What workers do for each other

    async def _renew(self, queues: RunQueue) -> None:
        while True:
            await anyio.sleep(LEASE_S / 3)
            with suppress(RyeError):
                await queues.enter(self._record)

    async def _look(self, queues: RunQueue) -> None:
        """Put what dead workers were running back into the queue, and see how many there are."""
        workers = 1
        while True:
            await anyio.sleep(_LOOK_EVERY_S * max(1.0, workers / _FEW))
            with trying_again("look for dead workers"):
                known = await queues.workers()
                for one in known:
                    if is_lost(one.process, one.lease_until, one.lease_machine_s):
                        await self._bury(queues, one)
                workers = len(known)
                await self._share_polling(sum(one.queue == self._queue for one in known))

    async def _share_polling(self, workers: int) -> None:
        """Let many workers of the queue together poll as often as few do, which costs little."""
        poll_s = poll_interval_s(workers)
        if poll_s != self._poll_s:
            await self._dbos_queue.set_polling_interval_sec_async(poll_s)
            self._poll_s = poll_s

    async def _bury(self, queues: RunQueue, dead: WorkerRecord) -> None:
        left = await DBOS.list_workflows_async(
            status="PENDING",
            executor_id=dead.worker_id,
            load_input=False,
            load_output=False,
        )
        if left:
            ids = [one.workflow_id for one in left]
            await DBOS.resume_workflows_async(ids, queue_name=dead.queue)
        await queues.leave(dead.worker_id)

    async def _sweep(self, queues: RunQueue) -> None:
        """Put runs into the queue whose callers died before they did, and forget old workflows."""
        while True:
            with trying_again("look for runs that it was given and doesn't know"):
                await self._put_back()
            with trying_again("forget old workflows"):
                await self._forget_old()
            with trying_again("look for runs that are not in the queue"):
                waiting = await queues.waiting(self._queue, least_age_s=_LEAST_AGE_S)
                ids = [one.thread_id for one in waiting if one.thread_id not in self._known]
                await self._put_missing(queues, ids)
            await anyio.sleep(_SWEEP_EVERY_S)

    async def _put_back(self) -> None:
        """Put runs back into the queue that DBOS has given to this worker without its knowledge.

        That happens where the answer to DBOS's claim is lost, as when the server is restarted. They
        are seen twice before, since a run that was just given isn't known yet.
        """
        given = await DBOS.list_workflows_async(
            status="PENDING",
            executor_id=self._record.worker_id,
            load_input=False,
            load_output=False,
        )
        left = {one.workflow_id for one in given} - set(self._running)
        lost, self._left = left & self._left, left
        if lost:
            await DBOS.resume_workflows_async(sorted(lost), queue_name=self._queue)

    async def _forget_old(self) -> None:
        """Remove workflows that ended long ago from DBOS's tables. What they ran is kept here."""
        kept_s = max(_KEPT_S, self._bounds.period_s)
        before = datetime.now(UTC) - timedelta(seconds=kept_s)
        old = await DBOS.list_workflows_async(
            queue_name=self._queue,
            completed_before=before.isoformat(),
            limit=_MOST_FORGOTTEN,
            load_input=False,
            load_output=False,
        )
        if old:
            await DBOS.delete_workflows_async([one.workflow_id for one in old])

    async def _put_missing(self, queues: RunQueue, ids: Sequence[str]) -> None:
        for run_id in ids:
            kept = await queues.request_of(run_id)
            if kept is not None:
                workflow = workflow_of(run_id, self._queue, kept.priority)
                await DBOS.enqueue_workflow_with_options_async(workflow, run_id)
            self._known[run_id] = True
