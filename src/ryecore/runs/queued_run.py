"""The document of a run in a queue: its request, its caller, and the project that travels with it.

Whoever puts a run into a queue writes it, and the worker that runs it reads it, perhaps with
another version of ryecore.

Source: docs/design/queues.md#the-document-of-a-run.
"""

import json
from typing import Any, Final, Literal, Self

from attrs import asdict, evolve, field

from ryecore.errors import StateError, StateUnreachable
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.runs.portable import (
    portable,
    read_context,
    read_request,
    write_context,
    write_json,
    write_request,
)
from ryecore.runs.request import RunRequest
from ryecore.state.model import ThreadRecord
from ryecore.state.run_queue import QueuedRequest, RunQueue

__all__ = ["QueuedRun", "QueuedSpace", "TakenRun", "needed_snapshots"]

_VERSION: Final = 1


def _without_key(request: RunRequest) -> RunRequest:
    return evolve(request, start_key=None)


def _without_deadline(ctx: CallContext) -> CallContext:
    return evolve(portable(ctx), deadline=None)


@frozen
class QueuedSpace:
    """For whom a node has put a run into a queue, whose folders the worker makes.

    Attributes:
        caller_key: The public key of the node's caller, in PEM.
        trust: Whose keys count there: the caller's own too, or those alone that the operator's
            user space trusts.
    """

    caller_key: str
    trust: Literal["caller", "operator"]


@frozen
class QueuedRun:
    """The document of a run in a queue.

    Attributes:
        request: What runs, without its idempotency key.
        ctx: The caller's context. Its deadline, which is on the clock of one machine, is kept
            beside the document.
        snapshot: The snapshot in which the project travels; None where workers have the project.
        space: For whom a node has put it there; None for a run of a project's own queue.
    """

    request: RunRequest = field(converter=_without_key)
    ctx: CallContext = field(converter=_without_deadline)
    snapshot: str | None = None
    space: QueuedSpace | None = None

    def to_text(self) -> str:
        """Return the document as JSON.

        Raises:
            InputError: The inputs can't be written as JSON.
        """
        return write_json(
            {
                "version": _VERSION,
                "request": write_request(self.request),
                "ctx": write_context(self.ctx),
                "snapshot": self.snapshot,
                "space": None if self.space is None else asdict(self.space),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote.

        Raises:
            StateError: The document has another version.
        """
        values: dict[str, Any] = json.loads(text)
        version = values.get("version")
        if version != _VERSION:
            raise StateError(
                f"The document of this run in a queue has the version {version}, and this ryecore "
                f"reads {_VERSION}.",
                next_step="Install the same version of ryecore for callers and workers, and start "
                "the run again.",
            )
        space = values["space"]
        return cls(
            read_request(values["request"]),
            read_context(values["ctx"]),
            values["snapshot"],
            None if space is None else QueuedSpace(**space),
        )


@frozen
class TakenRun:
    """A run that a worker has taken from its queue.

    Attributes:
        kept: What is kept of it beside its row.
        queued: Its document, as `kept` has it.
        record: Its row, as it was taken.
    """

    kept: QueuedRequest
    queued: QueuedRun
    record: ThreadRecord

    @classmethod
    async def find(cls, queue: RunQueue, run_id: str) -> Self | None:
        """Find a run by its id, which is the first one of its chain; None without a request.

        Raises:
            StateError: Its document has another version, or the state can't be reached.
        """
        found = await queue.find(run_id)
        if found is None:
            return None
        kept, record = found
        return cls(kept, QueuedRun.from_text(kept.body), record)


async def needed_snapshots(queue: RunQueue) -> set[str] | None:
    """Return the snapshots of all runs that have not ended; None where one's isn't known.

    Raises:
        StateUnreachable: The state can't be reached.
    """
    try:
        runs = [QueuedRun.from_text(one.body) for one in await queue.active()]
    except StateUnreachable:
        raise
    except StateError:  # one is of another version, and what it needs isn't known
        return None
    return {one.snapshot for one in runs if one.snapshot is not None}
