"""A disk whose syncs take 100 ms, and a host's event loop that never waits for one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slow_disk import SYNC_MS, THREADS, TURNS

ROOT = Path(__file__).parents[2]
MOST_LOG_BYTES = 3 * 4 * 2**20
"""Three times what a log may hold before it begins again: who writes meanwhile writes on."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes syncs slow."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = tmp_path_factory.mktemp("slow") / "slow_disk.so"
    source = ROOT / "tests/slow_disk.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def measured(library: Path, root: Path, *arguments: str) -> Any:
    """What the scenario measured."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.slow_disk", root, *arguments],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_sync_of_machine_durability_stands_on_the_event_loop(
    library: Path, tmp_path: Path, backend: str
) -> None:
    found = measured(library, tmp_path, backend, "runs", "machine")
    assert found["states"] == [True] * (THREADS + 1)
    assert found["syncs"] >= THREADS * TURNS  # each turn's intent, at least
    assert found["syncs_on_loop"] == 0, found
    # A loop that waited for one sync would stand for longer; one that waits for each, for 20 s.
    assert found["worst_gap_s"] < 10 * SYNC_MS / 1000, found


@pytest.mark.parametrize(("backend", "durability"), [("asyncio", "process"), ("trio", "machine")])
def test_no_checkpoint_of_the_log_stands_on_the_event_loop(
    library: Path, tmp_path: Path, backend: str, durability: str
) -> None:
    found = measured(library, tmp_path, backend, "commits", durability)
    assert found["syncs"] >= 3  # the log's, the database's, and that of the log's new beginning
    assert found["syncs_on_loop"] == 0, found
    assert found["longest_bytes"] < MOST_LOG_BYTES, found


@pytest.mark.parametrize("durability", ["process", "machine"])
def test_neither_opening_nor_closing_a_rye_syncs_on_the_event_loop(
    library: Path, tmp_path: Path, durability: str
) -> None:
    found = measured(library, tmp_path, "asyncio", "opening", durability)
    assert found["syncs"] >= 3  # the new log's header, and what the last one to close moves home
    assert found["syncs_on_loop"] == 0, found
