"""A node is killed between any two writes; its next start ends the run as if nothing had been."""

from pathlib import Path
from typing import Final

import pytest

from tests.killing import kill_at_points
from tests.matrix import IS_SOAK
from tests.node_crashing import furnish

EVERY: Final = 1 if IS_SOAK else 40
"""How many points lie between two that are tried; `make soak` tries them all."""

LEAST: Final = {"between": 150, "torn": 30, "again": 60}


@pytest.mark.timeout(1200)
def test_a_run_survives_each_death_of_its_node(tmp_path: Path) -> None:
    kill_at_points("tests.node_crashing", furnish, tmp_path, dict.fromkeys(LEAST, EVERY), LEAST)
