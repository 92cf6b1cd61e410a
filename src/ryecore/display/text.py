"""Styled text for a terminal, a notebook or a log; text cut to columns; counts, money and sizes.

It also has the status icons, which are told apart without colour, and the lines of threads.
"""

import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from attrs import field

from ryecore.convert.money import write_usd
from ryecore.display.sanitize import escape_controls, escape_html, to_one_line
from ryecore.errors import RyeError
from ryecore.frozen import frozen

if TYPE_CHECKING:
    from ryecore.state.model import ThreadRecord

__all__ = [
    "BOX_STATUSES",
    "STATUS_ICONS",
    "BoxStatus",
    "Rendered",
    "Span",
    "StyledText",
    "approval_words",
    "brief",
    "byte_size",
    "compact",
    "count_columns",
    "counted",
    "cut",
    "cut_start",
    "dollars",
    "duration",
    "exact_dollars",
    "main_line",
    "noun_of",
    "out_of",
    "render_threads",
    "status_icon",
    "status_mark",
    "status_words",
    "thread_line",
]

# Columns line up in a notebook too: JupyterLab shows outputs in the font of its interface.
_PRE: Final = (
    "font-family:var(--jp-code-font-family,monospace);line-height:1.4;white-space:pre-wrap"
)

_ANSI: Final = {
    "good": "32", "bad": "31", "warn": "33", "dim": "2", "strong": "1", "id": "36",
}  # fmt: skip
_CSS: Final = {
    "good": "color:#2da44e", "bad": "color:#e5534b", "warn": "color:#bf8700",
    "dim": "opacity:.6", "strong": "font-weight:600", "id": "color:#3b8eea",
}  # fmt: skip

_MAX_TOOL_NAME: Final = 64

Span = tuple[str, str]
"""A text and its style."""


@frozen
class StyledText:
    """Lines of styled spans, which a terminal, a notebook or a log can show."""

    lines: list[list[Span]] = field(factory=list)

    def line(self, *spans: str | Span) -> None:
        """Add a line of plain texts and (text, style) pairs."""
        self.lines.append([(span, "") if isinstance(span, str) else span for span in spans])

    def add(self, other: "StyledText", indent: str = "") -> None:
        """Add another text's lines."""
        self.lines.extend([(indent, ""), *line] for line in other.lines)

    def failure(self, name: str, error: RyeError) -> None:
        """Add what failed, why, and the next step."""
        self.line(status_mark("problem"), (name, "strong"))
        for line in error.message.splitlines():
            self.line("  ", (line, "bad"))
        self.next_step(error.next_step)

    def next_step(self, step: object) -> None:
        """Add the line of a next step, where there is one."""
        if isinstance(step, str) and step:
            self.line(("  next: ", "dim"), step)

    def plain(self) -> str:
        """Return the text without styles."""
        return "\n".join(
            escape_controls("".join(text for text, _ in line).rstrip()) for line in self.lines
        )

    def ansi(self) -> str:
        """Return the text for a terminal."""
        return "\n".join(
            "".join(
                f"\x1b[{_ANSI[style]}m{escape_controls(text)}\x1b[0m"
                if style
                else escape_controls(text)
                for text, style in line
            )
            for line in self.lines
        )

    def html(self) -> str:
        """Return the text for a notebook: self-contained, nothing is loaded."""
        body = "\n".join(
            "".join(
                f'<span style="{_CSS[style]}">{escape_html(text)}</span>'
                if style
                else escape_html(text)
                for text, style in line
            )
            for line in self.lines
        )
        return f'<pre style="{_PRE}">{body}</pre>'


class Rendered(ABC):
    """A result with a short text for `print`, and the same as HTML for a notebook."""

    __slots__ = ()

    @abstractmethod
    def render(self) -> StyledText:
        """Render it for a terminal or a notebook."""

    def __str__(self) -> str:
        return self.render().plain()

    def _repr_html_(self) -> str:
        return self.render().html()


# Texts that have to fit into columns


