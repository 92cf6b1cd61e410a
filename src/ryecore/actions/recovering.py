"""The recovery of all threads and graph runs whose process died.

Of several processes that recover at once, exactly one resumes each.

Source: decisions 35, 47 and 76.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ryecore.display.text import StyledText, status_mark
from ryecore.errors import RyeError, ThreadConflict
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.state.model import ThreadRecord

if TYPE_CHECKING:
    from ryecore.actions.graphs import Graphs
    from ryecore.actions.threads import Threads
    from ryecore.graph.run import GraphRun
    from ryecore.policy.limits import Limits
    from ryecore.state.store import ThreadStore
    from ryecore.threads.thread import Thread

__all__ = ["Recovered", "recover"]


@frozen
class Recovered:
    """A thread or a run whose process died, and the run that resumes it.

    Attributes:
        record: Its row.
        run: The handle of the thread or run that resumes it; None in a dry run, and where it can't
            be resumed.
        error: Why it can't be resumed; None where it can.
    """

    record: ThreadRecord
    run: "Thread | GraphRun | None" = None
    error: RyeError | None = None

    @property
    def thread_id(self) -> str:
        """The id of the thread or run that died."""
        return self.record.thread_id

    @property
    def resumed_by(self) -> str | None:
        """The id of the thread or run that resumes it, if any does."""
        if self.run is None:
            return None
        return _id_of(self.run)

    def to_dict(self) -> dict[str, object]:
        """Return the recovery as a JSON-ready object."""
        document: dict[str, object] = {
            "thread_id": self.thread_id,
            "item_id": self.record.item_id,
            "resumed_by": self.resumed_by,
        }
        if self.error is not None:
            document |= {"error": self.error.message, "error_type": self.error.error_type}
            document["next_step"] = self.error.next_step
        return document

    def render(self) -> StyledText:
        """Render the recovery for a terminal."""
        text = StyledText()
        mark = status_mark("problem") if self.error else status_mark("running")
        text.line(mark, (self.thread_id, "id"), (f"  {self.record.item_id}", "dim"))
        if self.error is not None:
            text.line("  ", (self.error.message, "bad"))
            text.next_step(self.error.next_step)
        elif self.run is not None:
            text.line(("  resumed by ", "dim"), (_id_of(self.run), "id"))
        return text


def _id_of(run: "Thread | GraphRun") -> str:
    from ryecore.graph.run import GraphRun  # noqa: PLC0415 - once something is resumed

    return run.run_id if isinstance(run, GraphRun) else run.thread_id


async def recover(
    store: "ThreadStore | None",
    threads: "Threads",
    graphs: "Graphs",
    limits: "Limits | Mapping[str, float] | None",
    ctx: CallContext,
    *,
    dry_run: bool,
) -> tuple[Recovered, ...]:
    """Resume each thread and each run whose process died, as tasks of the Rye.

    The result is in order of age, without the runs that another process resumes.
    """
    if store is None:
        return ()
    died = await store.look_at_all(lambda found: found.list_died())
    ids = {one.thread_id for one in died}
    recovered: list[Recovered] = []
    for record in died:
        run: Thread | GraphRun | None = None
        thread_id = record.thread_id
        starts = threads if record.item_id.startswith("directive:") else graphs
        try:
            # Checked first, so that a failed attempt leaves no row.
            await starts.check_resume(thread_id, limits=limits, ctx=ctx)
            if not dry_run:
                run = await starts.start_resume(thread_id, limits=limits, ctx=ctx)
        except ThreadConflict:
            continue  # another process was faster
        except RyeError as error:
            # A resume that died before it began is skipped: its predecessor is in this list, too.
            if record.continuation_of not in ids:
                recovered.append(Recovered(record, error=error))
            continue
        recovered.append(Recovered(record, run))
    return tuple(recovered)
