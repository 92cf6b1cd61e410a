"""The runs at home of what nodes run: begun, and followed by whoever opens the project.

Source: docs/design/remote.md#at-home; decision 71.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import anyio

from ryecore.errors import RyeError, ThreadConflict
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import current_process
from ryecore.policy import CallContext
from ryecore.remote.lifecycle import FOLLOWED, RemoteLifecycle
from ryecore.remote.ports import Node
from ryecore.remote.threads import RemoteThreadLifecycle
from ryecore.remote.tools import RemoteToolLifecycle
from ryecore.runs.host import RunHost
from ryecore.runs.request import RunRequest
from ryecore.state.model import ThreadRecord
from ryecore.state.owners import lacks_follower
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.thread import Thread

__all__ = ["RemoteRuns"]

_LOOK_S: Final = 5.0


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

    async def life(self, request: RunRequest, ctx: CallContext) -> RemoteLifecycle[Any]:
        """Return the lifecycle of a run on the node of the request's target."""
        node = await self._connect(request.target)
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
        for record in records:
            try:
                found = await self._follow(record)
            except RyeError:
                if must:
                    raise
                continue
            if found is not None:
                followed.append(found)
        if not followed:
            return
        with anyio.move_on_after(_LOOK_S):
            async with anyio.create_task_group() as group:
                for thread, life in followed:
                    group.start_soon(_wait_for_answer, thread, life)

    async def _follow(self, record: ThreadRecord) -> tuple[Thread, RemoteLifecycle[Any]] | None:
        host = self._host
        key = (str(host.store.folder), record.thread_id)
        is_left = record.owner == current_process() and key not in FOLLOWED
        if record.place is None or record.ended or not (is_left or lacks_follower(record)):
            return None
        if not host.tasks.are_possible:
            return None
        request = RunRequest(ItemRef.parse(record.item_id), target=f"remote:{record.place.remote}")
        life = await self.life(request, CallContext())
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
