"""A thread is killed between any two of its writes, and goes on as if nothing had been lost."""

from pathlib import Path
from typing import Final

import pytest

from tests.crashing import furnish
from tests.killing import kill_at_points
from tests.matrix import IS_SOAK

EVERY: Final = 1 if IS_SOAK else 25
"""How many points lie between two that are tried; `make soak` tries them all."""

TOGETHER: Final = (["between"], ["torn", "again"])
LEAST: Final = {"between": 60, "torn": 12, "again": 36}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ways", [[how] for how in LEAST] if IS_SOAK else TOGETHER)
def test_whenever_it_is_killed_nothing_is_lost_or_done_twice(
    tmp_path: Path, ways: list[str]
) -> None:
    kill_at_points("tests.crashing", furnish, tmp_path, dict.fromkeys(ways, EVERY), LEAST)
