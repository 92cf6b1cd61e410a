"""Where the boxes of ordered ranks stand side by side: near what they hang together with."""

from collections.abc import Sequence
from typing import Final

__all__ = ["Neighbour", "place_boxes"]

_ROUNDS: Final = 12
_WORK: Final = 60_000
"""How many steps all rounds together may take, about."""
_REST: Final = 0.001
"""How much a box without neighbours on one side wants to stay where it is."""


Neighbour = tuple[int, float]
"""A box of the next rank that another one wants to stand straight above or below, and how much."""


def place_boxes(
    layers: Sequence[Sequence[int]],
    before: Sequence[float],
    after: Sequence[float],
    above: Sequence[Sequence[Neighbour]],
    below: Sequence[Sequence[Neighbour]],
) -> list[float]:
    """Place boxes so that none overlap and lines are as straight as they can be.

    Args:
        layers: The boxes of each rank, in order.
        before: How much room each needs on the side of its place towards the first.
        after: How much on the other side.
        above: What each hangs together with in the rank above.
        below: The same in the rank below.

    Returns:
        The place of each; the least room begins at 0.
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
    for _ in range(min(_ROUNDS, max(2, _WORK // (work * 4)))):
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
    """Bring a rank as near to where it wants to be as its order and widths allow.

    Without its widths, each place must be at least the one before it: the nearest such places are
    found by joining neighbours that are in each other's way (isotonic regression).
    """
    blocks: list[tuple[float, float, int]] = []  # where it stands, its pull, how many boxes
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
