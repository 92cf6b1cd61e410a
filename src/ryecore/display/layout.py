"""The layout of a picture: ranks of boxes, and lines that are routed around them.

The method is that of Sugiyama, Tagawa and Toda: reverse the lines that close circles, then rank,
order and place the boxes. Ranks are computed from top to bottom; for a picture whose direction is
right, the axes are swapped at the end.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from attrs import evolve

from ryecore.display.picture import Direction, Line, Picture
from ryecore.display.ranks import (
    Arc,
    Neighbour,
    find_backward,
    order_ranks,
    place_boxes,
    rank_boxes,
)
from ryecore.display.shapes import Sized, depth_at, port_room, size_line_label, size_of
from ryecore.frozen import frozen

__all__ = ["Layout", "PlacedBox", "Point", "Route", "Step", "lay_out"]

Point = tuple[float, float]
Step = tuple[Point, ...]
"""A part of a line: straight to one point, or a curve (two control points, and its end)."""

_RANK_GAP: Final[dict[Direction, float]] = {"down": 34.0, "right": 44.0}
_LABEL_GAP: Final = 18.0
"""The gap between a rank and one that holds only labels."""
_MOST_GAP: Final = 110.0
_BOX_GAP: Final[dict[Direction, float]] = {"down": 14.0, "right": 9.0}
"""The gap on each side of a box."""
_LINE_GAP: Final = 8.0
_PORT_GAP: Final = 16.0
_LOOP: Final = 26.0
"""The distance that a line to its own box leads away from it."""
_STOPS_A_BOX: Final = 4
_STOPS: Final = 400
"""The places kept free in ranks that lines pass; beyond that, the longest lines get none."""
_PULLS: Final = (8.0, 2.0, 1.0)
"""The weights of straightness of a line whose ends are no, one, or two boxes."""


@frozen
class PlacedBox:
    """A box, its texts, and the upper left corner of its rectangle."""

    sized: Sized
    x: float
    y: float


@frozen
class Route:
    """The way of a line, whose last step ends at the border of the target box."""

    line: Line
    label: str
    start: Point
    steps: tuple[Step, ...]
    label_at: Point

    @property
    def end(self) -> Point:
        """The point at which it meets its target box."""
        return self.steps[-1][-1]


@frozen
class Layout:
    """A picture with the position of each part."""

    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    routes: tuple[Route, ...]


def lay_out(picture: Picture) -> Layout:
    """Return a position for every box and a route for every line; always the same for a picture."""
    return _Plan(picture).layout()


class _Plan:
    """A picture being laid out, from top to bottom: `across` is the position within a rank."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.turned = picture.direction == "right"
        self.sized = [size_of(box) for box in picture.boxes]
        numbers = {box.id: at for at, box in enumerate(picture.boxes)}
        self.ends = [(numbers[one.start], numbers[one.end]) for one in picture.lines]
        self.labels = [size_line_label(one.label) for one in picture.lines]
        self.loops: dict[int, list[int]] = {}
        self.lengths = [self._across_and_along(one.width, one.height) for one in self.sized]
        gap = _BOX_GAP[picture.direction]
        self.before = [across / 2 + gap for across, _ in self.lengths]
        self.after = list(self.before)
        self.ways: dict[int, list[int]] = {}
        """For each line between two boxes: the boxes and stops it passes, from top to bottom."""
        self.label_stops: dict[int, int] = {}
        self._add_loops()
        self._rank()
        self._order_and_place()
        self._stack_ranks()

    def _across_and_along(self, width: float, height: float) -> tuple[float, float]:
        return (height, width) if self.turned else (width, height)

    def _add_loops(self) -> None:
        for at, (start, end) in enumerate(self.ends):
            if start == end:
                self.loops.setdefault(start, []).append(at)
                _, width, height = self.labels[at]
                self.after[start] += _LOOP + self._across_and_along(width, height)[0]

    def _rank(self) -> None:
        straight = [at for at, (start, end) in enumerate(self.ends) if start != end]
        turned = {
            straight[one]
            for one in find_backward(len(self.sized), [self.ends[at] for at in straight])
        }
        self.backward = turned
        arcs: list[Arc] = []
        for at in straight:
            start, end = self.ends[at]
            arcs.append((end, start) if at in turned else (start, end))
        met: set[Arc] = set()
        lengths: list[int] = []
        for at, arc in zip(straight, arcs, strict=True):
            # A label needs a rank, and so does what would lie on another line.
            lengths.append(2 if self.labels[at][0] or at in turned or arc in met else 1)
            met.add(arc)
        self.ranks = rank_boxes(len(self.sized), arcs, lengths)
        self._add_stops(straight, arcs)

    def _add_stops(self, straight: Sequence[int], arcs: Sequence[Arc]) -> None:
        """Reserve a stop for each line in every rank that it passes, unless there are too many."""
        room = _STOPS_A_BOX * len(self.sized) + _STOPS
        spans = [self.ranks[end] - self.ranks[start] for start, end in arcs]
        for one in sorted(range(len(arcs)), key=spans.__getitem__):
            at, (start, end), span = straight[one], arcs[one], spans[one]
            stops: list[int] = []
            room -= span - 1
            if room >= 0:
                for rank in range(self.ranks[start] + 1, self.ranks[end]):
                    stops.append(len(self.ranks))
                    self.ranks.append(rank)
                    self.lengths.append((0.0, 0.0))
                    self.before.append(_LINE_GAP)
                    self.after.append(_LINE_GAP)
            self.ways[at] = [start, *stops, end]
            text, width, height = self.labels[at]
            if text and stops:
                # A label is clearest near the box that its line leaves.
                stop = stops[-1 if at in self.backward else 0]
                self.label_stops[at] = stop
                self.lengths[stop] = self._across_and_along(width, height)
                half = self.lengths[stop][0] / 2 + _LINE_GAP / 2
                self.before[stop] = self.after[stop] = half

    def _order_and_place(self) -> None:
        count = len(self.ranks)
        above: list[list[int]] = [[] for _ in range(count)]
        below: list[list[int]] = [[] for _ in range(count)]
        for at in sorted(self.ways):
            way = self.ways[at]
            for upper, lower in pairwise(way):
                if self.ranks[lower] - self.ranks[upper] == 1:
                    below[upper].append(lower)
                    above[lower].append(upper)
        self.layers = order_ranks(self.ranks, above, below)
        boxes = len(self.sized)

        def pulled(box: int, near: Sequence[int]) -> list[Neighbour]:
            own = 1 if box < boxes else 0
            return [(one, _PULLS[own + (1 if one < boxes else 0)]) for one in near]

        self.across = place_boxes(
            self.layers, self.before, self.after,
            [pulled(box, near) for box, near in enumerate(above)],
            [pulled(box, near) for box, near in enumerate(below)],
        )  # fmt: skip

    def _stack_ranks(self) -> None:
        """Compute the beginning and the end of each rank."""
        boxes = len(self.sized)
        widest = [0.0] * len(self.layers)
        for way in self.ways.values():
            for upper, lower in pairwise(way):
                rank = self.ranks[upper]
                reach = abs(self.across[upper] - self.across[lower])
                widest[rank] = max(widest[rank], reach)
        self.bands: list[tuple[float, float]] = []
        end = 0.0
        bare_before = False
        for rank, layer in enumerate(self.layers):
            bare = all(one >= boxes for one in layer)
            if rank:
                gap = _LABEL_GAP if bare or bare_before else _RANK_GAP[self.picture.direction]
                end += min(max(gap, widest[rank - 1] * 0.12), _MOST_GAP)
            start, bare_before = end, bare
            end = start + max((self.lengths[one][1] for one in layer), default=0.0)
            self.bands.append((start, end))
        self.along_end = end

    def _along(self, box: int) -> tuple[float, float]:
        """Return the beginning and end of a box across the ranks."""
        start, end = self.bands[self.ranks[box]]
        length = self.lengths[box][1]
        if not self.turned:
            start += (end - start - length) / 2
        return start, start + length

    def _at(self, across: float, along: float) -> Point:
        return (along, across) if self.turned else (across, along)

    def layout(self) -> Layout:
        """Return the layout, in pixels."""
        placed: list[PlacedBox] = []
        for box, sized in enumerate(self.sized):
            across, along = self.lengths[box][0], self._along(box)[0]
            x, y = self._at(self.across[box] - across / 2, along)
            placed.append(PlacedBox(sized, x, y))
        ports = self._ports()
        routes = [
            self._loop(at) if start == end else self._route(at, ports)
            for at, (start, end) in enumerate(self.ends)
        ]
        return _trimmed(placed, routes)

    def _ports(self) -> dict[tuple[int, int], float]:
        """Return the offset along a box's side at which each line leaves or meets it."""
        sides: dict[tuple[int, bool], list[tuple[float, int]]] = {}
        for at, way in self.ways.items():
            sides.setdefault((way[0], True), []).append((self.across[way[1]], at))
            sides.setdefault((way[-1], False), []).append((self.across[way[-2]], at))
        ports: dict[tuple[int, int], float] = {}
        for (box, _), found in sides.items():
            found.sort()
            room = port_room(self.sized[box].box.shape, *self.lengths[box])
            last = len(found) - 1
            gap = min(_PORT_GAP, 2 * room / last) if last else 0.0
            for place, (_, at) in enumerate(found):
                ports[at, box] = (place - last / 2) * gap
        return ports

    def _border(self, box: int, offset: float, *, is_lower: bool) -> Point:
        start, end = self._along(box)
        depth = depth_at(self.sized[box].box.shape, offset, *self.lengths[box])
        return self.across[box] + offset, end - depth if is_lower else start + depth

    def _route(self, at: int, ports: dict[tuple[int, int], float]) -> Route:
        way = self.ways[at]
        first, last = way[0], way[-1]
        points = [self._border(first, ports[at, first], is_lower=True)]
        points.append((points[0][0], self.bands[self.ranks[first]][1]))
        for stop in way[1:-1]:
            start, end = self.bands[self.ranks[stop]]
            points += [(self.across[stop], start), (self.across[stop], end)]
        final = self._border(last, ports[at, last], is_lower=False)
        points += [(final[0], self.bands[self.ranks[last]][0]), final]
        if at in self.label_stops:
            stop = self.label_stops[at]
            across, along = self.across[stop], sum(self.bands[self.ranks[stop]]) / 2
        else:
            across = (points[0][0] + final[0]) / 2
            along = (points[0][1] + final[1]) / 2
        if at in self.backward:
            points.reverse()
        return Route(
            self.picture.lines[at], self.labels[at][0], self._at(*points[0]),
            self._steps(points), self._at(across, along),
        )  # fmt: skip

    def _steps(self, points: Sequence[Point]) -> tuple[Step, ...]:
        steps: list[Step] = []
        for (across, along), (to_across, to_along) in pairwise(points):
            if (across, along) == (to_across, to_along):
                continue
            end = self._at(to_across, to_along)
            if across == to_across:
                steps.append((end,))
            else:
                middle = (along + to_along) / 2
                steps.append((self._at(across, middle), self._at(to_across, middle), end))
        return tuple(steps)

    def _loop(self, at: int) -> Route:
        """Return the route of a line that leads back to its own box."""
        box = self.ends[at][0]
        place = self.loops[box].index(at)
        across, along = self.lengths[box]
        depth = along / 4 * (0.6 + 0.4 * (place + 1) / len(self.loops[box]))
        border = self.across[box] + across / 2
        border -= depth_at(self.sized[box].box.shape, depth, along, across)
        reach = self.across[box] + across / 2
        for other in self.loops[box][: place + 1]:
            text_across = self._across_and_along(*self.labels[other][1:])[0]
            reach += _LOOP + (text_across if other != at else 0.0)
        middle = sum(self._along(box)) / 2
        text_across = self._across_and_along(*self.labels[at][1:])[0]
        beyond = (
            border + (reach - border) * 4 / 3
        )  # with its control points there, the curve comes to reach
        start = self._at(border, middle - depth)
        end = self._at(border, middle + depth)
        step = (self._at(beyond, middle - depth), self._at(beyond, middle + depth), end)
        return Route(
            self.picture.lines[at], self.labels[at][0], start, (step,),
            self._at(reach + text_across / 2, middle),
        )  # fmt: skip


def _trimmed(boxes: Sequence[PlacedBox], routes: Sequence[Route]) -> Layout:
    """Move everything so that no room is left at the left and at the top."""
    corners = [(one.x, one.y) for one in boxes]
    corners += [(one.x + one.sized.width, one.y + one.sized.height) for one in boxes]
    for route in routes:
        corners += [route.start, *(step[-1] for step in route.steps)]
        _, width, height = size_line_label(route.line.label)
        x, y = route.label_at
        corners += [(x - width / 2, y - height / 2), (x + width / 2, y + height / 2)]
    if not corners:
        return Layout(0.0, 0.0, (), ())
    left, top = min(x for x, _ in corners), min(y for _, y in corners)
    right, bottom = max(x for x, _ in corners), max(y for _, y in corners)

    def moved(point: Point) -> Point:
        return point[0] - left, point[1] - top

    return Layout(
        right - left,
        bottom - top,
        tuple(evolve(one, x=one.x - left, y=one.y - top) for one in boxes),
        tuple(
            evolve(
                one, start=moved(one.start), label_at=moved(one.label_at),
                steps=tuple(tuple(map(moved, step)) for step in one.steps),
            )
            for one in routes
        ),
    )  # fmt: skip
