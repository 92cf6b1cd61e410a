"""Which cells of a matrix of cases the ordinary run tries."""

import os
from collections.abc import Sequence
from itertools import cycle, product
from typing import Final, TypeVar

C = TypeVar("C")
W = TypeVar("W")

IS_SOAK: Final = bool(os.environ.get("RYE_SOAK"))
"""Whether this is the long run that tries every cell."""


def in_turn(cases: Sequence[C], ways: Sequence[W]) -> list[tuple[C, W]]:
    """Each case in one of the ways, one after the other; in the soak, each in all of them."""
    if IS_SOAK:
        return list(product(cases, ways))
    return list(zip(cases, cycle(ways), strict=False))
