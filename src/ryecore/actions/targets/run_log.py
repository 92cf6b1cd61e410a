"""The log of a worker: a line for each run that begins, is resumed or ends.

They name the run, its item, its queue and its outcome. Inputs, results and texts of errors, which
may hold a secret, are in none of them.

Source: docs/design/queues.md#a-run.
"""

import logging
import time
from typing import Final

from ryecore.errors import RyeError
from ryecore.runs.request import RunRequest
from ryecore.state.model import ThreadRecord

__all__ = ["LOG", "RunLog"]

LOG: Final = "ryecore.queue"
"""The name of the log; its lines are of the level INFO."""

_log: Final = logging.getLogger(LOG)


class RunLog:
    """The log of one run. Its first line is written when this is made.

    Args:
        run_id: The run.
        item_id: Its item, as a canonical ref.
        queue: Its queue.
        resumes: The run of a dead worker that it resumes; empty where it is begun.
    """

    def __init__(self, run_id: str, item_id: str, queue: str | None, resumes: str = "") -> None:
        self._run = f"{run_id} ({item_id}, queue {queue})"
        self._began_s = time.monotonic()
        if resumes:
            _log.info("%s resumes %s, whose worker is dead.", self._run, resumes)
        else:
            _log.info("%s begins.", self._run)

    @classmethod
    def of_request(cls, run_id: str, request: RunRequest) -> "RunLog":
        """Log that a run begins."""
        return cls(run_id, str(request.ref), request.queue)

    @classmethod
    def of_resumed(cls, run_id: str, record: ThreadRecord) -> "RunLog":
        """Log that a run resumes another one."""
        return cls(run_id, record.item_id, record.queue, record.thread_id)

    def leave(self) -> None:
        """Log that another worker runs it, or that it was stopped."""
        _log.info("%s was begun elsewhere, or stopped.", self._run)

    def end(self, outcome: str | RyeError) -> None:
        """Log how it ended here: its status, or the kind of the error that left it without one."""
        if isinstance(outcome, RyeError):
            outcome = f"{outcome.error_type}, see rye threads show"
        _log.info(
            "%s ended after %.3f s: %s.", self._run, time.monotonic() - self._began_s, outcome
        )
