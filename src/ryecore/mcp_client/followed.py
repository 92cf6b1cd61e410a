"""Tasks that calls wait for, also where their sessions break off: another session goes on.

This module doesn't import the SDK: a connector needs it before that is imported.

Source: ADR 056.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from attrs import define, field

from ryecore.errors import McpError

if TYPE_CHECKING:
    from ryecore.mcp_client.task_files import KeptTask

__all__ = ["AWAY_S", "FollowedTask", "Patience", "TaskInterrupted"]

AWAY_S: Final = 120.0
"""The seconds for which a server may be away, as while it is started again."""

_LASTS_S: Final = 10.0
"""The seconds after which a session isn't one that breaks off at once, again and again."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class Patience:
    """How long and how often a server is tried that can't be reached."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    @contextmanager
    def session(self) -> Iterator[None]:
        """Note a session, which is the block; one that lasted ends the search for it."""
        began = anyio.current_time()
        try:
            yield
        finally:
            if anyio.current_time() - began > _LASTS_S:
                self._since, self._pause_s = None, _FIRST_PAUSE_S

    async def wait(self) -> bool:
        """Wait until it is to be tried again, each time longer; return whether it is."""
        now = anyio.current_time()
        self._since = now if self._since is None else self._since
        if now - self._since > AWAY_S:
            return False
        await anyio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True


@define(eq=False)
class FollowedTask:
    """A task that a call waits for.

    Attributes:
        task_id: The server's id of it.
        output_schema: The schema of what its tool returns; None where it declares none.
        state: The task, as the server described it last.
        kept: Its file; None where there is none.
        began: When it began, by the event loop's clock.
        timeout_s: The seconds within which it has to end; None for no bound.
        answers: The answers to what it asks.
        told: The last progress message that was reported.
        changes: How many were.
    """

    task_id: str
    output_schema: Any
    state: Any
    kept: "KeptTask | None"
    timeout_s: float | None
    answers: Any
    began: float = field(factory=anyio.current_time)
    told: str = ""
    changes: int = 0
    is_open: bool = True

    @property
    def deadline(self) -> float:
        """When it has to have ended, by the event loop's clock."""
        return math.inf if self.timeout_s is None else self.began + self.timeout_s

    def close(self, *, is_settled: bool = False) -> None:
        """Wait for it no longer; one that isn't settled is left for another session to cancel."""
        if not self.is_open:
            return
        self.is_open = False
        if self.kept is not None:
            with self.kept:
                if is_settled:
                    self.kept.forget()

    def lost(self, why: McpError | None) -> dict[str, object]:
        """Return the document of its call, where no session can follow it any more."""
        said = "its server broke off" if why is None else why.message
        return {
            "success": False,
            "error": f"The task {self.task_id} can't be followed: {said}",
            "effect_unknown": True,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()


class TaskInterrupted(Exception):
    """The session has broken off in which a task was followed.

    Attributes:
        task: The task, which whoever catches this has to close.
    """

    def __init__(self, task: FollowedTask) -> None:
        super().__init__(task.task_id)
        self.task = task
