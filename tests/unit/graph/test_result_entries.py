"""The files that results are kept in: their age, their number, and processes that die."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.graph.result_cache import MAX_AGE_DAYS, Entries
from ryecore.state.records import sign_record
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Files are written on threads, whichever loop waits for them."""
    return "asyncio"


async def test_what_is_old_is_computed_again(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    entries = _entries(workspace)
    assert entries.put("a" * 64, "tool:acme/x", {"n": 1}) == ""
    assert entries.get("a" * 64) == ({"n": 1},)
    path = entries.folder / f"{'a' * 64}.json"
    record = json.loads(path.read_text())
    record.pop("_signature")
    when = time.strftime(
        "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - (MAX_AGE_DAYS + 1) * 86400)
    )
    old = sign_record("graph-result", record | {"created_at": when}, entries.signer)
    path.write_text(json.dumps(old))
    assert entries.get("a" * 64) is None


def _entries(workspace: Workspace, **options: Any) -> Entries:
    return Entries(workspace.project / ".ai", workspace.user / ".ai", "process", **options)


async def test_no_more_than_so_many_are_kept_and_the_oldest_go(tmp_path: Path) -> None:
    entries = _entries(Workspace(tmp_path), max_entries=10)
    for number in range(25):
        key = f"{number:064x}"
        entries.put(key, "tool:acme/x", number)
        os.utime(entries.folder / f"{key}.json", (1_700_000_000 + number,) * 2)
    (entries.folder / f".{'b' * 64}.json.0123456789ab").write_text("left over")
    os.utime(entries.folder / f".{'b' * 64}.json.0123456789ab", (0, 0))
    (entries.folder / "somebody-elses").write_text("")
    now = time.time()
    for number in range(25):
        os.utime(entries.folder / f"{number:064x}.json", (now - 100 + number,) * 2)
    entries.prune()
    kept = sorted(int(one.stem, 16) for one in entries.folder.glob("*.json"))
    assert kept == list(range(15, 25))
    assert sorted(one.name for one in entries.folder.iterdir() if one.suffix != ".json") == [
        "somebody-elses"
    ]
    assert entries.clear() == 10
    assert entries.get(f"{20:064x}") is None


async def test_the_order_of_what_came_is_kept(tmp_path: Path) -> None:
    entries = _entries(Workspace(tmp_path))
    said = {"z": 1, "a": {"y": 2, "b": "é\ud800"}, "n": 2**70, "f": 0.1}
    entries.put("c" * 64, "tool:acme/x", said)
    found = entries.get("c" * 64)
    assert found is not None
    assert json.dumps(found[0]) == json.dumps(said)


_PUTS = """
import sys
from pathlib import Path
from ryecore.graph.result_cache import Entries
entries = Entries(Path(sys.argv[1]), Path(sys.argv[2]), "process")
print("begun", flush=True)
number = 0
while True:
    entries.put(f"{number % 50:064x}", "tool:acme/x", ["x" * 20_000, number % 50])
    number += 1
"""


async def test_two_processes_that_write_and_are_killed_leave_whole_entries(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    entries = _entries(workspace)
    roots = [str(workspace.project / ".ai"), str(workspace.user / ".ai")]
    for _ in range(3):
        writers = [
            subprocess.Popen([sys.executable, "-c", _PUTS, *roots], stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        for one in writers:
            assert one.stdout is not None
            await anyio.to_thread.run_sync(one.stdout.readline)
        seen = 0
        while seen < 50:
            seen = sum(entries.get(f"{number:064x}") is not None for number in range(50))
        for one in writers:
            one.send_signal(signal.SIGKILL)
            one.wait()
            assert one.stdout is not None
            one.stdout.close()
        for number in range(50):
            found = entries.get(f"{number:064x}")
            assert found == (["x" * 20_000, number],)
