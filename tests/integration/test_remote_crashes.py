"""Who follows a run on a node is killed between any two writes; the next one ends it once."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.killing import kill_at_points
from tests.matrix import IS_SOAK
from tests.remote_crashing import furnish
from tests.remotes import connect
from tests.served_node import served_node
from tests.thread_host import FACTORY

EVERY: Final = 1 if IS_SOAK else 40
"""How many points lie between two that are tried; `make soak` tries them all."""

LEAST: Final = {"between": 60, "torn": 8, "again": 10}


@pytest.mark.timeout(1200)
def test_a_run_on_a_node_survives_each_death_of_its_follower(tmp_path: Path) -> None:
    operator = tmp_path / "operator"
    (operator / "user").mkdir(parents=True)

    def prepare(root: Path) -> None:
        planned = furnish(root, operator / "marks")
        environ = {**planned.environ, "HOME": str(operator / "user")}
        node = stack.enter_context(
            served_node(operator / "node", "--deps", FACTORY, environ=environ)
        )
        connect(planned.workspace, node)

    with ExitStack() as stack:
        kill_at_points(
            "tests.remote_crashing", prepare, tmp_path, dict.fromkeys(LEAST, EVERY), LEAST
        )
