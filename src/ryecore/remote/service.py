"""The runs at home of what nodes run: begun, and followed by whoever opens the project.

Source: docs/design/remote.md#at-home; decision 71.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import anyio

from ryecore.errors import RyeError, ThreadConflict
from ryecore.items.refs import ItemRef
from ryecore.lillux.processes import current_process
from ryecore.policy import CallContext
from ryecore.remote.lifecycle import RemoteLifecycle
from ryecore.remote.ports import Node
from ryecore.runs.host import RunHost
from ryecore.runs.request import RunRequest
from ryecore.state.model import ThreadRecord
from ryecore.state.owners import lacks_follower
from ryecore.threads.planner.planning import DirectivePlanner
from ryecore.threads.thread import Thread

__all__ = ["RemoteRuns"]

_LOOK_S: Final = 2.0


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

    async def life(self, request: RunRequest, ctx: CallContext) -> RemoteLifecycle:
        """Return the lifecycle of a directive's thread on the node of the request's target."""
        node = await self._connect(request.target)
        return RemoteLifecycle(self._host, node, self._planner, request, ctx)

    async def look(self, records: Iterable[ThreadRecord]) -> None:
        """Follow runs whose follower is gone, and wait a moment for those that have ended.

        A node that can't be reached changes nothing: the run continues there.
        """
        followed = [one for one in [await self._follow(record) for record in records] if one]
        with anyio.move_on_after(_LOOK_S):
            for thread in followed:
                with suppress(RyeError):
                    await thread.result()

    async def _follow(self, record: ThreadRecord) -> Thread | None:
        host = self._host
        is_left = record.owner == current_process() and record.thread_id not in host.running
        if record.place is None or record.ended or not (is_left or lacks_follower(record)):
            return None
        if not host.tasks.are_possible or not record.item_id.startswith("directive:"):
            return None
        request = RunRequest(
            ItemRef.parse(record.item_id, "directive"), target=f"remote:{record.place.remote}"
        )
        try:
            life = await self.life(request, CallContext())
            host.supervisor.start(host.tasks)
            await life.adopt(record)
        except ThreadConflict:
            return None  # another process follows it now
        thread = Thread(host, record.thread_id, record.item_id, life)
        host.tasks.start_soon(thread.settle)
        return thread
