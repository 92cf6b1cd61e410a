"""The progress of a map while it runs, for a terminal or a notebook, counted from its events.

A terminal gets one line that is drawn in place, other outputs a line at each tenth of the rows.
"""

import math
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, TypeAlias

import anyio

from ryecore.display.live import LiveText, can_redraw, size_of
from ryecore.display.sanitize import warn
from ryecore.display.text import (
    Span,
    StyledText,
    count_columns,
    counted,
    cut_start,
    dollars,
    duration,
    out_of,
    status_mark,
)
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.graph.rendering import bar

if TYPE_CHECKING:
    from ryecore.state.events import RunEvent

__all__ = ["MapProgress", "ProgressView", "ShowProgress", "progress_view"]

_DRAW_EVERY_S: Final = 0.1
_MOST_BAR: Final = 40
_LEAST_BAR: Final = 6
_LEAST_WIDTH: Final = 20
_NOTEBOOK_WIDTH: Final = 90
_TENTHS: Final = 10


@frozen
class MapProgress:
    """How far a map has come.

    Attributes:
        item_id: What it calls for each row, as a canonical ref.
        rows: The number of rows.
        done: How many have ended, of this run and of those that it resumes.
        failed: How many of these failed.
        spend_microcents: What the rows that ended in this run have cost, in units of 1e-8 USD.
        limit_microcents: The most that this run may cost; None for no limit.
        elapsed_s: How long it has run, in seconds.
        left_s: How long it will go on at this rate, in seconds; None while that is unknown.
        is_over: Whether it has ended.
    """

    item_id: str
    rows: int = 0
    done: int = 0
    failed: int = 0
    spend_microcents: int = 0
    limit_microcents: int | None = None
    elapsed_s: float = 0.0
    left_s: float | None = None
    is_over: bool = False

    def render(self, *, width: int = _NOTEBOOK_WIDTH) -> StyledText:
        """Render it as one line, `width` columns wide."""
        width = max(width, _LEAST_WIDTH)
        status = "running"
        if self.is_over:
            is_whole = self.done == self.rows
            status = "cancelled" if not is_whole else "completed"
        if self.failed and status == "completed":
            status = "completed_with_errors"
        mark, style = status_mark(status)
        spent, limit = out_of(self.spend_microcents, self.limit_microcents, dollars)
        facts: list[Span] = [(f"{self.done:,}/{self.rows:,}", "")]
        if self.failed:
            facts.append((f"{self.failed:,} failed", "bad"))
        if self.spend_microcents or limit:
            facts.append((spent + limit, ""))
        facts.append((duration(self.elapsed_s), "dim"))
        if self.left_s is not None and not self.is_over:
            facts.append((f"{duration(self.left_s)} left", "dim"))
        said = [one for fact in facts for one in (("  ", ""), fact)]
        room = width - 2 - sum(count_columns(text) for text, _ in said)
        name = cut_start(self.item_id, max(min(room - _LEAST_BAR - 2, width // 3), 8))
        spans: list[Span] = [(mark, style), (name, "strong")]
        columns = min(room - count_columns(name) - 2, _MOST_BAR)
        if columns >= _LEAST_BAR:
            full, rest = bar(self.done / self.rows if self.rows else 0.0, columns)
            spans += [("  ", ""), (full, style), (rest, "dim")]
        text = StyledText()
        text.line(*spans, *said)
        return text


ShowProgress: TypeAlias = Callable[[MapProgress], object]
"""Shows how far a map has come. It is called often, and must return at once."""


class Watched(Protocol):
    """The run of a map, as its progress needs it."""

    def events(self) -> "AsyncGenerator[RunEvent, None]":
        """Stream the events of the run until its end."""
        ...


class _Counts:
    """The counts of one map, event by event."""

    def __init__(self, item_id: str) -> None:
        self._item_id = item_id
        self._began = time.monotonic()
        self._carried = 0
        self.rows = self._done = self._failed = self._spent = 0
        self._limit: int | None = None

    def take(self, event: "RunEvent") -> None:
        """Count an event."""
        payload = event.payload
        if event.type == "item_completed":
            self._done += 1
            self._failed += payload.get("error") is not None
            self._carried += payload.get("carried") is True
            self._spent += int(payload.get("spend_microcents", 0))
        elif event.type == "node_started":
            self.rows = int(payload.get("count", 0))
        elif event.type == "run_started":
            self._limit = _limit_of(payload)

    def progress(self, *, is_over: bool = False) -> MapProgress:
        """Return how far it has come by now."""
        elapsed_s = time.monotonic() - self._began
        here = self._done - self._carried
        left = self.rows - self._done
        return MapProgress(
            self._item_id,
            self.rows,
            self._done,
            self._failed,
            self._spent,
            self._limit,
            elapsed_s,
            elapsed_s / here * left if here else None,
            is_over,
        )


def _limit_of(started: Any) -> int | None:
    from ryecore.policy.limits import read_limits  # noqa: PLC0415 - once a map

    with suppress(ValueError, TypeError):
        return read_limits(started.get("asked", {})).spend_microcents
    return None


class ProgressView:
    """The view of one map's progress, while it runs."""

    def __init__(self, item_id: str, show: ShowProgress) -> None:
        self._counts = _Counts(item_id)
        self._show = show
        self._is_broken = False

    async def watch(self, run: Watched) -> None:
        """Show the progress of a run until it ends. What goes wrong here ends only the view."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_showing)
            try:
                with suppress(RyeError):
                    async with aclosing(run.events()) as events:
                        async for event in events:
                            self._counts.take(event)
            finally:
                tasks.cancel_scope.cancel()
                self._draw(is_over=True)

    def _draw(self, *, is_over: bool = False) -> None:
        if not self._counts.rows or self._is_broken:
            return
        try:
            self._show(self._counts.progress(is_over=is_over))
        except Exception as problem:  # the rows matter more than how they are shown
            self._is_broken = True
            warn(f"The progress of the map can't be shown: {problem!r}.")

    async def _keep_showing(self) -> None:
        while True:
            self._draw()
            await anyio.sleep(_DRAW_EVERY_S)


def progress_view(
    item_id: str, progress: "bool | ShowProgress | None", stack: ExitStack
) -> ProgressView | None:
    """Return the view that a caller wants; None for none.

    Args:
        item_id: What is mapped.
        progress: A function to show it, or whether to show it; None to show it where a person
            looks: in a notebook, and on a terminal.
        stack: Gets what gives the terminal back.
    """
    if progress is False:
        return None
    if callable(progress):
        return ProgressView(item_id, progress)
    shown = _in_notebook()
    if shown is None and sys.stderr is not None:
        if can_redraw(sys.stderr):
            shown = _on_terminal(stack.enter_context(LiveText(sys.stderr)), sys.stderr)
        elif progress:
            shown = _by_lines(sys.stderr)
    return None if shown is None else ProgressView(item_id, shown)


def _on_terminal(live: LiveText, out: TextIO) -> ShowProgress:
    def show(progress: MapProgress) -> None:
        columns, _ = size_of(out)
        live.redraw(progress.render(width=columns - 1))

    return show


def _by_lines(out: TextIO) -> ShowProgress:
    told = -1

    def show(progress: MapProgress) -> None:
        nonlocal told
        tenth = math.floor(_TENTHS * progress.done / progress.rows)
        if tenth <= told and not progress.is_over:
            return
        if progress.is_over and tenth == told == _TENTHS:
            return
        told = tenth
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        cost = f", {dollars(progress.spend_microcents)}" if progress.spend_microcents else ""
        of = f"{progress.done:,} of {counted(progress.rows, 'row')}"
        text = StyledText()
        text.line(f"[map:{progress.item_id}] {of}{failed}{cost}")
        with suppress(OSError):  # nobody reads it
            out.write(f"{text.plain()}\n")
            out.flush()

    return show


def _in_notebook() -> ShowProgress | None:
    """Return a view in the output of a notebook's cell; None elsewhere."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    notebook: Any = import_module("IPython.display")  # which is there already
    shown: Any = None

    def show(progress: MapProgress) -> None:
        nonlocal shown
        html = notebook.HTML(progress.render().html())
        if shown is None:
            shown = notebook.display(html, display_id=True)
        else:
            shown.update(html)

    return show
