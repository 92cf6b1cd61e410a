"""The spaces of a worker, for runs that a node has put into its queue, and what it tells the node.

A space is made as on a node itself, of objects that the node has stored where both read them. Its
Rye has the shared state, and signs with the worker's own run key.

Source: docs/design/queues.md#runs-of-a-node.
"""

import fcntl
import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from attrs import evolve

from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import RyeError, StoreError
from ryecore.lillux.keys import PublicKey
from ryecore.node.callers import Caller
from ryecore.node.content import CallerContent, NodeContent
from ryecore.node.execution import collect, without_folder
from ryecore.node.files import remove_tree
from ryecore.node.hosts import Host, HostOptions, HostPool
from ryecore.node.outcome_documents import write_outcome
from ryecore.node.problems import NodeProblem
from ryecore.node.threads import Outcome, has_thread, outcome_of_rows, thread_outcome
from ryecore.remote.protocol.snapshots import Snapshot
from ryecore.runs.queued_run import QueuedRun
from ryecore.runs.tasks import Tasks
from ryecore.rye import Rye
from ryecore.state.object_store import ObjectStore
from ryecore.state.records import load_run_key
from ryecore.state.waiting import run_in_thread

__all__ = ["WorkerSpaces", "worker_spaces"]

_NO_BOUND_BYTES: Final = 2**60
_LOCK: Final = "worker.lock"


class WorkerSpaces:
    """The spaces of a worker, and what it tells nodes.

    Args:
        own: The worker's own Rye, through which it reaches the objects and the queues.
        content: Where objects and spaces are kept here.
        hosts: The open Ryes of the spaces.
    """

    def __init__(self, own: Rye, content: NodeContent, hosts: HostPool) -> None:
        self._own = own
        self._content = content
        self._hosts = hosts

    @asynccontextmanager
    async def borrow(self, run_id: str, run: QueuedRun) -> AsyncGenerator[Rye]:
        """Borrow the Rye of a run's space; once it is given back, the node is told the outcome.

        Raises:
            StoreError: The snapshot can't be had.
            StateError: The state can't be reached.
        """
        if run.space is None or run.snapshot is None:
            raise RuntimeError("Only the runs of nodes have a space.")
        key = PublicKey.from_pem(run.space.caller_key)
        caller = Caller(key, max_bytes=_NO_BOUND_BYTES, trust=run.space.trust)
        handed, content = self._own.cluster.handed, self._content.of(caller)
        collects = run.request.collect
        try:
            await run_in_thread(
                _fetch, await handed.snapshots(caller.fingerprint), run.snapshot, content
            )
            borrowed = self._hosts.borrow(caller, run.snapshot, alone=collects)
            async with borrowed as host:
                before = await run_in_thread(host.space.stats) if collects else {}
                yield host.rye
                outcome = await self._outcome(host, run_id, run, content)
                if collects:
                    outcome = await collect(host, before, content, outcome, str(run.request.ref))
                outcome = without_folder(outcome, host.space)
                await self._send(run_id, outcome, content)
        except (NodeProblem, OSError) as problem:
            raise _refused(problem) from problem

    async def _outcome(
        self, host: Host, run_id: str, run: QueuedRun, content: CallerContent
    ) -> Outcome:
        """Return the outcome of a run that has ended, and keep its files.

        Where it has removed the folder of its space, its row and its costs still tell.
        """
        if await has_thread(host, str(run.request.ref), run.ctx):
            with suppress(RyeError, OSError):
                last_id = await host.rye.cluster.handed.copy_files(run_id)
                report = await host.rye.threads.show(last_id)
                result = report.result if isinstance(report.result, Mapping) else {}
                return await thread_outcome(host, last_id, result, content)
        return await outcome_of_rows(self._own, run_id)

    async def _send(self, run_id: str, outcome: Outcome, content: CallerContent) -> None:
        """Send the files of an outcome, then the outcome itself."""
        handed = self._own.cluster.handed
        digests = outcome.digests
        if digests:
            await run_in_thread(_store, await handed.objects(run_id), digests, content)
        await handed.tell(run_id, write_outcome(outcome))


@asynccontextmanager
async def worker_spaces(
    own: Rye, folder: Path, options: HostOptions
) -> AsyncGenerator[WorkerSpaces]:
    """Open the spaces of a worker in a folder of their own, which is removed at the end.

    Args:
        own: The worker's own Rye.
        folder: The folder below which each worker has its own; what a dead one has left is removed.
        options: What the Ryes of spaces get besides the run key, and the keys that are trusted.
    """
    user = own.spaces.user.root
    run_key = await run_in_thread(load_run_key, user)
    listed = own.trust.listed()
    keys = tuple(one.key for one in listed if one.space == "user" and one.status == "trusted")
    options = evolve(options, operator_keys=keys, run_key=run_key.pem)
    with _folder_of_its_own(folder) as made:
        content = NodeContent(made, max_object_bytes=_NO_BOUND_BYTES, min_free_bytes=0)
        tasks = Tasks()
        hosts = HostPool(content, tasks, options)
        await tasks.open()
        try:
            tasks.start_soon(hosts.close_idle)
            yield WorkerSpaces(own, content, hosts)
        finally:
            await tasks.close()


@contextmanager
def _folder_of_its_own(folder: Path) -> Iterator[Path]:
    """Make a folder that is locked until the end of this process, and remove those of dead ones."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as held:
        with _locked(folder, wait=True):  # so that no folder is removed before it is locked
            for left in folder.iterdir():
                with suppress(OSError), _locked(left):
                    remove_tree(left)
            made = folder / f"{os.getpid()}-{os.urandom(4).hex()}"
            made.mkdir(mode=0o700)
            held.enter_context(_locked(made))
        try:
            yield made
        finally:
            with suppress(OSError):
                remove_tree(made)


@contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _fetch(objects: ObjectStore, snapshot_id: str, content: CallerContent) -> None:
    """Fetch a snapshot and those of its objects that aren't here.

    Raises:
        StoreError: One is missing, or was altered.
        NodeProblem: There is no room.
    """
    if content.snapshot(snapshot_id) is not None:
        return
    try:
        snapshot = RECORDS.read(json.loads(objects.get(snapshot_id)), Snapshot)
    except (ValueError, ConversionError):
        raise StoreError(
            f"The snapshot {snapshot_id} isn't a list of files.",
            next_step="Start the run again, with one version of ryecore for node and workers.",
        ) from None
    for one in content.take(snapshot):
        content.put(objects.read(one.sha256))


def _store(objects: ObjectStore, digests: frozenset[str], content: CallerContent) -> None:
    for digest in objects.missing(digests):
        with content.open(digest) as file:
            objects.put(iter(partial(file.read, 1024 * 1024), b""), sha256=digest)


def _refused(problem: NodeProblem | OSError) -> RyeError:
    if isinstance(problem, NodeProblem):
        return StoreError(problem.problem.title, next_step=problem.problem.next_step)
    return StoreError(
        f"The worker can't make the folders of the run: {problem.strerror or problem}.",
        next_step="Make room there, or name another folder: rye node work --spaces PATH",
    )
