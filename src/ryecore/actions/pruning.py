"""What pruning ended threads freed, or would free."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen

from ryecore.state.locking import run_in_thread
from ryecore.state.pruning import resolve_retention
from ryecore.styled import StyledText

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore
    from ryecore.threads.service import ThreadService

__all__ = ["OnProgress", "PruneReport", "prune_threads"]

OnProgress: TypeAlias = Callable[[int, int], object]
"""Called with how many threads are gone, and how many are to go."""


@frozen
class PruneReport:
    """What pruning freed, or would free.

    Attributes:
        thread_ids: The threads that are gone, or would go.
        size_bytes: How much room their files took.
        is_dry_run: Whether nothing was removed.
        kept_resumable: How many threads stay for now, because they failed or were killed and may
            be resumed.
        finished: How many threads an earlier pruning, which was killed, had left files of.
    """

    thread_ids: tuple[str, ...] = ()
    size_bytes: int = 0
    is_dry_run: bool = False
    kept_resumable: int = 0
    finished: int = 0

    def to_dict(self) -> dict[str, object]:
        """The report as a JSON-ready object."""
        return {
            "status": "success",
            "dry_run": self.is_dry_run,
            "threads": len(self.thread_ids),
            "size_bytes": self.size_bytes,
            "thread_ids": list(self.thread_ids),
            "kept_resumable": self.kept_resumable,
            "finished": self.finished,
        }

    def render(self) -> StyledText:
        """The report for a terminal."""
        text = StyledText()
        verb = "would go" if self.is_dry_run else "pruned"
        text.line(f"{_count(len(self.thread_ids))}, {_size(self.size_bytes)} {verb}")
        if self.kept_resumable:
            text.line(
                (
                    f"{_count(self.kept_resumable)} stay that may be resumed, for twice as long; ",
                    "",
                ),
                ("let them go: --include-resumable", "dim"),
            )
        if self.finished:
            text.line((f"finished what was begun: {_count(self.finished)}", "dim"))
        return text

    def __str__(self) -> str:
        return self.render().plain()


def _count(number: int) -> str:
    return f"{number:,} thread{'' if number == 1 else 's'}"


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


async def prune_threads(
    open_store: "Callable[[], ThreadStore | None]",
    service: "Callable[[], ThreadService]",
    wanted: tuple[str | None, int | None, bool | None],
    *,
    dry_run: bool,
    told: OnProgress | None,
) -> PruneReport:
    """Prune the ended threads of a project, family by family.

    A cancelled call ends behind the family that it is at.

    Args:
        open_store: Opens the project's threads; None where there are none yet.
        service: Reads the signed configuration.
        wanted: The age, how many to keep, and whether those that may be resumed go too; None where
            the configuration says it.
        dry_run: Whether to remove nothing.
        told: Told of progress.

    Raises:
        ConfigError: Nothing says how long threads are kept, or the age can't be used.
        StateError: The registry can't be read or written.
    """
    configured = await run_in_thread(service().retention)
    retention = resolve_retention(configured, *wanted)
    store = await run_in_thread(open_store)
    if store is None:
        return PruneReport(is_dry_run=dry_run)
    # Those that nobody runs any more end first, and so at this moment.
    await run_in_thread(store.look_at_all, lambda found: found.list_active())
    finished = 0 if dry_run else await run_in_thread(store.pruning.finish)
    plan = await run_in_thread(store.pruning.plan, retention)
    total = sum(len(family.ended) for family in plan.families)
    gone: list[str] = []
    size_bytes = 0
    for family in plan.families:
        if dry_run or await run_in_thread(store.pruning.prune, family):
            gone += family.thread_ids
            size_bytes += family.size_bytes
        if told is not None and not dry_run:
            told(len(gone), total)
    return PruneReport(tuple(gone), size_bytes, dry_run, plan.kept_resumable, finished)
