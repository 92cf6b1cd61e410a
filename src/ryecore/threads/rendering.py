"""The rendering of threads as text: lines, results and trees, for any width. Pure.

A row of a tree shows a thread, its use and its limits. Tokens and spend count a thread together
with all below it, as its budget does.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ryecore.chain.rendering import render_result
from ryecore.convert.money import read_usd
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import (
    STATUS_ICONS,
    Span,
    StyledText,
    approval_words,
    brief,
    compact,
    count_columns,
    counted,
    cut,
    cut_start,
    dollars,
    duration,
    noun_of,
    out_of,
    render_threads,
    status_mark,
    thread_line,
)
from ryecore.frozen import frozen
from ryecore.state.model import Cost, ThreadRecord, ThreadRecords
from ryecore.threads.tree_rows import STATUS_ORDER, TreeRow, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from ryecore.threads.tree_node import TreeNode

__all__ = ["render_change", "render_page", "render_thread", "render_tree"]

_GAP: Final = "  "
_LEAST_NAME: Final = 24
"""The least width of a name, for which columns are left out."""
_MAX_NOTES: Final = 3
_LEAST_WIDTH: Final = 16

_NAMES: Final = ("turns", "tokens", "spend", "time")


@frozen
class _Layout:
    """The layout of a tree's columns: a bar of 0 is none; limits stand beside the use, or don't."""

    columns: tuple[str, ...]
    bar: int = 0
    with_limits: bool = False


_LAYOUTS: Final = (
    _Layout(_NAMES, 8, with_limits=True),
    _Layout(_NAMES, 5, with_limits=True),
    _Layout(_NAMES, 0, with_limits=True),
    _Layout(_NAMES),
    _Layout(("spend", "time")),
    _Layout(("time",)),
    _Layout(()),
)
"""The layouts, from the widest to the narrowest."""


@frozen
class _Cell:
    """A cell: the use, the limit after a slash, and the used share of it."""

    used: str = ""
    limit: str = ""
    share: float | None = None

    @property
    def style(self) -> str:
        """The style: plain, a warning from 80 % on, or an error at the limit."""
        if self.share is None or self.share < 0.8:
            return ""
        return "warn" if self.share < 1 else "bad"


@frozen
class _Line:
    """A row of cells."""

    guides: str
    mark: Span
    name: Span
    cells: dict[str, _Cell]

    @property
    def lead(self) -> int:
        """The width of the text before the name."""
        return len(self.guides) + (2 if self.mark[0] else 0)


def render_tree(
    nodes: Sequence["TreeNode"], *, width: int, now: float, max_rows: int = 40
) -> StyledText:
    """Render trees of threads, their totals, and the notes of at most three threads.

    The width is at least 16 columns; in a narrow one, limits and columns are left out. The time is
    in seconds since 1970 (UTC), for threads that still run. Of a larger tree than `max_rows`,
    running threads are shown first, and the rest is counted.
    """
    width = max(width, _LEAST_WIDTH)
    everyone = [one for root in nodes for one in root.walk()]
    lines = [_line(row, now) for row in rows_of(nodes, max_rows)]
    total = _total(nodes, everyone, now) if len(everyone) > 1 else None
    text = StyledText()
    _arrange(text, lines, total, width)
    if total is not None:
        _add_counts(text, everyone, width)
    _add_notes(text, everyone, width)
    return text


def render_change(node: "TreeNode", *, now: float) -> tuple[Span, ...]:
    """Render the state of one thread as a line, for outputs on which no tree can be drawn."""
    until = now if node.ended_at is None else node.ended_at
    mark = status_mark("waiting" if node.approvals else node.status)
    said = [counted(node.turns, "turn")] if node.turns else []
    said += [counted(node.tokens, "token", write=compact)] if node.tokens else []
    said += [dollars(node.spend_microcents)] if node.spend_microcents else []
    note = to_one_line(node.note) if node.ended and node.note else ""
    if node.waits_for is not None:
        note = ": ".join(node.waits_for)
    return (
        mark,
        (to_one_line(node.thread_id), "id"),
        (f"  {node.status}", mark[1]),
        (f"  {duration(until - node.started_at)}", "dim"),
        (f"  {', '.join(said)}" if said else "", ""),
        (f"  {note}" if note else "", "dim"),
    )


# What stands in a row


def _line(row: TreeRow, now: float) -> _Line:
    node = row.node
    if node is None:
        more = f"… {len(row.left_out)} more: {row.count_left_out()}"
        return _Line(row.guides, ("", ""), (more, "dim"), {})
    limits = node.limits
    until = now if node.ended_at is None else node.ended_at
    lasted = until - node.started_at
    most_s = None if limits.duration_s is None or node.ended else float(limits.duration_s)
    cells = {
        "turns": _used(node.turns, limits.turns, compact),
        "tokens": _used(row.tokens, limits.tokens, compact),
        "spend": _used(row.spend_microcents, limits.spend_microcents, dollars),
        "time": _Cell(duration(lasted), "", _share(lasted, most_s)),
    }
    is_live = node.status == "running"
    name = to_one_line(node.item_id.removeprefix("directive:"))
    style = "strong" if is_live else "dim" if node.ended else ""
    icon = STATUS_ICONS["waiting" if node.approvals else node.status]
    return _Line(row.guides, icon, (name, style), cells)


def _total(roots: Sequence["TreeNode"], everyone: Sequence["TreeNode"], now: float) -> _Line:
    ends = [now if one.ended_at is None else one.ended_at for one in everyone]
    lasted = max(ends) - min(one.started_at for one in roots)
    cells = {
        "turns": _Cell(compact(sum(one.turns for one in everyone))),
        "tokens": _Cell(compact(sum(one.tokens for one in everyone))),
        "spend": _Cell(dollars(sum(one.spend_microcents for one in everyone))),
        "time": _Cell(duration(lasted)),
    }
    return _Line("", ("", ""), (counted(len(everyone), "thread"), "strong"), cells)


def _add_counts(text: StyledText, everyone: Sequence["TreeNode"], width: int) -> None:
    counts = Counter(one.status for one in everyone)
    spans: list[Span] = []
    room = width
    for status in STATUS_ORDER:
        if not counts[status]:
            continue
        said = f"{counts[status]:,} {status}"
        if spans and room < len(said) + 2 + len(_GAP):
            text.line(*spans)
            spans, room = [], width
        if spans:
            spans.append((_GAP, ""))
            room -= len(_GAP)
        spans += [status_mark(status), (said, "dim")]
        room -= len(said) + 2
    text.line(*spans)


def _add_notes(text: StyledText, everyone: Sequence["TreeNode"], width: int) -> None:
    waiting = [one for one in everyone if one.approvals]
    noted = [one for one in everyone if one.note and not one.approvals]
    noted.sort(key=lambda one: one.started_at if one.ended_at is None else one.ended_at)
    for one in noted[len(waiting) - _MAX_NOTES :] if len(waiting) < _MAX_NOTES else ():
        name = cut_start(to_one_line(one.thread_id), max(width // 2 - 2, 1))
        room = width - count_columns(name) - 4
        text.line(
            status_mark(one.status),
            (name, "id"),
            (f"  {cut(to_one_line(one.note), room)}" if room > 1 else "", "dim"),
        )
    shown = waiting if len(waiting) <= _MAX_NOTES else waiting[: _MAX_NOTES - 1]
    for one in shown:
        waits, command = one.waits_for or ("", "")
        room = width - count_columns(command) - 4
        said = f"{cut(waits, room)}: " if room > _LEAST_WIDTH else ""
        text.line(status_mark("waiting"), (said, "warn"), cut(command, width - 2))
    if len(shown) < len(waiting):
        more = f"  {len(waiting) - len(shown):,} more wait: rye threads approvals"
        text.line((cut(more, width), "warn"))


# How rows become columns


def _arrange(text: StyledText, lines: list[_Line], total: _Line | None, width: int) -> None:
    counted = [*lines, total] if total is not None else lines
    lines_with_cells = [one for one in counted if one.cells]
    longest = max(
        (one.lead + count_columns(one.name[0]) for one in counted if one.cells), default=0
    )
    columns: list[_Column] = []
    room = width
    for layout in _LAYOUTS:
        columns = [_Column.of(name, lines_with_cells, layout) for name in layout.columns]
        room = width - sum(len(_GAP) + one.width for one in columns)
        if room >= min(longest, _LEAST_NAME):
            break
    room = min(room, max(longest, len(_GAP)))
    if columns:
        heads = [(f"{_GAP}{one.name:>{one.width}}", "dim") for one in columns]
        text.line((" " * room, ""), *heads)
    for line in lines:
        _add(text, line, columns, room, width)
    if total is not None:
        rule = min(room + sum(len(_GAP) + one.width for one in columns), width)
        text.line(("─" * rule, "dim"))
        _add(text, total, columns, room, width)


def _add(text: StyledText, line: _Line, columns: "list[_Column]", room: int, width: int) -> None:
    guides = _shortened(line.guides, room // 2)
    spans: list[Span] = [(guides, "dim")] if guides else []
    left = room - count_columns(guides)
    if line.mark[0]:
        spans.append((f"{line.mark[0]} ", line.mark[1]))
        left -= 2
    name, style = line.name
    if not line.cells:  # it may extend over the columns, which are empty
        text.line(*spans, (cut(name, width - count_columns(guides)), style))
        return
    name = cut_start(name, max(left, 1))
    spans.append((name, style))
    spans.append((" " * (left - count_columns(name)), ""))
    for column in columns:
        spans += column.spans(line.cells[column.name])
    text.line(*spans)


@frozen
class _Column:
    """The widths of one column's parts; 0 for a part that it doesn't have."""

    name: str
    bar: int
    used: int
    limit: int

    @classmethod
    def of(cls, name: str, lines: Sequence[_Line], layout: _Layout) -> "_Column":
        cells = [one.cells[name] for one in lines]
        has_limits = layout.with_limits and any(one.limit for one in cells)
        used = max((len(one.used) for one in cells), default=0)
        limit = max((len(one.limit) for one in cells), default=0) if has_limits else 0
        bar = layout.bar + 1 if has_limits and layout.bar else 0
        return cls(name, bar, max(used, len(name) - limit - bar), limit)

    @property
    def width(self) -> int:
        return self.bar + self.used + self.limit

    def spans(self, cell: _Cell) -> list[Span]:
        spans: list[Span] = [(_GAP, "")]
        if self.bar:
            full, rest = _bar(cell.share, self.bar - 1)
            spans += [(full, cell.style or "good"), (f"{rest} ", "dim")]
        spans.append((f"{cell.used:>{self.used}}", cell.style))
        if self.limit:
            spans.append((f"{cell.limit:<{self.limit}}", "dim"))
        return [one for one in spans if one[0]]


def _bar(share: float | None, width: int) -> tuple[str, str]:
    """Return the full part of a bar and the rest, in half steps; full only at the limit."""
    if share is None:
        return "", " " * width
    halves = min(max(math.floor(share * 2 * width), 1 if share > 0 else 0), 2 * width)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    return full, "─" * (width - len(full))


# Texts


def _used(used: int, limit: int | None, shown: Callable[[int], str]) -> _Cell:
    if limit is None:
        return _Cell(shown(used) if used else "")  # a tool's thread has no model
    return _Cell(*out_of(used, limit, shown), _share(used, limit))


def _grouped(count: int) -> str:
    return f"{count:,}"


def _share(used: float, limit: float | None) -> float | None:
    if limit is None:
        return None
    return used / limit if limit else float(used > 0)


def _shortened(guides: str, room: int) -> str:
    """Return the last part of the guides to a very deep row."""
    if len(guides) <= room:
        return guides
    return f"⋯{guides[len(guides) - room + 1 :]}" if room > 3 else ""


# One thread


_MAX_CHILDREN: Final = 12


def render_thread(
    record: ThreadRecord,
    result: object,
    folder: "Path | None",
    *,
    machine: str | None = None,
    children: Sequence[ThreadRecord] = (),
    chain: Sequence[str] = (),
    resumed_by: Sequence[str] = (),
    assumed_spend_microcents: int = 0,
    on_node: "TreeNode | None" = None,
) -> StyledText:
    """Render a thread and its result, with its children and the ids of its whole chain.

    Its process runs, or ran, on this machine unless another one is named, and the folder is None
    where this one has none. While it runs on a node, its use is what the node says. Assumed spend,
    in units of 1e-8 USD, is marked. `resumed_by` are the ids of the threads that resumed it after
    its process died.
    """
    text = StyledText()
    text.line(*thread_line(record))
    text.line(("  since   ", "dim"), record.created_at)
    if record.pid is not None:
        where = "" if machine is None else f"  of {to_one_line(machine)}"
        text.line(("  process ", "dim"), f"{record.pid}{where}")
    elif machine is not None:
        text.line(("  ran on  ", "dim"), to_one_line(machine))
    if folder is not None:
        text.line(("  folder  ", "dim"), str(folder))
    if record.queue is not None:
        text.line(("  queue   ", "dim"), record.queue)
    if record.labels:
        said = " ".join(f"{name}={value}" for name, value in record.labels.items())
        text.line(("  labels  ", "dim"), said)
    if record.place is not None:
        text.line(("  node    ", "dim"), (record.place.node, "id"), f"  {record.place.remote}")
    for asked in record.approvals:
        waits, command = approval_words(record.thread_id, [asked.tool_name])
        if len(record.approvals) > 1:
            command = f"{command} --call {asked.id}"
        text.line(("  waits   ", "dim"), (f"{waits.removeprefix('waits ')}: ", "warn"), command)
    if record.model is not None:
        text.line(("  model   ", "dim"), record.model)
    if record.limits is not None:
        use = record.cost if on_node is None else on_node
        for place, (used, most, noun) in enumerate(_used_of_limits(record, use)):
            text.line(
                ("  used    " if not place else "          ", "dim"),
                f"{used}",
                (most, "dim"),
                f" {noun}",
            )
    if assumed_spend_microcents:
        amount = dollars(assumed_spend_microcents)
        text.line(("  assumed ", "dim"), f"{amount} of the spend; the real cost isn't known")
    if len(chain) > 1:
        for place, one in enumerate(chain):
            here = ("  this one", "dim") if one == record.thread_id else ("", "")
            text.line(("  chain   " if not place else "          ", "dim"), (one, "id"), here)
    for place, child in enumerate(children[:_MAX_CHILDREN]):
        text.line(("  started " if not place else "          ", "dim"), *thread_line(child))
    if len(children) > _MAX_CHILDREN:
        text.line("          ", (f"… {len(children) - _MAX_CHILDREN} more", "dim"))
    if isinstance(result, Mapping) and "directive" in result:
        _add_outcome(text, result)
    elif isinstance(result, Mapping):
        text.add(render_result({"item_id": record.item_id, **result}), "  ")
        if resumed_by and record.status == "error":
            text.line(("  resumed ", "dim"), f"by {', '.join(resumed_by)}")
        elif _can_be_resumed(record, result):
            text.line(("  next: ", "dim"), f"rye threads resume {record.thread_id}")
    return text


def _can_be_resumed(record: ThreadRecord, result: Mapping[str, Any]) -> bool:
    """Return whether its process died after it began, and no worker continues it."""
    has_died = record.status == "error" and result.get("died") is True
    return has_died and record.item_id.startswith("directive:") and record.model is not None


def _used_of_limits(record: ThreadRecord, use: "Cost | TreeNode") -> list[tuple[str, str, str]]:
    """Return rows of own use, limit, which includes the threads below, and noun."""
    limits = record.limits or {}
    used = {
        "turns": use.turns,
        "tokens": use.tokens,
        "spend": use.spend_microcents,
        "spawns": record.spawn_count,
    }
    rows = []
    for name, value in used.items():
        most = limits.get(name)
        limit = None
        if isinstance(most, int | float):
            limit = read_usd(most) if name == "spend" else int(most)
        noun = name if name == "spend" else noun_of(limit or value, name[:-1])
        rows.append((*out_of(value, limit, dollars if name == "spend" else _grouped), noun))
    return rows


def _add_outcome(text: StyledText, result: Mapping[str, Any]) -> None:
    """Add the result of a directive's thread."""
    for line in str(result.get("error") or "").splitlines():
        text.line(("  error   ", "dim"), (line, "bad"))
    outputs = result.get("outputs")
    for name, value in (outputs if isinstance(outputs, Mapping) else {}).items():
        text.line((f"  {name}: ", "dim"), brief(value, 80))
    if not outputs:
        for place, line in enumerate(str(result.get("result") or "").splitlines()):
            text.line(("  said    " if not place else "          ", "dim"), line)


def render_page(
    shown: ThreadRecords, none: str, limit: int, offset: int, command: str
) -> StyledText:
    """Render a page of threads, with the number of those that follow and the command for them.

    `none` is the text for no threads.
    """
    text = render_threads(shown)
    if not shown:
        text.line(none)
    more = shown.total - offset - len(shown)
    if shown and more > 0:
        again = f"{command} --offset {offset + limit}" + (
            "" if limit == 50 else f" --limit {limit}"
        )
        text.line((f"{more:,} more of {shown.total:,}; see them: {again}", "dim"))
    return text
