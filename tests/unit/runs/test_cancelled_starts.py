"""Whoever registers a run ends it once, wherever and however often its caller is cancelled."""

import fcntl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TypeAlias

import anyio
import pytest

from ryecore import CallContext, Rye
from ryecore.actions.thread_access import tool_runs_of
from ryecore.errors import StateError
from tests.cancelling import cancelled_at
from tests.graphs import graph
from tests.matrix import IS_SOAK
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

PATIENCE_S = 60.0
EVERY = 1 if IS_SOAK else 3
"""How many suspensions lie between two at which a call with a process is cancelled."""

ENDED = {"completed", "cancelled", "error", "killed"}
Start: TypeAlias = Callable[[Rye], Awaitable[object]]

STARTS: dict[str, Start] = {
    "a graph in a process of its own": lambda rye: rye.execute("tool:acme/flow"),
    "a graph in this process": lambda rye: rye.graphs.run("acme/flow"),
    "a thread": lambda rye: rye.execute("directive:acme/say", thread="fork"),
    "a tool in this process": lambda rye: tool_runs_of(rye.threads).run(
        "tool:acme/true", {}, CallContext(), lambda _: None
    ),
    "a launched graph": lambda rye: rye.execute("tool:acme/flow", async_=True),
    "a launched tool": lambda rye: rye.execute("tool:acme/true", async_=True),
    "a launched thread": lambda rye: rye.execute("directive:acme/say", thread="fork", async_=True),
}


@pytest.mark.usefixtures("forked_walkers")
@pytest.mark.parametrize("what", STARTS)
async def test_no_row_outlives_a_call_that_was_cancelled_at_any_await(
    tmp_path: Path, what: str
) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    planned.workspace.shell("acme/true", "echo '{}'")
    planned.write("say")
    graph(planned.workspace, {"one": {"action": {"item_id": "tool:acme/true"}}})
    async with planned.open() as rye:
        for number in count(1, EVERY):
            with anyio.fail_after(PATIENCE_S):
                was_cancelled = await cancelled_at(lambda: STARTS[what](rye), number)
                for row in await rye.threads.list():
                    assert row.status != "created" or "launched" in what
                    if "launched" in what:  # it goes on by itself, to its own end
                        assert (await rye.threads.wait(row.thread_id)).ended
                assert await rye.threads.list() == ()
            if not was_cancelled:
                break
        rows = await rye.threads.list(all=True)
        ends = [(row.status, await recorded_ends(planned, row.thread_id)) for row in rows]
    assert rows, number
    assert rows[0].status == "completed"
    assert {(status, *found) for status, found in ends if found} <= {
        (status, status) for status in ("completed", "cancelled")
    }


async def recorded_ends(planned: PlannedWorkspace, run_id: str) -> list[str]:
    """How a run ended, each time that its log says so; nothing where it has no log."""
    ends: list[str] = []
    with suppress(StateError):
        async for record in planned.store().records.read(run_id):
            kind, _, status = record.type.partition("_")
            if kind in ("thread", "run") and status in ENDED:
                ends.append(status)
    return ends


@contextmanager
def another_writer(state: Path) -> Iterator[None]:
    """Another writer of the registry, which most of the time has its turn."""
    (gate,) = state.rglob("*.gate")
    ended = Event()

    def write() -> None:
        with gate.open("rb+") as file:
            while not ended.is_set():
                fcntl.flock(file, fcntl.LOCK_EX)
                ended.wait(0.003)
                fcntl.flock(file, fcntl.LOCK_UN)
                ended.wait(0.001)

    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@pytest.mark.parametrize("what", ["a graph in this process", "a thread", "a tool in this process"])
async def test_no_row_outlives_a_call_that_was_cancelled_while_another_process_writes(
    tmp_path: Path, what: str
) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    planned.workspace.shell("acme/true", "echo '{}'")
    planned.write("say")
    graph(planned.workspace, {"done": {"type": "return"}})
    async with planned.open() as rye:
        await STARTS[what](rye)
        with another_writer(planned.workspace.project / ".ai/state"), anyio.fail_after(PATIENCE_S):
            for number in count(1):
                was_cancelled = await cancelled_at(lambda: STARTS[what](rye), number)
                assert await rye.threads.list() == ()
                if not was_cancelled:
                    break
        assert number > 1
