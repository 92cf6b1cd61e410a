"""A disk whose syncs take long, and a host's event loop that never waits for one.

Waits are counted, and what the loop computes is measured in processor time: a busy machine changes
neither.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.forking import ROOT, Forked, forking_python
from tests.matrix import in_turn
from tests.slow_disk import THREADS, TURNS

MOST_LOG_BYTES = 3 * 4 * 2**20
"""Three times what a log may hold before it begins again: who writes meanwhile writes on."""
MOST_S = 0.05
"""For how long the event loop may compute without a pause."""
WAYS = [("asyncio", "machine"), ("trio", "process"), ("asyncio", "process"), ("trio", "machine")]
"""Loops with durabilities; each scenario tries one, and all in the soak."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes syncs slow."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = tmp_path_factory.mktemp("slow") / "slow_disk.so"
    source = ROOT / "tests/slow_disk.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


def measured(library: Path, root: Path, *arguments: str) -> Any:
    """What the scenario measured."""
    root.mkdir(exist_ok=True)
    with Forked(
        ["tests.slow_disk", str(root), *arguments],
        executable=forking_python(root, preload=str(library)),
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        found, problems = process.communicate()
    assert process.returncode == 0, problems.decode()
    return json.loads(found)


def waits_for_nothing(found: Any) -> None:
    """Assert that no event loop waited, nor computed for long."""
    assert found["waits_on_loop"] == []
    assert found["syncs_with_gil"] == 0
    assert found.get("busiest_s", 0) < MOST_S


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_way_to_wait_is_found(library: Path, tmp_path: Path, backend: str) -> None:
    found = measured(library, tmp_path, backend, "faulty", "process")
    waits = [one.partition("\n")[0] for one in found["waits_on_loop"]]
    assert [one.rpartition(" ")[2] for one in waits] == ["wait_in_each_way"] * 4, waits
    assert found["syncs"] == 3
    assert found["busiest_s"] > MOST_S


@pytest.mark.parametrize(("scenario", "backend"), in_turn(["runs"], ["trio", "asyncio"]))
def test_no_sync_of_machine_durability_stands_on_the_event_loop(
    library: Path, tmp_path: Path, scenario: str, backend: str
) -> None:
    found = measured(library, tmp_path, backend, scenario, "machine")
    assert found["states"] == [True] * (THREADS + 1)
    assert found["syncs"] >= THREADS * TURNS  # each turn's intent, at least
    waits_for_nothing(found)


def test_a_turn_with_a_tool_call_waits_for_two_syncs(library: Path, tmp_path: Path) -> None:
    found = measured(library, tmp_path, "asyncio", "turns", "machine")
    # The intent to call the tool; its result, and the hold for the request that brings it.
    assert found["of_each_turn"] == [2] * (TURNS - 1)
    assert found["syncs"] <= 11 + 2 * (TURNS - 1)  # to begin, and to end
    waits_for_nothing(found)


@pytest.mark.parametrize(("scenario", "way"), in_turn(["commits"], WAYS))
def test_no_checkpoint_of_the_log_stands_on_the_event_loop(
    library: Path, tmp_path: Path, scenario: str, way: tuple[str, str]
) -> None:
    found = measured(library, tmp_path, way[0], scenario, way[1])
    assert found["syncs"] >= 3  # the log's, the database's, and that of the log's new beginning
    waits_for_nothing(found)
    assert found["longest_bytes"] < MOST_LOG_BYTES, found


@pytest.mark.parametrize(("scenario", "way"), in_turn(["opening"], WAYS))
def test_nothing_that_a_new_project_is_first_used_for_waits_on_the_event_loop(
    library: Path, tmp_path: Path, scenario: str, way: tuple[str, str]
) -> None:
    found = measured(library, tmp_path, way[0], scenario, way[1])
    assert found["syncs"] >= 3 * 4  # keys, the new log's header, what the last one to close moves
    waits_for_nothing(found)


@pytest.mark.parametrize(("scenario", "way"), in_turn(["resuming"], WAYS[::-1]))
def test_no_resume_of_what_a_killed_host_left_waits_on_the_event_loop(
    library: Path, tmp_path: Path, scenario: str, way: tuple[str, str]
) -> None:
    found = measured(library, tmp_path, way[0], scenario, way[1])
    assert found["syncs"] >= 1
    waits_for_nothing(found)


def test_processes_of_their_own_and_who_starts_them_wait_on_no_event_loop(
    library: Path, tmp_path: Path
) -> None:
    found = measured(library, tmp_path, "asyncio", "apart", "machine")
    waits_for_nothing(found)
    assert len(found["processes"]) == 4  # a thread, a tool, and a graph in two ways
    for one in found["processes"]:
        assert one["syncs"] >= 1
        waits_for_nothing(one)
