"""The loss of power after each sync: what isn't synced is gone, and no intent of an effect is."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ryecore.state.store import ThreadStore
from tests.forking import ROOT
from tests.power_cut import TURNS

_OF_THREAD = ("transcript.jsonl", "thread.json", "capabilities.md")
_FILES = (*_OF_THREAD, "threads.db", "threads.db-wal", "threads.db-shm")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that copies what each sync stores."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = tmp_path_factory.mktemp("power") / "power_cut.so"
    source = ROOT / "tests/power_cut.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def _images(synced: Path) -> Sequence[Mapping[str, Path]]:
    """What is on the disk after each sync: a copy of each file's content, by its path."""
    images: list[dict[str, Path]] = [{}]
    count = len(list(synced.glob("*.path")))
    for number in range(1, count + 1):
        path = (synced / f"{number}.path").read_text()
        images.append({**images[-1], path: synced / str(number)})
    return images


def _lose_power(state: Path, image: Mapping[str, Path]) -> None:
    """Leave only what is on the disk, after another boot of the machine."""
    for path in [one for one in state.rglob("*") if one.name in _FILES]:
        path.unlink()
    for path, stored in image.items():
        if Path(path).name in _FILES and Path(path).parent.is_dir():
            shutil.copyfile(stored, path)
    (database,) = state.rglob("threads.db")
    with sqlite3.connect(database) as opened:
        opened.execute("UPDATE write_ahead SET boot_id = 'before'")
        opened.execute("UPDATE threads SET boot_id = 'before', lease_until = 0")
    opened.close()


@pytest.mark.anyio
async def test_no_loss_of_power_takes_the_intent_of_an_effect(
    library: Path, tmp_path: Path
) -> None:
    root, synced = tmp_path / "root", tmp_path / "synced"
    synced.mkdir()
    root.mkdir()
    run = subprocess.run(
        [sys.executable, "-m", "tests.power_cut", str(root)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library), "POWER_CUT": str(synced)},
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    effects = json.loads(run.stdout)
    assert Counter(kind for kind, _ in effects) == {
        "model_call": 2 * TURNS, "tool_call_start": 2 * (TURNS - 1)
    }  # fmt: skip
    state = root / "project/.ai/state"
    images = _images(synced)
    first = min(count for _, count in effects)
    restored = 0
    for number in range(first, len(images)):
        _lose_power(state, images[number])
        restored += await _check(root, [kind for kind, count in effects if count <= number])
    assert restored > len(images) - first  # in nearly each image, of both threads


async def _check(root: Path, effects: list[str]) -> int:
    """Assert that each effect's intent is there, and all is proved. Returns how many logs are."""
    store = ThreadStore.open(root / "project/.ai", root / "user/.ai")
    found: Counter[str] = Counter()
    threads = await store.registry.list_threads()
    logs = 0
    for thread in threads:
        if not await store.records.exists(thread.thread_id):
            continue
        logs += 1
        report = await store.records.verify(
            thread.thread_id, thread.transcript_head, ended=thread.ended
        )
        assert report.ok, report.problems
        left = {path.name for path in store.folder_of(thread.thread_id).iterdir()}
        assert {"thread.json", "capabilities.md"} <= left
        assert (await store.read_file(thread.thread_id))["thread_id"] == thread.thread_id
        async for record in store.records.read(thread.thread_id):
            found[record.type] += 1
    for kind, count in Counter(effects).items():
        assert found[kind] >= count, (kind, found, effects)
    store.close()
    return logs
