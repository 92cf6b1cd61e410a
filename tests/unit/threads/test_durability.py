"""What a thread leaves waits for the disk where its project says so, and only there."""

import errno
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import StateError
from ryecore.llm.request import LlmRequest
from ryecore.testing import Turn, call, say
from ryecore.tools import ToolApprovalRequest, tool
from tests.disk import replace_syncs
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio


LEFT = ("thread.json", "capabilities.md", "transcript.jsonl")
ROWS = "SELECT name, offset, data FROM write_ahead WHERE thread_id = ? ORDER BY seq"


class Disk:
    """What is synced: the names of files, and the rows that the registry's log held by then."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.rows: dict[str, list[tuple[str, int | None, bytes]]] = {}

    def sync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        self.synced.append(Path(path).name)
        if path.endswith("threads.db-wal"):
            with closing(sqlite3.connect(path.removesuffix("-wal"))) as database:
                query = "SELECT DISTINCT thread_id FROM write_ahead"
                for (thread_id,) in database.execute(query).fetchall():
                    self.rows[thread_id] = database.execute(ROWS, (thread_id,)).fetchall()

    def read(self, thread_id: str, name: str) -> bytes:
        """Return a file as the disk has it: its last whole one, or all its pieces."""
        content = b""
        for row_name, offset, data in self.rows.get(thread_id, ()):
            if row_name == name:
                content = data if offset is None else content[:offset] + data
        return content


@pytest.mark.parametrize("durability", ["process", "machine"])
async def test_a_thread_waits_for_the_disk_where_its_project_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    host = ScriptedHost(tmp_path, model=lambda _: say("hello"))
    ref, disk = host.write("acme/greet"), Disk()
    async with host.open(durability=durability) as rye:
        await rye.execute(ref, thread="fork")  # a key and folders are made: that always waits
        monkeypatch.setattr(os, "fsync", disk.sync)
        replace_syncs(monkeypatch, disk.sync)
        done: Any = await rye.execute(ref, thread="fork")
        monkeypatch.undo()
        folder = host.workspace.project / ".ai/state/threads" / done.thread_id
        left = {name: (folder / name).read_bytes() for name in LEFT}
    assert done.success, done
    if durability == "process":
        assert disk.synced == []
    else:
        assert {name: disk.read(done.thread_id, name) for name in LEFT} == left
        assert any(f"{folder.name}.md" in one for one in disk.synced)  # the export


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_disk_that_fails_to_sync_ends_a_run_and_none_of_the_same_rye_once_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    host = ScriptedHost(tmp_path, model=lambda _: say("hello"))
    ref = host.write("acme/greet")

    def fail(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith("threads.db-wal"):
            raise OSError(number, os.strerror(number))

    async with host.open(durability="machine") as rye:
        await rye.execute(ref, thread="fork")
        with monkeypatch.context() as patched:
            replace_syncs(patched, fail)
            with pytest.raises(StateError, match=os.strerror(number)):
                await rye.execute(ref, thread="fork")
        done = await rye.execute(ref, thread="fork")
        assert done.success, done
        statuses = sorted(one.status for one in await rye.threads.list(all=True))
        assert statuses == ["completed", "completed", "error"]


@pytest.mark.parametrize(
    ("options", "awaited"),
    [({}, 1), ({"read_only": True}, 0), ({"read_only": True, "needs_approval": True}, 1)],
)
async def test_a_call_waits_for_the_disk_unless_it_only_reads_and_nobody_approves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, awaited: int
) -> None:
    disk, before = Disk(), [0, 0]

    @tool(**options)
    async def look() -> str:
        """Look."""
        before[1] = len(disk.synced)
        return "seen"

    def model(request: LlmRequest) -> Turn:
        if any(message.role == "tool" for message in request.messages):
            return say("done")
        before[0] = len(disk.synced)
        return call("look")

    async def approve(_: ToolApprovalRequest) -> bool:
        return True

    host = ScriptedHost(tmp_path, model=model, tools=[look], approve=approve)
    ref = host.write("acme/looks")
    async with host.open(durability="machine") as rye:
        replace_syncs(monkeypatch, disk.sync)
        done: Any = await rye.execute(ref, thread="fork")
    assert done.success, done
    assert before[1] - before[0] == awaited
    (started,) = host.records(done.thread_id, "tool_call_start")
    assert started.payload.get("read_only", False) is options.get("read_only", False)


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
