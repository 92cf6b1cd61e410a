"""What a thread leaves waits for the disk where its project says so, and only there."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ryecore.testing import call, say
from ryecore.tools import ToolApprovalRequest, tool
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


@pytest.mark.parametrize("asks", [True, False])
async def test_an_answer_is_written_before_its_call_is_approved_and_run(
    tmp_path: Path, asks: bool
) -> None:
    written: dict[str, list[str]] = {}

    def note(when: str) -> None:
        (path,) = tmp_path.rglob("transcript.jsonl")
        lines = path.read_text().splitlines()
        written[when] = [json.loads(line)["event_type"] for line in lines]

    async def approve(_: ToolApprovalRequest) -> bool:
        note("asked")
        return True

    @tool(needs_approval=asks)
    def wipe() -> str:
        """Wipe it."""
        note("run")
        return "wiped"

    host = ScriptedHost(tmp_path, call("wipe"), say("done"), tools=[wipe], approve=approve)
    done = await host.run(host.write("acme/wipe"))
    assert done.success, done
    assert written.keys() == ({"asked", "run"} if asks else {"run"})
    if asks:
        assert written["asked"][-1] == "cognition_out"
    assert written["run"][-2:] == ["cognition_out", "tool_call_start"]
