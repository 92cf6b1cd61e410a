"""What a tool reports while it runs: log messages on standard error, progress on a terminal."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ryecore.cli.output import tell
from ryecore.display.live import can_redraw, size_of
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import StyledText, cut, progress_words

if TYPE_CHECKING:
    from ryecore.policy.reports import ReportSink, ToolLog, ToolProgress, ToolReport
    from ryecore.state.events import RunEvent

__all__ = ["log_line", "progress_after", "progress_line", "reports_shown"]

_BAR_COLUMNS: Final = 20
_STYLES: Final = {"debug": "dim", "info": "dim", "notice": "", "warning": "warn"}
_MAX_LOG_CHARS: Final = 1000


def log_line(report: "ToolLog") -> StyledText:
    """Return a log message as one line, without control characters."""
    data = report.data if isinstance(report.data, str) else json.dumps(report.data)
    name = f"{report.item_id} {report.logger}".strip()
    text = StyledText()
    text.line(
        (f"{report.level:<7}", _STYLES.get(report.level, "bad")),
        (f"  {to_one_line(name)}  ", "dim"),
        cut(to_one_line(data), _MAX_LOG_CHARS),
    )
    return text


def progress_line(report: "ToolProgress") -> str:
    """Return how far a tool is: a bar where the total is known, and what it does."""
    return progress_words(report.progress, report.total, report.message, _BAR_COLUMNS)


def progress_after(event: "RunEvent", before: str) -> str:
    """Return how far the tool of a run is after an event; empty where none reports anything."""
    from ryecore.policy.reports import ToolProgress, report_of  # noqa: PLC0415 - only for runs
    from ryecore.state.events import UNLOGGED  # noqa: PLC0415

    report = report_of(event.type, event.payload, "")
    if isinstance(report, ToolProgress):
        name = to_one_line(report.item_id.removeprefix("tool:"))
        return f"{name}  {progress_line(report)}"
    return before if event.type in UNLOGGED else ""


@contextmanager
def reports_shown(*, with_progress: bool) -> "Iterator[ReportSink]":
    """Show what tools report for the time of the block, without the messages for debugging."""
    out = sys.stderr
    is_drawn = False
    with_progress = with_progress and can_redraw(out)

    def write(text: str) -> None:
        with suppress(OSError, UnicodeEncodeError):
            out.write(f"\r\x1b[2K{text}")
            out.flush()

    def sink(report: "ToolReport") -> None:
        nonlocal is_drawn
        from ryecore.policy.reports import ToolProgress  # noqa: PLC0415 - it is there by now

        if isinstance(report, ToolProgress):
            if with_progress:
                write(cut(progress_line(report), size_of(out)[0] - 1))
                is_drawn = True
        elif report.level != "debug":
            if is_drawn:
                write("")
                is_drawn = False
            tell(log_line(report))

    try:
        yield sink
    finally:
        if is_drawn:
            write("")
