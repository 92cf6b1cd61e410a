"""The tasks that calls wait for, which outlive the sessions that they began in.

This module doesn't import the SDK: a connector needs it before that is imported.

Source: ADR 056.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from attrs import define, field

from ryecore.errors import McpError

if TYPE_CHECKING:
    from ryecore.mcp_client.task_files import KeptTask

__all__ = ["MAX_OUTAGE_S", "FollowedTask", "ReconnectBackoff", "TaskInterrupted"]

MAX_OUTAGE_S: Final = 120.0
"""The seconds for which a server may be unavailable, as while it is started again."""

_STABLE_S: Final = 10.0
"""A session that lasted for so many seconds ends an outage; a shorter one is a failed attempt."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class ReconnectBackoff:
    """The pauses between attempts to open a session with a server that is unavailable."""

    def __init__(self) -> None:
        self._out_since: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    @contextmanager
    def session(self) -> Iterator[None]:
        """Note that a session is open while the block runs."""
        began = anyio.current_time()
        try:
            yield
        finally:
            if anyio.current_time() - began > _STABLE_S:
                self._out_since, self._pause_s = None, _FIRST_PAUSE_S

    async def wait(self) -> bool:
        """Pause before the next attempt, each time longer; return False where none is left."""
        now = anyio.current_time()
        self._out_since = now if self._out_since is None else self._out_since
        if now - self._out_since > MAX_OUTAGE_S:
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
        kept: Its file; None where it ends with this process.
        began: When it began, by the event loop's clock.
        timeout_s: The seconds within which it has to end; None for no bound.
        answers: The answers to what it asks.
        last_message: The last progress message that was reported.
        messages: The number of those reported.
        is_open: Whether it is waited for.
    """

    task_id: str
    output_schema: Mapping[str, Any] | None
    state: Any
    kept: "KeptTask | None"
    timeout_s: float | None
    answers: Any
    began: float = field(factory=anyio.current_time)
    last_message: str = ""
    messages: int = 0
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

    def lost(self, error: McpError | None) -> dict[str, object]:
        """Return the document of its call where no session can follow it any more.

        Args:
            error: Why none can be opened; None where that isn't known.
        """
        reason = "its server broke off" if error is None else error.message
        return {
            "success": False,
            "error": f"The task {self.task_id} can't be followed: {reason}",
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
    """The session in which a task was followed has broken off.

    Attributes:
        task: The task, which whoever catches this has to close.
    """

    def __init__(self, task: FollowedTask) -> None:
        super().__init__(task.task_id)
        self.task = task
