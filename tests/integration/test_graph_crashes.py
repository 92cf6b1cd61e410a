"""A graph's run is killed between any two of its writes, and is gone on with."""

from pathlib import Path
from typing import Final

import pytest

from tests.graph_crashing import furnish
from tests.killing import kill_at_points
from tests.matrix import IS_SOAK

"""`make soak` tries all points; else a sample that is spread over the whole life."""

EVERY: Final = {"between": 48, "torn": 24, "again": 64, "later": 72, "machine": 128}
TOGETHER: Final = (["between"], ["torn", "again"], ["later", "machine"])
LEAST: Final = {"between": 100, "torn": 40, "again": 80, "later": 60, "machine": 120}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ways", [[how] for how in EVERY] if IS_SOAK else TOGETHER)
def test_whenever_it_is_killed_nothing_is_lost_or_done_twice(
    tmp_path: Path, ways: list[str]
) -> None:
    every = {how: 1 if IS_SOAK else EVERY[how] for how in ways}
    kill_at_points("tests.graph_crashing", furnish, tmp_path, every, LEAST)
