"""The rank of each box of a picture, its order in the rank, and its position there.

Boxes are numbers here. Nothing is recursive, so a picture may have any depth.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

__all__ = ["Arc", "Neighbour", "find_backward", "order_ranks", "place_boxes", "rank_boxes"]

Arc = tuple[int, int]
"""A line from one box to another."""

_SWEEPS: Final = 24
_PATIENCE: Final = 6
"""The number of sweeps without an improvement after which the best order is taken."""
_WORK: Final = 60_000
"""The approximate number of steps of all sweeps: large pictures get fewer sweeps."""

_ROUNDS: Final = 12
_PLACING_WORK: Final = 60_000
"""The approximate number of steps of all rounds."""
_REST: Final = 0.001
"""The weight of the present position of a box without neighbours on one side."""


Neighbour = tuple[int, float]
"""A connected box of the next rank, and the weight of standing straight above or below it."""


def find_backward(count: int, arcs: Sequence[Arc]) -> set[int]:
    """Return the positions of the arcs that close a circle; with these reversed, there is none."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    entered = [False] * count
    for at, (start, end) in enumerate(arcs):
        leaving[start].append(at)
        entered[end] = True
    backward: set[int] = set()
    state = bytearray(count)  # 1: on the way to here; 2: done
    tops = [one for one in range(count) if not entered[one]]
    for top in (*tops, *range(count)):
        if state[top]:
            continue
        state[top] = 1
        path = [(top, iter(leaving[top]))]
        while path:
            box, rest = path[-1]
            for at in rest:
                end = arcs[at][1]
                if state[end] == 1:
                    backward.add(at)
                elif not state[end]:
                    state[end] = 1
                    path.append((end, iter(leaving[end])))
                    break
            else:
                state[box] = 2
                path.pop()
    return backward


def rank_boxes(count: int, arcs: Sequence[Arc], lengths: Sequence[int]) -> list[int]:
    """Return the rank of each box: the longest path to it.

    A box that nothing leads to stands near those that it leads to. `lengths` says how many ranks
    each arc leads down at least.
    """
    leaving: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for at, (start, end) in enumerate(arcs):
        leaving[start].append(at)
        missing[end] += 1
    tops = [one for one in range(count) if not missing[one]]
    ranks = [0] * count
    ready = list(tops)
    for box in ready:  # which grows
        for at in leaving[box]:
            end = arcs[at][1]
            ranks[end] = max(ranks[end], ranks[box] + lengths[at])
            missing[end] -= 1
            if not missing[end]:
                ready.append(end)
    for box in tops:
        if leaving[box]:
            ranks[box] = min(ranks[arcs[at][1]] - lengths[at] for at in leaving[box])
    return ranks


def order_ranks(
    ranks: Sequence[int], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Order the boxes of each rank so that few lines cross.

    `above` holds, for each box, the connected boxes of the rank above.
    """
    layers = _first_order(ranks, above, below)
    work = len(ranks) + sum(map(len, below)) + 1
    sweeps = min(_SWEEPS, max(2, _WORK // (work * 4)))
    fewest, best = _crossings(layers, below), [list(one) for one in layers]
    tried = 0
    for sweep in range(sweeps):
        if not fewest or tried >= _PATIENCE:
            break
        down = sweep % 2 == 0
        for at in range(1, len(layers)):
            layer = layers[at if down else len(layers) - 1 - at]
            fixed = layers[at - 1 if down else len(layers) - at]
            _sort_layer(layer, fixed, above if down else below)
        crossings = _crossings(layers, below)
        tried += 1
        if crossings < fewest:
            fewest, best, tried = crossings, [list(one) for one in layers], 0
    return best


def _first_order(
    ranks: Sequence[int], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the order in which a walk down meets the boxes; in it, no lines of a tree cross."""
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    met = bytearray(len(ranks))
    for top in range(len(ranks)):
        waiting = [top] if not above[top] else []
        while waiting:
            box = waiting.pop()
            if not met[box]:
                met[box] = 1
                layers[ranks[box]].append(box)
                waiting.extend(reversed(below[box]))
    return layers


def _sort_layer(
    layer: list[int], fixed: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> None:
    """Sort boxes by the mean position of their neighbours; one without keeps its place."""
    places = {box: place for place, box in enumerate(fixed)}
    means = {
        box: sum([places[one] for one in neighbours[box]]) / len(neighbours[box])
        for box in layer
        if neighbours[box]
    }
    moved = iter(sorted(means, key=means.__getitem__))
    layer[:] = [next(moved) if box in means else box for box in layer]


def _crossings(layers: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """Return how often lines cross."""
    count = 0
    for upper, lower in pairwise(layers):
        places = {box: place for place, box in enumerate(lower)}
        seen: list[int] = []
        for box in upper:
            ends = sorted(places[one] for one in below[box])
            for end in ends:
                count += len(seen) - bisect_right(seen, end)
            for end in ends:
                insort(seen, end)
    return count


# Places


def place_boxes(
    layers: Sequence[Sequence[int]],
    before: Sequence[float],
    after: Sequence[float],
    above: Sequence[Sequence[Neighbour]],
    below: Sequence[Sequence[Neighbour]],
) -> list[float]:
    """Place boxes so that none overlap and lines are as straight as possible.

    `before` is the room that each box needs before its place. The least room begins at 0.
    """
    places = [0.0] * len(before)
    shifts = [0.0] * len(before)
    for layer in layers:
        shift = 0.0
        for at, box in enumerate(layer):
            shift += before[box] + (after[layer[at - 1]] if at else 0.0)
            shifts[box] = places[box] = shift
    work = len(before) + sum(map(len, below)) + 1
    pulls_above, pulls_below = _pulls(above), _pulls(below)
    for _ in range(min(_ROUNDS, max(2, _PLACING_WORK // (work * 4)))):
        for layer in layers:
            _settle(layer, places, shifts, above, pulls_above)
        for layer in reversed(layers):
            _settle(layer, places, shifts, below, pulls_below)
    least = min((places[layer[0]] - before[layer[0]] for layer in layers if layer), default=0.0)
    return [one - least for one in places]


def _pulls(neighbours: Sequence[Sequence[Neighbour]]) -> list[float]:
    return [sum([pull for _, pull in near]) or _REST for near in neighbours]


def _settle(
    layer: Sequence[int],
    places: list[float],
    shifts: Sequence[float],
    neighbours: Sequence[Sequence[Neighbour]],
    pulls: Sequence[float],
) -> None:
    """Move the boxes of a rank as near to their neighbours as its order and widths allow.

    With the widths subtracted, positions must not decrease: the nearest such positions are found
    by merging boxes that are in each other's way (isotonic regression).
    """
    blocks: list[tuple[float, float, int]] = []  # its position, its weight, its number of boxes
    for box in layer:
        near = neighbours[box]
        pull, count = pulls[box], 1
        if len(near) == 1:
            at = places[near[0][0]] - shifts[box]
        elif near:
            at = sum([places[one] * its for one, its in near]) / pull - shifts[box]
        else:
            at = places[box] - shifts[box]
        while blocks and blocks[-1][0] >= at:
            other, others_pull, others = blocks.pop()
            at = (at * pull + other * others_pull) / (pull + others_pull)
            pull, count = pull + others_pull, count + others
        blocks.append((at, pull, count))
    boxes = iter(layer)
    for at, _, count in blocks:
        for _ in range(count):
            box = next(boxes)
            places[box] = at + shifts[box]
