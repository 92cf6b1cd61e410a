"""The runs that a node hands to the workers of a queue: put there, followed, and their outcome.

Source: docs/design/queues.md#runs-of-a-node.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from ryecore.actions.targets.queue_runs import queue_of
from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.policy import CallContext
from ryecore.policy.budget import Amount
from ryecore.remote.travelling import prune_snapshots
from ryecore.runs.handle import RunHandle
from ryecore.runs.host import RunHost
from ryecore.runs.queued_run import QueuedRun, QueuedSpace, needed_snapshots
from ryecore.runs.request import RunRequest
from ryecore.state.model import ThreadRecord
from ryecore.state.object_store import ObjectStore
from ryecore.state.owners import LEASE_S
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.remote.queued import QueuedRuns

__all__ = ["HandedRun", "HandedRuns"]


class HandedRun(RunHandle[ExecutionResult]):
    """The handle of a run of any item that a worker runs: its events, its end, a way to stop it."""

    @property
    def thread_id(self) -> str:
        """Its id."""
        return self._run_id

    @property
    @override
    def _resume_command(self) -> str:
        return f"rye threads show {self._run_id}"

    @override
    async def _read_result(self, record: ThreadRecord, total: Amount) -> ExecutionResult:
        stored = await self._host.registry.get_result(record.thread_id)
        stored = stored if isinstance(stored, Mapping) else {}
        is_well = record.status == "completed"
        return ExecutionResult(
            "success" if is_well else "error",
            self.item_id,
            stored.get("data"),
            None if is_well else str(stored.get("error") or record.status),
            ValidChain(()),
            0.0,
        )


class HandedRuns:
    """The runs that nodes hand to workers, in a state that both share.

    Args:
        queued: Returns what puts runs into queues.
        host: Returns the host of runs.
    """

    def __init__(self, queued: "Callable[[], QueuedRuns]", host: Callable[[], RunHost]) -> None:
        self._queued = queued
        self._host = host

    # The node's end

    async def put(
        self, request: RunRequest, ctx: CallContext, snapshot: str, space: QueuedSpace
    ) -> HandedRun:
        """Put a run into its queue, or find the one that its idempotency key has put there.

        Raises:
            RyeError: The state can't be reached, or the inputs can't be written.
        """
        run_id = await self._queued().hand_over(request, ctx, snapshot, space)
        return HandedRun(self._host(), run_id, str(request.ref))

    def find(self, run_id: str, item_id: str) -> HandedRun:
        """Return the handle of a run that was put into a queue before, or of one of its chain."""
        return HandedRun(self._host(), run_id, item_id)

    async def outcome(self, run_id: str) -> str:
        """Wait until the worker of a run has told its outcome; empty where none will.

        Raises:
            StateError: The state can't be reached.
        """
        store = await self._host().open_store()
        await store.prepare(run_id)  # its folder, in which changes are told
        async with store.watch(run_id) as watched:
            while True:
                kept = await queue_of(store.queue).request_of(run_id)
                if kept is None or kept.outcome is not None:
                    return "" if kept is None else kept.outcome or ""
                await watched.changed(LEASE_S)

    async def forget(self, run_id: str) -> None:
        """Remove what the worker of a run has sent, which the node has by now.

        Raises:
            StateError: The state can't be reached.
        """
        objects = await self.objects(run_id)
        await run_in_thread(lambda: objects.delete([one.sha256 for one in objects.list()]))

    async def prune(self, caller: str, used_before_s: float) -> None:
        """Remove what travelled for a node's caller and wasn't used since; not what a run needs.

        Args:
            caller: The fingerprint of the caller's key.
            used_before_s: The time of the last use: seconds since the epoch, at least a day ago.

        Raises:
            StateError: The state can't be reached.
            ConfigError: The objects are in the project's folder.
        """
        store = await self._host().open_store()
        kept = await needed_snapshots(queue_of(store.queue))
        if kept is None:
            return
        objects = await self.snapshots(caller)
        prune = partial(prune_snapshots, used_before_s=used_before_s, kept=kept, is_projects=False)
        await run_in_thread(prune, objects)

    # The worker's end

    async def document(self, run_id: str) -> QueuedRun | None:
        """Return the document of a run whose outcome hasn't been told; None for any other.

        Raises:
            StateError: The document has another version, or the state can't be reached.
        """
        kept = await queue_of((await self._host().open_store()).queue).request_of(run_id)
        return None if kept is None or kept.outcome is not None else QueuedRun.from_text(kept.body)

    async def copy_files(self, run_id: str) -> str:
        """Copy the log and the file of each run of a chain into its folder here.

        Returns:
            The id of the last one.

        Raises:
            StateError: The state can't be reached, or the folder was replaced.
            OSError: A file can't be written.
        """
        store = await self._host().open_store()
        ids = [run_id]
        while (record := await store.registry.get_thread(ids[-1])).continuation_thread_id:
            ids.append(record.continuation_thread_id)
        for one in ids:
            await store.copy_files(one)
        return ids[-1]

    async def tell(self, run_id: str, outcome: str) -> None:
        """Tell the node the outcome of a run that has ended.

        Raises:
            StateError: The state can't be reached.
        """
        store = await self._host().open_store()
        await queue_of(store.queue).put_outcome(run_id, outcome)

    # Both

    async def objects(self, run_id: str) -> ObjectStore:
        """Return the objects that the worker of a run sends to its node.

        Raises:
            ConfigError: They are in the project's folder.
        """
        store = await self._host().open_store()
        return await run_in_thread(store.handed_objects, run_id)

    async def snapshots(self, caller: str) -> ObjectStore:
        """Return the objects by which the projects of a node's caller travel to workers.

        Args:
            caller: The fingerprint of the caller's key.

        Raises:
            ConfigError: They are in the project's folder.
        """
        store = await self._host().open_store()
        return (await run_in_thread(store.travelling)).below(caller)
