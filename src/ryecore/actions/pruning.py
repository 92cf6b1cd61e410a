"""The pruning of ended threads, on request and automatically after a run.

A run is a thread, a run of a graph, or a tool that ran in a process of its own.

Source: ADR 027.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from ryecore.display.sanitize import RyeWarning, warn
from ryecore.display.text import Rendered, StyledText, byte_size, counted, noun_of
from ryecore.errors import ConfigError, RyeError
from ryecore.frozen import frozen
from ryecore.state.pruning import Retention, resolve_retention
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore
    from ryecore.threads.planner.planning import DirectivePlanner
    from ryecore.threads.service import ThreadService

__all__ = ["AutomaticPruning", "OnProgress", "PruneReport", "prune_threads"]

OnProgress: TypeAlias = Callable[[int, int], object]
"""Called with the number of threads that were pruned so far, and of those to prune."""


@frozen
class PruneReport(Rendered):
    """The threads that pruning removed, or would remove.

    Attributes:
        thread_ids: The threads that were removed, or would be.
        size_bytes: The size of their files.
        is_dry_run: Whether nothing was removed.
        kept_resumable: The number of threads that are kept longer, because they failed or were
            killed and may be resumed.
        finished: The number of threads whose files an interrupted pruning had left.
        snapshot_bytes: The size of what was removed of projects that travelled to workers.
    """

    thread_ids: tuple[str, ...] = ()
    size_bytes: int = 0
    is_dry_run: bool = False
    kept_resumable: int = 0
    finished: int = 0
    snapshot_bytes: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        return {
            "status": "success",
            "dry_run": self.is_dry_run,
            "threads": len(self.thread_ids),
            "size_bytes": self.size_bytes,
            "thread_ids": list(self.thread_ids),
            "kept_resumable": self.kept_resumable,
            "finished": self.finished,
            "snapshot_bytes": self.snapshot_bytes,
        }

    def render(self) -> StyledText:
        """Render the report for a terminal."""
        text = StyledText()
        verb = "would go" if self.is_dry_run else "pruned"
        text.line(f"{counted(len(self.thread_ids), 'thread')}, {byte_size(self.size_bytes)} {verb}")
        if self.kept_resumable:
            stay = noun_of(self.kept_resumable, "thread stays", "threads stay")
            text.line(
                (
                    f"{self.kept_resumable:,} {stay} that may be resumed, for twice as long; ",
                    "",
                ),
                ("prune them too: --include-resumable", "dim"),
            )
        if self.snapshot_bytes:
            text.line((f"{byte_size(self.snapshot_bytes)} of projects that travelled", "dim"))
        if self.finished:
            text.line((f"finished an earlier pruning: {counted(self.finished, 'thread')}", "dim"))
        return text


_LEAST_TRAVELLED_S: Final = 86_400.0
"""How old a snapshot is at least when it is pruned: tools that wait for a cluster have no row."""


async def prune_threads(
    open_store: "Callable[[], ThreadStore | None]",
    service: "Callable[[], ThreadService]",
    chosen: tuple[str | None, int | None, bool | None],
    *,
    dry_run: bool,
    on_progress: OnProgress | None,
) -> PruneReport:
    """Prune the ended threads of a project, one family after the other.

    A cancelled call ends after the family that is being removed. What `chosen` leaves out is as
    configured.
    """
    configured = await run_in_thread(service().retention)
    retention = resolve_retention(configured, *chosen)
    store = await run_in_thread(open_store)
    if store is None:
        return PruneReport(is_dry_run=dry_run)
    # A thread whose process died is ended here, so its age counts from now.
    await store.look_at_all(lambda found: found.list_active())
    finished = 0 if dry_run else await store.pruning.finish()
    plan = await store.pruning.plan(retention)
    total = sum(len(family.ended) for family in plan.families)
    gone: list[str] = []
    size_bytes = 0
    for family in plan.families:
        if dry_run or await store.pruning.prune(family):
            gone += family.thread_ids
            size_bytes += family.size_bytes
        if on_progress is not None and not dry_run:
            on_progress(len(gone), total)
    snapshots = 0 if dry_run else await _prune_travelled(store, retention)
    return PruneReport(tuple(gone), size_bytes, dry_run, plan.kept_resumable, finished, snapshots)


async def _prune_travelled(store: "ThreadStore", retention: Retention) -> int:
    """Prune snapshots of projects that travelled to workers; return the size of what is gone."""
    if store.queue is None:
        return 0
    from ryecore.remote.travelling import prune_snapshots  # noqa: PLC0415 - only on a server
    from ryecore.runs.queued_run import needed_snapshots  # noqa: PLC0415

    try:
        objects = await run_in_thread(store.travelling)
    except ConfigError:  # they are in the project's folder, so that none travels
        return 0
    kept = await needed_snapshots(store.queue)
    if kept is None:
        return 0
    age_s = max(retention.older_than_s, _LEAST_TRAVELLED_S)
    prune = partial(prune_snapshots, objects, used_before_s=time.time() - age_s, kept=kept)
    return sum(one.size_bytes for one in await run_in_thread(prune))


_LOOK_EVERY_S: Final = 60.0


class AutomaticPruning:
    """The automatic pruning after runs, by the rule in signed configuration."""

    def __init__(
        self, open_store: "Callable[[], ThreadStore | None]", planner: "DirectivePlanner"
    ) -> None:
        self._open_store = open_store
        self._planner = planner
        self._look_at = 0.0

    async def __call__(self) -> None:
        """Prune, at most once a day. Called after each run's end.

        At least one family is removed, and others for two seconds, in a worker thread; the rest
        waits for the next run's end. The configuration is read at most once a minute. A failure is
        a warning, never the failure of a run.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_EVERY_S  # once for concurrent ends
        try:
            # Closing the Rye right after the run's end, as commands do, waits for it.
            with anyio.CancelScope(shield=True):
                retention = await run_in_thread(self._planner.retention)
                if retention is None:
                    return
                store = await run_in_thread(self._open_store)
                if store is None:
                    return
                is_due = await run_in_thread(store.pruning.is_due)
                if not await store.pruning.prune_daily(retention):
                    self._look_at = 0.0  # the next run's end continues
                elif is_due:
                    await _prune_travelled(store, retention)
        except RyeError as error:
            with suppress(RyeWarning):  # under `python -W error` too, the run has its result
                warn(f"Ended threads could not be pruned: {error}")