def count_columns(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def cut_start(name: str, room: int) -> str:
    """Cut a name at its start where it doesn't fit: its end says most."""
    return name if count_columns(name) <= room else f"…{cut(name[::-1], room, mark='')[::-1][1:]}"


def cut(text: str, room: int, mark: str = "…") -> str:
    """Cut a text that doesn't fit, and end it with `mark`."""
    if count_columns(text) <= room:
        return text
    kept, left = "", room - len(mark)
    for one in text:
        left -= count_columns(one)
        if left < 0:
            break
        kept += one
    return kept + mark


def brief(value: object, columns: int = 400) -> str:
    """Return a value on one line, cut where it is long; JSON unless it is a text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return cut(to_one_line(text[: 4 * columns]), columns)


def main_line(error: str) -> str:
    """Return an error's first line; of a Python traceback, the line that names the exception."""
    lines = error.strip().splitlines() or [""]
    if "Traceback (most recent call last)" not in lines[0]:
        return lines[0]
    frames = [at for at, line in enumerate(lines) if line.startswith('  File "')]
    behind = lines[frames[-1] + 1 :] if frames else []
    # Behind the exception, its message may continue, or a sentence of ryecore's may follow.
    return next((line for line in behind if line and not line[0].isspace()), lines[-1])


# Counts, money, sizes and durations


def compact(count: int) -> str:
    """Return a count in at most four characters, such as 1.2k."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            scaled = count / size
            return (f"{scaled:.1f}".removesuffix(".0") if scaled < 10 else f"{scaled:.0f}") + unit
    return str(count)


def counted(
    number: int, noun: str, plural: str = "", *, write: Callable[[int], str] = "{:,}".format
) -> str:
    """Return a number and what it counts, such as 1,200 turns; `plural` is by default noun + s."""
    return f"{write(number)} {noun_of(number, noun, plural)}"


def noun_of(number: int, noun: str, plural: str = "") -> str:
    """Return a noun as it stands behind a number; `plural` is by default noun + s."""
    return noun if number == 1 else plural or noun + "s"


def dollars(microcents: int) -> str:
    """Return an amount of money, as exact as it has to be."""
    usd = write_usd(microcents)
    if usd >= 1000:
        return f"${compact(round(usd))}"
    if usd >= 100:
        return f"${usd:.0f}"
    digits = 2 if usd >= 1 else 3 if usd >= 0.1 else 4 if usd >= 0.001 else 6
    return f"${usd:.{digits}f}".rstrip("0").rstrip(".")


def out_of(used: int, limit: int | None, written: Callable[[int], str]) -> tuple[str, str]:
    """Return an amount, and its limit after a slash, such as $0.31 and /0.5; empty for no limit."""
    return written(used), "" if limit is None else f"/{written(limit).removeprefix('$')}"


def exact_dollars(microcents: int, digits: int = 6) -> str:
    """Return an amount of money with a fixed number of digits behind the point."""
    return f"${write_usd(microcents):.{digits}f}"


def byte_size(size_bytes: int) -> str:
    """Return a number of bytes in the largest unit that fits, such as 1.5 MB for 1,500,000."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def progress_words(progress: float, total: float | None, message: str, columns: int = 10) -> str:
    """Return how far something is: a bar and a percentage where the total is known, and a message.

    Args:
        progress: How much is done.
        total: How much there is to do.
        message: What is being done; may be hostile.
        columns: The length of the bar.
    """
    message = to_one_line(message)
    if not total or total < 0:
        return f"{progress:g}  {message}".rstrip()
    share = min(max(progress / total, 0.0), 1.0)
    bar = "█" * round(share * columns)
    return f"{bar:<{columns}}  {share:4.0%}  {message}".rstrip()


def duration(seconds: float) -> str:
    """Return how long something lasts, such as 1:05 for a minute and five seconds."""
    seconds = max(seconds, 0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes}:{rest:02}"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours}:{minutes:02}:{rest:02}"


BoxStatus = Literal[
    "", "pending", "running", "completed", "completed_with_errors", "failed", "skipped",
    "cancelled", "retrying",
]  # fmt: skip
"""How the box of a picture may be marked; empty where its status isn't shown."""

STATUS_ICONS: Final[Mapping[str, tuple[str, str]]] = {
    # status: its icon and its style
    "": (" ", ""),
    "created": ("·", "dim"),
    "pending": ("·", "dim"),
    "skipped": ("–", "dim"),
    "running": ("▸", "id"),
    "waiting": ("?", "warn"),
    "retrying": ("↻", "warn"),
    "completed": ("✓", "good"),
    "completed_with_errors": ("!", "warn"),
    "continued": ("»", "good"),
    "failed": ("✗", "bad"),
    "error": ("✗", "bad"),
    "killed": ("✗", "bad"),
    "cancelled": ("■", "warn"),
    # of checks and of answers
    "success": ("✓", "good"),
    "validation_passed": ("✓", "good"),
    "ok": ("✓", "good"),
    "attested": ("✓", "good"),
    "note": ("·", "dim"),
    "warning": ("!", "warn"),
    "unattested": ("!", "warn"),
    "problem": ("✗", "bad"),
    "altered": ("✗", "bad"),
    "cut": ("✗", "bad"),
}
_UNKNOWN: Final = STATUS_ICONS["error"]

BOX_STATUSES: Final[Mapping[str, BoxStatus]] = {
    "created": "pending", "running": "running", "completed": "completed",
    "continued": "completed", "error": "failed", "killed": "failed", "cancelled": "cancelled",
}  # fmt: skip
"""How the box of a thread is marked, by the thread's status."""


def status_icon(status: str) -> str:
    """Return the icon of a status; of an unknown one, that of an error."""
    return STATUS_ICONS.get(status, _UNKNOWN)[0]


def status_mark(status: str) -> tuple[str, str]:
    """Return the icon of a status and a blank, with its style: the first span of a line."""
    icon, style = STATUS_ICONS.get(status, _UNKNOWN)
    return f"{icon} ", style


def status_words(status: str) -> str:
    """Return a status in words, such as `completed with errors`."""
    return status.replace("_", " ")


def render_threads(records: "Iterable[ThreadRecord]") -> StyledText:
    """Render threads as lines with aligned ids; nothing for no threads."""
    text, listed = StyledText(), tuple(records)
    width = max((len(one.thread_id) for one in listed), default=0)
    for record in listed:
        text.line(*thread_line(record, width))
        if record.approvals:
            waits, command = approval_words(
                record.thread_id, [one.tool_name for one in record.approvals]
            )
            text.line((f"    {waits}: ", "warn"), command)
    return text


def approval_words(thread_id: str, tools: Sequence[str]) -> tuple[str, str]:
    """Return that a thread waits for approval of calls of these tools, and the command for it."""
    if len(tools) == 1:
        name = cut(to_one_line(tools[0]), _MAX_TOOL_NAME)
        return f"waits for approval of {name}", f"rye threads approve {to_one_line(thread_id)}"
    return f"waits for approval of {len(tools):,} calls", "rye threads approvals"


def thread_line(record: "ThreadRecord", id_width: int = 0) -> tuple[Span, ...]:
    """Render a thread as one line with a padded id, and the turns and spending of its model."""
    mark = status_mark("waiting" if record.approvals else record.status)
    cost = record.cost
    ended = record.completed_at
    until = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
    lasted = duration((until - datetime.fromisoformat(record.created_at)).total_seconds())
    spent = f"  {counted(cost.turns, 'turn'):>8}  {dollars(cost.spend_microcents):<7}"
    return (
        mark,
        (f"{record.thread_id:<{id_width}}", "id"),
        (f"  {record.status:<9}", mark[1]),
        (f"  {lasted:>8}", ""),
        (spent if record.model is not None else "", ""),
        (f"  {record.item_id}", "strong"),
    )
