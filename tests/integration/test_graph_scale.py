"""Large runs: many steps in bounded memory, and many members a few at a time."""

from pathlib import Path

import pytest

from tests.graphs import graph
from tests.matrix import IS_SOAK
from tests.workspace import Workspace

MIB = 1024 * 1024
STEPS = 10_000 if IS_SOAK else 3_000
MEMBERS, AT_ONCE = 5_000 if IS_SOAK else 100, 50


def resident_bytes() -> int:
    """How much memory this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_steps_take_no_more_memory_than_a_fifth_of_them(
    workspace: Workspace,
) -> None:
    nodes = {
        "a": {"type": "gate", "assign": {"n": "${state.text}"}, "next": "b"},
        "b": {"type": "gate", "assign": {"n": "${state._timestamp}"}, "next": "a"},
    }
    text = "word " * 2_000
    ref = graph(workspace, nodes, max_steps=STEPS, state={"n": None, "text": text})
    early = 0
    async with workspace.open() as rye:
        run = await rye.graphs.start(ref)
        async for event in run.events():
            if event.type == "node_completed" and event.payload["step"] == STEPS // 5:
                early = resident_bytes()
        done = await run.result()
    assert early
    assert (done.steps, done.failed.code if done.failed else "") == (STEPS, "turn_limit")
    assert resident_bytes() - early < 8 * MIB


@pytest.mark.anyio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_members_run_fifty_at_a_time(workspace: Workspace) -> None:
    workspace.shell("acme/echo", "cat")
    nodes = {
        "each": {
            "type": "foreach",
            "over": "${state.all}",
            "as": "one",
            "parallel": True,
            "action": {"item_id": "tool:acme/echo", "params": {"n": "${one}"}},
            "collect": "echoed",
            "next": "done",
        },
        "done": {"type": "return", "output": "${state.echoed}"},
    }
    ref = graph(workspace, nodes, max_concurrency=AT_ONCE, state={"all": list(range(MEMBERS))})
    started = running = most = 0
    async with workspace.open() as rye:
        run = await rye.graphs.start(ref)
        async for event in run.events():
            if event.type == "item_started":
                started, running = started + 1, running + 1
                most = max(most, running)
            running -= event.type == "item_completed"
        done = await run.result()
    assert done.output == [{"n": n} for n in range(MEMBERS)]
    assert (started, running, most) == (MEMBERS, 0, AT_ONCE)
