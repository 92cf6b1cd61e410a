"""A chart of many amounts in order, as columns: one SVG element in the style of all pictures."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ryecore.display.sanitize import escape_html, to_one_line
from ryecore.display.shapes import BOLD, shorten_end
from ryecore.display.svg import background, framed
from ryecore.display.text import BoxStatus, status_words
from ryecore.frozen import frozen

__all__ = ["Amounts", "Share", "chart_to_svg"]

_WIDTH: Final = 680.0
_MARGIN: Final = 16.0
_PLOT: Final = 96.0
_MOST_COLUMNS: Final = 108
_WIDEST: Final = 18.0
_GAP: Final = 2.0
_MARK: Final = 4.0
_COLUMN: Final[BoxStatus] = "running"
"""The colour of columns, which isn't that of any end."""


@frozen
class Share:
    """A part of a bar, with the text for it."""

    size: float
    status: BoxStatus
    text: str


@frozen
class Amounts:
    """A chart: the amounts of things in order, with their statuses.

    Attributes:
        title: Its title.
        facts: A line of text below it.
        noun: What one amount belongs to, such as `row`.
        amounts: The amounts, at least one.
        statuses: The status of each; those that aren't `completed` are marked below the columns.
        write: Writes an amount.
        shares: The parts of the bar above the columns.
    """

    title: str
    facts: str
    noun: str
    amounts: Sequence[int]
    statuses: Sequence[BoxStatus]
    write: Callable[[int], str]
    shares: Sequence[Share]


@frozen
class _Column:
    first: int
    last: int
    mean: float
    most: int
    status: BoxStatus
    """The worst of its things."""


_WORST: Final[tuple[BoxStatus, ...]] = ("failed", "cancelled", "pending", "completed")


def chart_to_svg(chart: Amounts) -> str:
    """Return a chart as one `<svg>` element, which is a file as well."""
    columns = list(_columns(chart))
    inside = _WIDTH - 2 * _MARGIN
    step = min(inside / len(columns), _WIDEST + _GAP)
    most = max(*(one.mean for one in columns), 1.0)
    y = _MARGIN
    room = inside / 14 / BOLD
    parts = [_text("h", _MARGIN, y + 12, shorten_end(to_one_line(chart.title), room))]
    y += 32
    parts.append(_text("d", _MARGIN, y, to_one_line(chart.facts)))
    y += 14
    parts.append(_shares(chart.shares, y, inside))
    y += 20
    parts += _legend(chart.shares, y + 4)
    y += 34
    label = f"{chart.write(round(most))} a {chart.noun}"
    parts.append(_text("d", _MARGIN, y, label))
    y += 8
    base = y + _PLOT
    parts.append(_line(_MARGIN, y, inside))
    for at, one in enumerate(columns):
        parts.append(_column(one, chart, _MARGIN + at * step, base, step - _GAP, most))
    parts.append(_line(_MARGIN, base, inside))
    y = base + 2 * _MARK + 14
    end = _MARGIN + len(columns) * step - _GAP
    parts.append(_text("d", _MARGIN, y, f"{chart.noun} 0"))
    if len(columns) > 12:
        last = f"{len(chart.amounts) - 1:,}"
        parts.append(f'<g text-anchor="end">{_text("d", end, y, last)}</g>')
    height = y + _MARGIN - 4
    body = background(_WIDTH, height) + "".join(parts)
    statuses: set[BoxStatus] = {_COLUMN, *chart.statuses, *(one.status for one in chart.shares)}
    return framed(body, chart.title, chart.facts, (_WIDTH, height), statuses)


def _columns(chart: Amounts) -> Iterable[_Column]:
    """Yield the columns: each of one thing, or of as many as fit."""
    count = len(chart.amounts)
    each = -(-count // _MOST_COLUMNS)
    for first in range(0, count, each):
        amounts = chart.amounts[first : first + each]
        found = set(chart.statuses[first : first + each])
        worst = min(found, key=_WORST.index)
        mean = sum(amounts) / len(amounts)
        yield _Column(first, first + len(amounts) - 1, mean, max(amounts), worst)


def _column(one: _Column, chart: Amounts, x: float, base: float, width: float, most: float) -> str:
    height = max(one.mean / most * (_PLOT - 6), 1.5 if one.mean else 0.0)
    if one.first == one.last:
        said = f"{chart.noun} {one.first}: {chart.write(one.most)}"
    else:
        mean, dearest = chart.write(round(one.mean)), chart.write(one.most)
        said = f"{chart.noun}s {one.first}-{one.last}: {mean} a {chart.noun}, at most {dearest}"
    mark = ""
    if one.status != "completed":
        said += f", {status_words(one.status)}"
        mark = (
            f'<g class="{one.status}"><rect class="i" x="{x:.1f}" y="{base + 3:.1f}"'
            f' width="{width:.1f}" height="{_MARK:.0f}" rx="1"/></g>'
        )
    return (
        f'<g class="{_COLUMN}"><title>{escape_html(said)}</title>'
        f'<rect class="i" x="{x:.1f}" y="{base - height:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}" rx="1"/></g>{mark}'
    )


def _shares(shares: Sequence[Share], y: float, inside: float) -> str:
    whole = sum(one.size for one in shares) or 1.0
    x, parts = _MARGIN, []
    for one in shares:
        width = one.size / whole * inside
        parts.append(
            f'<g class="{one.status}"><title>{escape_html(one.text)}</title>'
            f'<rect class="i" x="{x:.1f}" y="{y:.1f}" width="{max(width - 1, 1):.1f}"'
            ' height="8" rx="2"/></g>'
        )
        x += width
    return "".join(parts)


def _legend(shares: Sequence[Share], y: float) -> Iterable[str]:
    x = _MARGIN
    for one in shares:
        yield (
            f'<g class="{one.status}"><circle class="i" cx="{x + 4:.1f}" cy="{y:.1f}" r="4"/></g>'
        )
        yield _text("d", x + 13, y + 4, one.text)
        x += 13 + 6.6 * len(one.text) + 16


def _line(x: float, y: float, width: float) -> str:
    return f'<path class="l" stroke-opacity=".45" d="M{x:.1f} {y:.1f}h{width:.1f}"/>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape_html(text)}</text>'
