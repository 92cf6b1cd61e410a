"""A node that can't be connected to any more, such as one whose remote was removed."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import NoReturn

from ryecore.errors import RemoteUnavailable, RyeError
from ryecore.items.refs import ItemRef
from ryecore.lillux.keys import PublicKey
from ryecore.remote.ports import Delivery, NodeEvent
from ryecore.remote.protocol.models import CancelBody, ExecuteBody, RunState

__all__ = ["LostNode"]


class LostNode:
    """Stands for a node that a run was sent to, so that the run can be stopped here.

    Args:
        remote: The name that its remote had.
        problem: Why it can't be connected to.
    """

    def __init__(self, remote: str, problem: RyeError) -> None:
        self._remote = remote
        self._problem = problem

    @property
    def remote(self) -> str:
        """The name that its remote had."""
        return self._remote

    @property
    def key(self) -> PublicKey:
        """Raise that it can't be reached."""
        self._fail()

    @property
    def caller(self) -> str:
        """Raise that it can't be reached."""
        self._fail()

    @property
    def spaces(self) -> Mapping[str, Path]:
        """Nothing at home has a copy there that is known."""
        return {}

    async def snapshot(self, ref: ItemRef) -> str:
        """Raise that it can't be reached."""
        self._fail()

    async def seal(self, ref: ItemRef) -> str | None:
        """Raise that it can't be reached."""
        self._fail()

    async def execute(self, body: ExecuteBody, *, delivery: Delivery | None = None) -> RunState:
        """Raise that it can't be reached."""
        self._fail()

    async def state(self, thread_id: str, *, wait_s: float = 0.0) -> RunState | None:
        """Raise that it can't be reached."""
        self._fail()

    async def events(self, thread_id: str, *, after: int = 0) -> AsyncGenerator[NodeEvent, None]:
        """Raise that it can't be reached."""
        self._fail()
        yield  # a generator, which never gets here

    async def cancel(self, thread_id: str, body: CancelBody) -> RunState | None:
        """Raise that it can't be reached."""
        self._fail()

    async def read_object(self, sha256: str, size_bytes: int, path: Path) -> None:
        """Raise that it can't be reached."""
        self._fail()

    def _fail(self) -> NoReturn:
        raise RemoteUnavailable(
            f"The node of the remote {self._remote} can't be reached: {self._problem.message}",
            next_step=self._problem.next_step,
            remote=self._remote,
        )
