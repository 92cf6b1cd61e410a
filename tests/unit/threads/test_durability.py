"""What a thread leaves waits for the disk where its project says so, and only there."""

import os
from pathlib import Path
from typing import Any

import pytest

from ryecore.testing import say
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("durability", ["process", "machine"])
async def test_a_thread_waits_for_the_disk_where_its_project_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    host = ScriptedHost(tmp_path, model=lambda _: say("hello"))
    ref = host.write("acme/greet")
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    async with host.open(durability=durability) as rye:
        await rye.execute(ref, thread="fork")  # a key and folders are made: that always waits
        monkeypatch.setattr(os, "fsync", sync)
        monkeypatch.setattr(os, "fdatasync", sync)
        done = await rye.execute(ref, thread="fork")
        monkeypatch.undo()
    assert done.success, done
    folder = host.workspace.project / ".ai/state/threads" / done.thread_id
    left = ["thread.json", "capabilities.md", "transcript.jsonl", "result.json"]
    for name in (*left, f"{folder.name}.md"):
        waited = any(name in one for one in synced)
        assert waited == (durability == "machine"), (name, synced)
    assert all((folder / name).exists() for name in left)
