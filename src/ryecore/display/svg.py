"""A picture as one SVG element: nothing is loaded, nothing runs, and any text may stand in it.

It has a background of its own, so that it can be read on any page. It follows the reader's
preference for light or dark, and in a notebook the notebook's theme.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from ryecore.display.layout import PlacedBox, Point, Route, lay_out
from ryecore.display.picture import SIGNS, BoxStatus, Picture
from ryecore.display.sanitize import escape_html, to_one_line
from ryecore.display.shapes import (
    BADGE,
    BOLD,
    DETAIL_SIZE,
    LABEL_SIZE,
    LINE_HEIGHT,
    LINE_LABEL_SIZE,
    STACKED,
    shorten_end,
    size_line_label,
    width_em,
)
from ryecore.display.text import counted, status_words

__all__ = ["background", "framed", "scrollable", "to_html", "to_svg"]

_MARGIN: Final = 14.0
_TITLE_SIZE: Final = 14.0
_TITLE_ROOM: Final = 30.0
_LEGEND_ROOM: Final = 24.0
_ARROW: Final = 8.0
_MAX_TOOLTIP: Final = 2000
_MAX_DESCRIBED: Final = 40

Ground = Literal["light", "dark"]

_COLOURS: Final[dict[str, tuple[str, str]]] = {
    # selector: its style on a light background, and on a dark one
    ".g": ("fill:#fdfdfe;stroke:#e3e7eb", "fill:#0f1318;stroke:#2a3038"),
    ".n .s": ("fill:#ffffff;stroke:#9aa4af", "fill:#191f27;stroke:#6b7683"),
    "text": ("fill:#1f2328", "fill:#e6edf3"),
    ".d": ("fill:#57606a", "fill:#9da7b3"),
    ".l": ("stroke:#8c959f", "stroke:#7d8590"),
    ".a": ("fill:#8c959f", "fill:#7d8590"),
    ".t.l": ("stroke:#0969da", "stroke:#58a6ff"),
    ".t.a": ("fill:#0969da", "fill:#58a6ff"),
    ".p": ("fill:#fdfdfe", "fill:#0f1318"),
    ".m": ("stroke:#ffffff", "stroke:#0d1117"),
    ".f": ("fill:#ffffff", "fill:#0d1117"),
}
_FORM: Final = {
    ".g,.s": "stroke-width:1",
    ".n .s": "stroke-width:1.4",
    ".b": f"font-size:{LABEL_SIZE:g}px;font-weight:600",
    ".d": f"font-size:{DETAIL_SIZE:g}px",
    ".h": f"font-size:{_TITLE_SIZE:g}px;font-weight:600",
    ".c": "text-anchor:middle",
    ".l": "fill:none;stroke-width:1.4",
    ".k": "stroke-width:3",
    ".e": "stroke-dasharray:5 4",
    ".t.l": "stroke-width:2.4",
    ".m": "fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round",
}
_FONTS: Final = "ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif"


def to_svg(picture: Picture) -> str:
    """Return a picture as one `<svg>` element, which is a file as well.

    Its texts may come from anywhere: they are shown, nothing else.
    """
    layout = lay_out(picture)
    title = to_one_line(picture.title)
    statuses: set[BoxStatus] = {box.status for box in picture.boxes}
    legend: list[BoxStatus] = [one for one in SIGNS if picture.legend and one in statuses]
    top = _MARGIN + (_TITLE_ROOM if title else 0.0)
    inside = max(layout.width, min(width_em(title) * _TITLE_SIZE * BOLD, 560.0), 60.0)
    rows = list(_legend_rows(legend, max(inside, 240.0)))
    inside = max(inside, *(x for row in rows for _, _, x in row), 0.0)
    width = inside + 2 * _MARGIN
    height = top + layout.height + (8 + _LEGEND_ROOM * len(rows) if rows else 0) + _MARGIN
    left = _MARGIN + (inside - layout.width) / 2
    body = "".join(
        [
            background(width, height),
            _title(title, inside) if title else "",
            f'<g transform="translate({_n(left)} {_n(top)})">',
            *(_route(route) for route in sorted(layout.routes, key=lambda one: one.line.is_taken)),
            *(_box(one) for one in layout.boxes),
            *(_line_label(route) for route in layout.routes if route.label),
            "</g>",
            *_legend(rows, top + layout.height + 8),
        ]
    )
    shown = title or counted(len(picture.boxes), "box", "boxes")
    return framed(body, shown, _description(picture), (width, height), statuses)


def framed(
    body: str, title: str, described: str, size: tuple[float, float], statuses: set[BoxStatus]
) -> str:
    """Return one `<svg>` element with the style of all pictures, for a body of shapes and texts.

    Title and description are for people who can't see it. `body` is escaped already.
    """
    # Different pictures on a page need different class names.
    name = "rye" + hashlib.sha256(body.encode()).hexdigest()[:10]
    width, height = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" role="img"'
        f' aria-labelledby="{name}t {name}d" width="{_n(width)}" height="{_n(height)}"'
        f' viewBox="0 0 {_n(width)} {_n(height)}" font-family="{_FONTS}">'
        f'<title id="{name}t">{escape_html(title)}</title>'
        f'<desc id="{name}d">{escape_html(described)}</desc>'
        f"<style>{_style(name, statuses)}</style>{body}</svg>"
    )


def background(width: float, height: float) -> str:
    """Return the ground that all pictures stand on."""
    return (
        f'<rect class="g" x=".5" y=".5" width="{_n(width - 1)}" height="{_n(height - 1)}" rx="8"/>'
    )


def to_html(picture: Picture) -> str:
    """Wrap a picture so that a wide one is scrolled sideways, not squeezed."""
    return scrollable(to_svg(picture))


def scrollable(svg: str) -> str:
    """Wrap an `<svg>` element so that a wide one is scrolled sideways, not squeezed."""
    return f'<div style="overflow-x:auto;max-width:100%;margin:4px 0">{svg}</div>'


# Parts


def _box(placed: PlacedBox) -> str:
    sized = placed.sized
    box = sized.box
    x, y, width, height = placed.x, placed.y, sized.width, sized.height
    if box.shape == "stack":
        width, height = width - 2 * STACKED, height - 2 * STACKED
    is_centred = box.shape in ("diamond", "round")
    text_x = x + (width - sized.text_width) / 2 + sized.badge_width
    label_y = y + (height - sized.text_height) / 2 + LINE_HEIGHT * 0.5
    parts = [f'<g class="n{f" {box.status}" if box.status else ""}"><title>{_tooltip(placed)}']
    parts.append(f"</title>{_shape(placed, width, height)}")
    centre = text_x + (sized.text_width - sized.badge_width) / 2
    where, kind = (centre, " c") if is_centred else (text_x, "")
    if box.status:
        if is_centred:  # as near to its label as its details allow
            half = width_em(sized.label) * LABEL_SIZE * BOLD / 2
            badge_x = centre - half - sized.badge_width + BADGE / 2
        else:
            badge_x = text_x - sized.badge_width + BADGE / 2
        parts.append(_badge(box.status, badge_x, label_y))
    parts.append(_text(f"b{kind}", where, label_y + LABEL_SIZE * 0.35, sized.label))
    for at, detail in enumerate(sized.details, 1):
        line_y = label_y + at * LINE_HEIGHT + DETAIL_SIZE * 0.35
        parts.append(_text(f"d{kind}", where, line_y, detail))
    return "".join([*parts, "</g>"])


def _shape(placed: PlacedBox, width: float, height: float) -> str:
    x, y, shape = placed.x, placed.y, placed.sized.box.shape
    if shape == "diamond":
        corners = [
            (x + width / 2, y), (x + width, y + height / 2),
            (x + width / 2, y + height), (x, y + height / 2),
        ]  # fmt: skip
        return f'<polygon class="s" points="{" ".join(map(_xy, corners))}"/>'
    radius = min(width, height) / 2 if shape == "round" else 6.0
    shifts = (2 * STACKED, STACKED, 0.0) if shape == "stack" else (0.0,)
    return "".join(
        f'<rect class="s" x="{_n(x + shift)}" y="{_n(y + shift)}" width="{_n(width)}"'
        f' height="{_n(height)}" rx="{_n(radius)}"/>'
        for shift in shifts
    )


def _tooltip(placed: PlacedBox) -> str:
    box = placed.sized.box
    said = box.tooltip or "\n".join((box.label, *box.details))
    lines = [to_one_line(line) for line in said[:_MAX_TOOLTIP].split("\n")]
    if len(said) > _MAX_TOOLTIP:
        lines.append("…")
    if box.status:
        lines.append(status_words(box.status))
    return escape_html("\n".join(lines), keep="\n")


def _badge(status: BoxStatus, x: float, y: float) -> str:
    sign = SIGNS[status]
    return (
        f'<g transform="translate({_n(x)} {_n(y)})" class="{status}">'
        f'<circle class="i" r="{_n(BADGE / 2)}"/>'
        f'<path class="{"f" if sign.is_filled else "m"}" d="{sign.path}"/></g>'
    )


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}">{escape_html(text)}</text>'


def _route(route: Route) -> str:
    """Return a line with its arrowhead."""
    before = (route.start, *(point for step in route.steps for point in step))[-2]
    end = route.end
    across, along = end[0] - before[0], end[1] - before[1]
    length = max((across**2 + along**2) ** 0.5, 1e-9)
    across, along = across / length, along / length
    base = (end[0] - across * _ARROW, end[1] - along * _ARROW)
    steps = [*route.steps[:-1], (*route.steps[-1][:-1], (end[0] - across * 4, end[1] - along * 4))]
    path = f"M{_xy(route.start)}" + "".join(
        ("C" if len(step) > 1 else "L") + " ".join(map(_xy, step)) for step in steps
    )
    head = [
        end,
        (base[0] - along * _ARROW * 0.45, base[1] + across * _ARROW * 0.45),
        (base[0] + along * _ARROW * 0.45, base[1] - across * _ARROW * 0.45),
    ]
    line = route.line
    kind = {"solid": "", "dashed": " e", "thick": " k"}[line.kind]
    taken = " t" if line.is_taken else ""
    return (
        f'<path class="l{kind}{taken}" d="{path}"/>'
        f'<polygon class="a{taken}" points="{" ".join(map(_xy, head))}"/>'
    )


def _line_label(route: Route) -> str:
    text, width, height = size_line_label(route.line.label)
    x, y = route.label_at
    whole = escape_html(to_one_line(route.line.label[:_MAX_TOOLTIP]))
    return (
        f"<g><title>{whole}</title>"
        f'<rect class="p" x="{_n(x - width / 2)}" y="{_n(y - height / 2)}" width="{_n(width)}"'
        f' height="{_n(height)}" rx="4"/>'
        f"{_text('d c', x, y + LINE_LABEL_SIZE * 0.35, text)}</g>"
    )


def _title(title: str, inside: float) -> str:
    shown = shorten_end(title, inside / _TITLE_SIZE / BOLD)
    return _text("h", _MARGIN, _MARGIN + _TITLE_SIZE, shown)


_Entry = tuple[BoxStatus, float, float]
"""A status, the beginning of its icon, and that of the next entry."""


def _legend_rows(legend: Iterable[BoxStatus], room: float) -> Iterator[list[_Entry]]:
    row: list[_Entry] = []
    at = 0.0
    for status in legend:
        end = at + BADGE + 6 + width_em(status_words(status)) * DETAIL_SIZE
        if row and end > room:
            yield row
            row, at, end = [], 0.0, end - at
        row.append((status, at, end))
        at = end + 16
    if row:
        yield row


def _legend(rows: Iterable[list[_Entry]], y: float) -> Iterator[str]:
    for place, row in enumerate(rows):
        middle = y + (place + 0.5) * _LEGEND_ROOM
        for status, start, _ in row:
            x = _MARGIN + start
            yield _badge(status, x + BADGE / 2, middle)
            yield _text("d", x + BADGE + 6, middle + DETAIL_SIZE * 0.35, status_words(status))


def _description(picture: Picture) -> str:
    """Describe the picture for people who can't see it."""
    statuses = Counter(box.status for box in picture.boxes if box.status)
    parts = [
        f"{counted(len(picture.boxes), 'box', 'boxes')},"
        f" {counted(len(picture.lines), 'line', 'lines')}."
    ]
    parts += [f"{count} {status_words(status)}." for status, count in statuses.items()]
    labels = {box.id: shorten_end(to_one_line(box.label), 40) for box in picture.boxes}
    for box in picture.boxes[:_MAX_DESCRIBED]:
        ends = [labels[line.end] for line in picture.lines if line.start == box.id][:8]
        status = f" ({status_words(box.status)})" if box.status else ""
        leads = f" leads to {', '.join(ends)}" if ends else ""
        parts.append(f"{labels[box.id]}{status}{leads}.")
    if len(picture.boxes) > _MAX_DESCRIBED:
        parts.append("And so on.")
    return " ".join(parts)


