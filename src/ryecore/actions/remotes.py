"""The interface `rye.remotes` to the nodes that a project knows."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread

from ryecore.runs.tasks import Running

if TYPE_CHECKING:
    from ryecore.remote.config import Remote, RemotesReader
    from ryecore.remote.connection import NodePool
    from ryecore.remote.plan import PushPlan, PushPlanner

__all__ = ["Remotes"]


class Remotes:
    """The nodes that a project knows, and what travels to them."""

    def __init__(
        self,
        read: "RemotesReader",
        planner: "PushPlanner",
        nodes: "Callable[[], NodePool]",
        running: Running,
    ) -> None:
        self._read = read
        self._planner = planner
        self._nodes = nodes
        self._running = running

    def list(self) -> "tuple[Remote, ...]":
        """Return the remotes of remotes.yaml, by name.

        Raises:
            RyeError: A remotes.yaml isn't signed by a trusted key, or has problems.
        """
        return tuple(self._read())

    async def plan(self, target: str | None = None) -> "PushPlan":
        """Return what a push would send: every file, and what is left out. Nothing is sent.

        Args:
            target: `remote` or `remote:NAME`, whose `push.include` counts; by default the
                remote that is the default, or none.

        Raises:
            LinkLeavesSpace: A link among the files leaves the project.
            RyeError: The remote is unknown, or the files can't be read.
        """
        return await self._running.run("remotes", partial(self._plan, target))

    async def _plan(self, target: str | None) -> "PushPlan":
        remotes = self._read()
        include: tuple[str, ...] = ()
        if target is not None or remotes.default is not None or len(remotes.remotes) == 1:
            include = remotes.find(target or "remote").settings.push.include
        return await anyio.to_thread.run_sync(self._planner, include)
