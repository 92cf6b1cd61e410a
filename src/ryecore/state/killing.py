"""End the processes of a thread, of all below it, and of the tools that they run.

Source: decision 46; SECURITY.md#what-is-promised.
"""

import time
from typing import TYPE_CHECKING, Final

from ryecore.errors import ProcessError, StateError
from ryecore.lillux.processes import kill_processes
from ryecore.policy.context import THREAD_MARK, thread_mark
from ryecore.state.liveness import is_abandoned

if TYPE_CHECKING:
    from ryecore.state.model import ThreadRecord
    from ryecore.state.registry import ThreadRegistry

__all__ = ["KillPlan"]

_LOOK_EVERY_S: Final = 0.02


class KillPlan:
    """The processes to kill with a thread, read from the registry before any is asked to stop.

    The row of a run that its owner ends when asked no longer names the process.

    Args:
        registry: The project's threads.
        project: The project's folder, with links resolved.
        thread_id: The thread.
    """

    def __init__(self, registry: "ThreadRegistry", project: str, thread_id: str) -> None:
        self._registry = registry
        self._project = project
        self._thread_id = thread_id
        self._spared = registry.processes_beside(thread_id)
        owners = registry.processes_of(thread_id)
        self._owners = [one for one in owners if one not in self._spared]

    def carry_out(self, grace_s: float) -> None:
        """Kill them, and wait until they have ended.

        A thread that shares its process with others was asked to stop. Its owner has the grace to
        end its tools; then they are killed, and the process is not.

        Args:
            grace_s: How long they may take to end by themselves, in seconds.

        Raises:
            StateError: A process can't be ended from here.
        """
        until = time.monotonic() + grace_s
        try:
            kill_processes(self._owners, grace_s, spared=self._spared)
            while self._is_under_way() and time.monotonic() < until:
                time.sleep(_LOOK_EVERY_S)
            # Meanwhile one of them may have been handed off.
            ids = [one.thread_id for one in self._rows()]
            marks = [(THREAD_MARK, thread_mark(self._project, one)) for one in ids]
            kill_processes((), 0, spared=self._spared, marks=marks)
        except ProcessError as problem:
            raise StateError(
                f"The thread {self._thread_id} can't be killed from here: {problem.message}",
                next_step="Ask it to stop instead: rye threads cancel",
            ) from problem

    def _is_under_way(self) -> bool:
        """Whether a process still runs a thread of the tree."""
        return any(not one.ended and not is_abandoned(one) for one in self._rows())

    def _rows(self) -> "tuple[ThreadRecord, ...]":
        return self._registry.list_tree(self._thread_id, and_after=True)
