"""`kill` returns once every process of a run, and all that its tools have started, has ended."""

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore import Rye
from tests.detached import run_rye, until_printed
from tests.graphs import graph
from tests.matrix import IS_SOAK, in_turn
from tests.thread_host import PlannedWorkspace
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]
PATIENCE_S = 60.0


@pytest.fixture
def anyio_backend() -> str:
    """The processes' loops are their own."""
    return "asyncio"


@pytest.fixture
def planned(tmp_path: Path) -> PlannedWorkspace:
    planned = PlannedWorkspace(Workspace(tmp_path))
    pids = planned.root / "pids"
    # It ignores TERM, as does what it has started; that stands in a session of its own.
    planned.workspace.shell(
        "acme/hang",
        f"trap '' TERM; sleep 300 & echo $! $$ end >> {pids}\nwhile :; do wait; done",
    )
    graph(planned.workspace, {"stay": {"action": {"item_id": "tool:acme/hang"}}})
    planned.write("hang", ["rye_execute", {"item_id": "tool:acme/hang"}])
    return planned


async def pids_of(planned: PlannedWorkspace) -> list[int]:
    said = await until_printed(planned.root / "pids", "end")
    return [int(one) for one in said.split() if one != "end"]


async def launched(rye: Rye, what: str) -> str:
    ref = {"tool": "tool:acme/hang", "graph": "tool:acme/flow"}.get(what, "directive:acme/hang")
    options: dict[str, Any] = {"thread": "fork"} if what == "thread" else {}
    done = await rye.execute(ref, async_=True, **options)
    return str(done.to_dict()["thread_id"])


@pytest.mark.parametrize(
    ("what", "is_stopped"), in_turn(["tool", "graph", "thread"], [True, False])
)
async def test_kill_ends_what_the_tools_have_started_too(
    planned: PlannedWorkspace, what: str, is_stopped: bool
) -> None:
    async with planned.open() as rye:
        with anyio.fail_after(PATIENCE_S):
            thread_id = await launched(rye, what)
            pids = await pids_of(planned)
            (row,) = [one for one in await rye.threads.list() if one.thread_id == thread_id]
            assert row.pid
            if is_stopped:  # its end is never written by itself, and TERM never arrives
                os.kill(row.pid, signal.SIGSTOP)
            report = await rye.threads.kill(thread_id, grace_s=0.2)
            alive = [pid for pid in (*pids, row.pid) if is_alive(pid)]
    assert alive == []
    assert report.status == "killed"


async def test_kill_finds_what_a_dead_owner_has_left(planned: PlannedWorkspace) -> None:
    async with planned.open() as rye:
        with anyio.fail_after(PATIENCE_S):
            thread_id = await launched(rye, "graph")
            pids = await pids_of(planned)
            (row,) = await rye.threads.list()
            assert row.pid
            os.kill(row.pid, signal.SIGKILL)
            report = await rye.threads.wait(thread_id)
            assert report.status == "error"
            assert is_alive(pids[0])  # what the tool has started is nobody's
            assert (await rye.threads.kill(thread_id)).status == "error"
    assert [pid for pid in pids if is_alive(pid)] == []


async def test_a_thread_among_others_is_killed_with_its_tools_and_without_its_process(
    planned: PlannedWorkspace,
) -> None:
    other = planned.write("other", ["gate", {"name": "g"}])
    host = planned.host(["directive:acme/hang", other])
    try:
        with anyio.fail_after(PATIENCE_S):
            pids = await pids_of(planned)
            await planned.begun("g")
            async with planned.open() as rye:
                rows = {row.item_id: row for row in await rye.threads.list()}
                report = await rye.threads.kill(rows["directive:acme/hang"].thread_id, grace_s=30)
                assert report.status == "killed"
                assert [pid for pid in pids if is_alive(pid)] == []
                assert (await rye.threads.show(rows[other].thread_id)).status == "running"
        planned.allow("g")
        assert await anyio.to_thread.run_sync(host.wait) == 0
    finally:
        host.kill()
        host.wait()


@pytest.mark.fresh_processes
async def test_no_process_of_a_killed_thread_lives_when_its_row_has_ended_first(
    planned: PlannedWorkspace,
) -> None:
    planned.workspace.shell("acme/nap", "sleep 300")
    async with planned.open() as rye:
        with anyio.fail_after(PATIENCE_S):
            done = [
                await rye.execute("tool:acme/nap", async_=True) for _ in range(6 if IS_SOAK else 3)
            ]
            for one in done:
                report = await rye.threads.kill(str(one.to_dict()["thread_id"]), grace_s=30)
                assert not is_alive(int(str(one.to_dict()["pid"])))
                assert report.status == "killed"


@pytest.mark.parametrize("how", ["rye threads kill", "rye threads cancel"])
async def test_a_thread_that_was_handed_off_is_stopped_in_what_goes_on(
    planned: PlannedWorkspace, how: str
) -> None:
    """The id that was printed at the start is the one that a person has."""
    ref = planned.write(
        "off",
        ["gate", {"name": "first"}],
        ["mark", {"text": "within this turn the wish is seen, at the latest"}],
        ["rye_execute", {"item_id": "tool:acme/hang"}],
    )
    async with planned.open() as rye:
        with anyio.fail_after(PATIENCE_S):
            done = await rye.execute(ref, async_=True, thread="fork")
            first = str(done.to_dict()["thread_id"])
            await planned.begun("first")
            (owner,) = [one.pid for one in await rye.threads.list() if one.thread_id == first]
            asked = {"operation": "handoff_thread", "thread_id": first}
            told = await rye.execute("tool:rye/agent/threads/orchestrator", asked)
            assert told.success, told
            planned.allow("first")
            assert (await rye.threads.wait(first)).status == "continued"
            pids = await pids_of(planned)
            more = ["--grace", "0.2"] if how.endswith("kill") else []
            printed = await run_rye(planned.workspace, *how.split()[1:], first, *more)
            last = (await rye.threads.show(first)).chain[-1]
            assert last != first
            assert last.encode() in printed
            if how.endswith("kill"):
                assert [pid for pid in (*pids, owner) if pid and is_alive(pid)] == []
            report = await rye.threads.wait(last)
    assert report.status == how.rsplit(maxsplit=1)[-1] + ("ed" if how.endswith("kill") else "led")


@pytest.mark.parametrize("what", ["tool", "graph", "thread"] if IS_SOAK else ["graph"])
async def test_the_command_returns_once_every_process_has_ended(
    planned: PlannedWorkspace, what: str
) -> None:
    async with planned.open() as rye:
        with anyio.fail_after(PATIENCE_S):
            thread_id = await launched(rye, what)
            pids = await pids_of(planned)
            (row,) = [one for one in await rye.threads.list() if one.thread_id == thread_id]
            assert row.pid
            printed = await run_rye(
                planned.workspace, "threads", "kill", thread_id, "--grace", "0.2"
            )
            alive = [pid for pid in (*pids, row.pid) if is_alive(pid)]
    assert alive == []
    assert b"killed" in printed