# Style


def _style(name: str, statuses: set[BoxStatus]) -> str:
    """Return the style rules of a picture, which apply only to it, on any page."""
    form = "".join(_rule(f".{name} ", one, said) for one, said in _FORM.items())
    light, dark = _ground("light", statuses), _ground("dark", statuses)
    at_night = ":is([data-jp-theme-light='false'],.vscode-dark)"
    by_day = ":is([data-jp-theme-light='true'],.vscode-light)"

    def rules(before: str, colours: dict[str, str]) -> str:
        return "".join(_rule(f"{before}.{name} ", one, said) for one, said in colours.items())

    return (
        form + rules("", light) + "@media (prefers-color-scheme:dark){" + rules("", dark) + "}"
        + rules(f"{at_night} ", dark) + rules(f"{by_day} ", light)
    )  # fmt: skip


def _rule(before: str, selectors: str, said: str) -> str:
    return ",".join(before + one for one in selectors.split(",")) + "{" + said + "}"


def _ground(ground: Ground, statuses: set[BoxStatus]) -> dict[str, str]:
    place = 0 if ground == "light" else 1
    rules = {selector: both[place] for selector, both in _COLOURS.items()}
    for status, sign in SIGNS.items():
        if status in statuses:
            tone = sign.light if ground == "light" else sign.dark
            dashed = ";stroke-dasharray:5 3" if status == "skipped" else ""
            rules[f".n.{status} .s"] = f"fill:{tone.fill};stroke:{tone.stroke}{dashed}"
            rules[f".{status} .i"] = f"fill:{tone.stroke}"
    return rules


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _xy(point: Point) -> str:
    return f"{_n(point[0])} {_n(point[1])}"
