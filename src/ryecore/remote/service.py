"""The runs at home of what nodes run: begun, and followed by whoever opens the project.

Source: docs/design/remote.md#at-home; decision 71.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio

from ryecore.caches import BoundedDict
from ryecore.errors import InputError, RemoteUntrusted, RyeError, ThreadConflict
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import current_process
from ryecore.policy import CallContext
from ryecore.remote.changes import PullReport, pull_changes
from ryecore.remote.late import correct, lacks_report
from ryecore.remote.lifecycle import FOLLOWED, RemoteLifecycle
from ryecore.remote.lost import LostNode
from ryecore.remote.ports import Node
from ryecore.remote.pull import find_report, pull_missing
from ryecore.remote.threads import RemoteThreadLifecycle
from ryecore.remote.tools import RemoteToolLifecycle
from ryecore.runs.host import RunHost
from ryecore.runs.request import RunRequest
from ryecore.state.model import RemotePlace, ThreadRecord
from ryecore.state.owners import lacks_follower
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.thread import Thread

__all__ = ["RemoteRuns"]

_LOOK_S: Final = 5.0
_ASK_EVERY_S: Final = 5.0
_MAX_ASKED: Final = 1_000


class RemoteRuns:
    """The runs of one open Rye that nodes carry out.

    Args:
        host: The host of runs.
        planner: The planner of directives.
        connect: Returns the node of a target, such as `remote:gpu`, or of the name of a remote.
    """

    def __init__(
        self, host: RunHost, planner: DirectivePlanner, connect: Callable[[str], Awaitable[Node]]
    ) -> None:
        self._host = host
        self._planner = planner
        self._connect = connect
        self._asked: BoundedDict[str, float] = BoundedDict(_MAX_ASKED)

    async def life(self, request: RunRequest, ctx: CallContext) -> RemoteLifecycle[Any]:
        """Return the lifecycle of a run on the node of the request's target."""
        return self._life(await self._connect(request.target), request, ctx)

    def _life(self, node: Node, request: RunRequest, ctx: CallContext) -> RemoteLifecycle[Any]:
        is_thread = request.ref.kind == "directive"
        kind = RemoteThreadLifecycle if is_thread else RemoteToolLifecycle
        return kind(self._host, node, self._planner, request, ctx)

    async def look(self, records: Iterable[ThreadRecord], *, must: bool = False) -> None:
        """Follow runs whose follower is gone, until the node has answered for each.

        A run that has ended there has ended here afterwards. A node that can't be reached changes
        nothing: the run continues there.

        Args:
            records: The rows.
            must: Whether to raise why a run can't be followed.
        """
        followed: list[tuple[Thread, RemoteLifecycle[Any]]] = []
        ended: list[ThreadRecord] = []
        for record in records:
            if record.ended:
                ended.append(record)
                continue
            try:
                found = await self._follow(record)
            except RyeError:
                if must:
                    raise
                continue
            if found is not None:
                followed.append(found)
        with anyio.move_on_after(_LOOK_S):
            async with anyio.create_task_group() as group:
                for record in ended:
                    group.start_soon(self._complete, record)
                for thread, life in followed:
                    group.start_soon(_wait_for_answer, thread, life)

    async def pull(self, record: ThreadRecord) -> PullReport:
        """Apply the project files that a run on a node changed; see `pull_changes`.

        Raises:
            InputError: It is no run on a node, has not ended, or the files weren't collected.
        """
        store = self._host.store
        report = await find_report(store, record)
        if report is None or report.changes is None:
            raise InputError(
                f"No changed files of {record.thread_id} were collected on a node.",
                next_step="Execute it with a remote target and pull (--pull).",
            )
        files, project = store.node_files(record.thread_id), self._host.project_root.parent
        return await pull_changes(await self._node_of(record), report.changes, project, files)

    async def _complete(self, record: ThreadRecord) -> None:
        """Ask for what an ended run lacks of its report and its files, once in a while."""
        store, now_s, thread_id = self._host.store, time.monotonic(), record.thread_id
        if self._asked.get(thread_id, -math.inf) > now_s - _ASK_EVERY_S:
            return
        self._asked[thread_id] = now_s
        with suppress(RyeError):
            if await lacks_report(store, record):
                await correct(store, record, await self._node_of(record))
            await pull_missing(store, record, partial(self._node_of, record))

    async def _node_of(self, record: ThreadRecord) -> Node:
        """Return the node of a run.

        Raises:
            RemoteUntrusted: The remote names another node by now.
        """
        place = record.place
        if place is None:
            raise RuntimeError("A run of this machine has no node.")
        node = await self._connect(f"remote:{place.remote}")
        if node.key.fingerprint != place.node:
            raise RemoteUntrusted(
                f"{record.thread_id} runs on the node {place.node}, and the remote {place.remote} "
                f"is {node.key.fingerprint} by now.",
                next_step="Add the node again under this name; to give the run up: "
                f"rye threads cancel {record.thread_id}",
                remote=place.remote,
            )
        return node

    async def _node_to_follow(self, record: ThreadRecord, place: RemotePlace) -> Node:
        """Return the node of a run; a lost one where the run is to be stopped without it.

        Raises:
            RyeError: The node can't be connected to, and the run wasn't asked to stop.
        """
        try:
            return await self._node_of(record)
        except RyeError as problem:
            if record.cancel_requested or record.kill_requested:
                return LostNode(place.remote, problem)
            give_up = f"rye threads cancel {record.thread_id}"
            if give_up not in problem.next_step:
                problem.next_step += f" To give the run up: {give_up}"
            raise

    async def _follow(self, record: ThreadRecord) -> tuple[Thread, RemoteLifecycle[Any]] | None:
        host = self._host
        key = (host.store.project, record.thread_id)
        is_left = record.owner == current_process() and key not in FOLLOWED
        if record.place is None or record.ended or not (is_left or lacks_follower(record)):
            return None
        if not host.tasks.are_possible:
            return None
        node = await self._node_to_follow(record, record.place)
        life = self._life(node, RunRequest(ItemRef.parse(record.item_id)), CallContext())
        host.supervisor.start(host.tasks)
        try:
            await life.adopt(record)
        except ThreadConflict:
            return None  # another one follows it now
        thread = Thread(host, record.thread_id, record.item_id, life)
        host.tasks.start_soon(thread.settle)
        return thread, life


async def _wait_for_answer(thread: Thread, life: RemoteLifecycle[Any]) -> None:
    """Wait until a node has answered that a run continues, or until its end is written."""

    async def wait_for_end() -> None:
        with suppress(RyeError):
            await thread.result()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(wait_for_end)
        await life.is_running.wait()
        group.cancel_scope.cancel()
