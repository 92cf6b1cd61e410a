"""A thread is killed between any two of its writes, and goes on as if nothing had been lost."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crashing import furnish

EVERY: Final = 1 if os.environ.get("RYE_SOAK") else 6
"""How many points lie between two that are tried; `make soak` tries them all."""


@contextmanager
def _fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: a killed process needs no disk to be found dead."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="ryecore-") as folder:
        yield Path(folder)


LEAST: Final = {"between": 100, "torn": 20, "again": 60}
"""How many points there are at least: that none is counted any more would else not be seen."""


@pytest.mark.parametrize("how", LEAST)
def test_whenever_it_is_killed_nothing_is_lost_or_done_twice(tmp_path: Path, how: str) -> None:
    with _fast_folder(tmp_path) as folder:
        template, work = folder / "template", folder / "work"
        template.mkdir()
        work.mkdir()
        furnish(template)
        first = 1 + sum(map(ord, how)) % EVERY
        done = subprocess.run(
            [sys.executable, "-m", "tests.crashing", template, work, str(first), str(EVERY), how],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
    assert done.returncode == 0, done.stderr
    points: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    failed = [f"point {one['at']}: {one['life']}\n{one['said']}" for one in points if not one["ok"]]
    assert not failed, f"{len(failed)} of {len(points)} points:\n" + "\n".join(failed[:3])
    assert points[-1]["ended"]
    print(f"{how}: killed at {len(points) - 1} of {points[-1]['life']} points")
    assert int(points[-1]["life"]) >= LEAST[how]
