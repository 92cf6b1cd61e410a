"""A node that dies while it runs something, and is started again: over real HTTP."""

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from ryecore import __version__
from ryecore.lillux import watch
from ryecore.remote.protocol.models import RunState, read_answer
from ryecore.remote.protocol.reports import RunReport, read_report
from tests.graphs import graph
from tests.node_host import snapshot_of
from tests.served_node import NodeClient, ServedNode, allow, client_of, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn's own loop."""
    return "asyncio"


@pytest.fixture
def planned(tmp_path: Path) -> PlannedWorkspace:
    return PlannedWorkspace(Workspace(tmp_path))


def served(planned: PlannedWorkspace) -> Any:
    folder = planned.root / "operator" / "node"
    return served_node(folder, "--deps", FACTORY, environ=planned.environ)


async def push(client: NodeClient, planned: PlannedWorkspace) -> str:
    snapshot, contents = snapshot_of(planned.workspace)
    await client.push(snapshot, *contents)
    return snapshot.id


async def start(
    client: NodeClient, planned: PlannedWorkspace, item_id: str, **more: Any
) -> Mapping[str, Any]:
    """Start a run, whose request is returned."""
    body = {
        "thread_id": "one",
        "item_id": item_id,
        "parameters": {},
        "thread": "inline" if item_id.startswith("tool:") else "fork",
        "snapshot": await push(client, planned),
        "ryecore": __version__,
        **more,
    }
    answer = await client.post("/execute", body)
    assert answer.status_code == 202, answer.text
    return body


async def report_of(client: NodeClient, node: ServedNode) -> RunReport:
    answer = await client.get("/runs/one?wait_s=30")
    state = read_answer(answer.json(), RunState)
    assert state.report is not None, state
    return read_report(state.report, node.identity.key.public)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_directive_is_resumed_each_time_that_the_node_dies(
    planned: PlannedWorkspace, how: signal.Signals
) -> None:
    gates = (["gate", {"name": "a"}], ["gate", {"name": "b"}])
    ref = planned.write("ask", ["mark", {"text": "x"}], *gates)
    body: Mapping[str, Any] = {}
    for name in ("a", "b"):
        with served(planned) as node:
            allow(node.identity, planned.workspace.key)
            async with client_of(node, planned.workspace.key) as client:
                if not body:
                    body = await start(client, planned, ref)
                await planned.begun(name)
                node.process.send_signal(how)
                node.process.wait()
        planned.allow(name)
    with served(planned) as node:
        async with client_of(node, planned.workspace.key) as client:
            report = await report_of(client, node)
            assert report.status == "completed", report.result
            assert (planned.root / "marks").read_text() == "x\n"
            assert report.cost.spend_microcents >= 4 * COST
            again = await client.post("/execute", body)
            state = read_answer(again.json(), RunState)
            assert (again.status_code, state.node_thread_id) == (200, report.node_thread_id)
            ids = [
                int(line.removeprefix("id: "))
                for line in (await client.get("/runs/one/events")).text.splitlines()
                if line.startswith("id: ")
            ]
            assert ids == sorted(set(ids))


async def test_a_run_whose_files_are_gone_from_the_node_says_so(planned: PlannedWorkspace) -> None:
    ref = planned.write("ask", ["gate", {"name": "a"}])
    with served(planned) as node:
        allow(node.identity, planned.workspace.key)
        async with client_of(node, planned.workspace.key) as client:
            await start(client, planned, ref)
            await planned.begun("a")
            node.process.kill()
            node.process.wait()
    shutil.rmtree(node.identity.folder / "data")
    with served(planned) as node:
        async with client_of(node, planned.workspace.key) as client:
            report = await report_of(client, node)
    assert (report.status, report.assumed) == ("error", True)
    assert report.result["message"] == "The folders of the run are gone from the node."


async def test_a_tool_that_died_with_the_node_is_not_run_again(planned: PlannedWorkspace) -> None:
    tool = planned.workspace.shell("acme/hang", 'echo ran >> "$HOME/../ran"; sleep 600')
    ran = planned.root / "ran"
    with served(planned) as node:
        allow(node.identity, planned.workspace.key)
        async with client_of(node, planned.workspace.key) as client:
            await start(client, planned, tool)
            async with watch(planned.root) as watcher:
                while not (ran.exists() and ran.stat().st_size):
                    await watcher.changed()
            node.process.kill()
            node.process.wait()
    with served(planned) as node:
        async with client_of(node, planned.workspace.key) as client:
            report = await report_of(client, node)
            assert (report.status, report.result["effect_unknown"]) == ("error", True)
            assert ran.read_text() == "ran\n"


async def test_a_graph_is_taken_up_like_a_local_one(planned: PlannedWorkspace) -> None:
    gated = planned.write("gated", ["gate", {"name": "a"}])
    workspace = planned.workspace
    safe = workspace.shell("acme/safe", 'echo safe >> "$HOME/../safe"')
    nodes = {
        "first": {"action": {"item_id": safe}, "next": "ask"},
        "ask": {
            "action": {"item_id": gated, "thread": "fork", "params": {}},
            "next": "done",
        },
        "done": {"type": "return", "output": {"ok": True}},
    }
    flow = graph(workspace, nodes, permissions=("rye.execute.*",))
    with served(planned) as node:
        allow(node.identity, workspace.key)
        async with client_of(node, workspace.key) as client:
            await start(client, planned, flow)
            await planned.begun("a")
            node.process.kill()
            node.process.wait()
    planned.allow("a")
    with served(planned) as node:
        async with client_of(node, workspace.key) as client:
            report = await report_of(client, node)
            assert (report.status, report.assumed) == ("error", True)
            assert "whether it took effect is unknown" in report.result["error"]
            assert "start it anew" in report.result["next_step"]
            assert (planned.root / "safe").read_text() == "safe\n"
            assert report.cost.spend_microcents >= COST


async def test_what_a_tool_had_started_ends_at_the_next_start(planned: PlannedWorkspace) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    script = f"setsid sh -c 'echo $$ > {pipe}; sleep 600; true' & sleep 600 & wait"
    tool = planned.workspace.shell("acme/leaves", script)
    with served(planned) as node:
        allow(node.identity, planned.workspace.key)
        async with client_of(node, planned.workspace.key) as client:
            await start(client, planned, tool, parameters={"a": [1, 2.5, "\u00e9"]})
            pid = int(await anyio.to_thread.run_sync(pipe.read_text))
            node.process.kill()
            node.process.wait()
    assert is_running(pid)
    with served(planned) as node:
        async with client_of(node, planned.workspace.key) as client:
            assert (await report_of(client, node)).result["effect_unknown"] is True
    assert not is_running(pid)


async def test_what_a_graph_s_tool_had_started_ends_at_the_next_start(
    planned: PlannedWorkspace,
) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    script = f"setsid sh -c 'echo $$ > {pipe}; sleep 600; true' & sleep 600 & wait"
    tool = planned.workspace.shell("acme/leaves", script)
    nodes = {"one": {"action": {"item_id": tool}, "next": "end"}, "end": {"type": "return"}}
    flow = graph(planned.workspace, nodes, permissions=("rye.execute.*",))
    with served(planned) as node:
        allow(node.identity, planned.workspace.key)
        async with client_of(node, planned.workspace.key) as client:
            await start(client, planned, flow)
            pid = int(await anyio.to_thread.run_sync(pipe.read_text))
            node.process.kill()
            node.process.wait()
    assert is_running(pid)
    with served(planned) as node:
        async with client_of(node, planned.workspace.key) as client:
            assert (await report_of(client, node)).status == "error"
    assert not is_running(pid)


@pytest.mark.parametrize("is_kill", [True, False])
async def test_a_kill_ends_what_left_the_group_of_its_tool(
    planned: PlannedWorkspace, is_kill: bool
) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    script = f"setsid sh -c 'echo $$ > {pipe}; sleep 600; true' & sleep 600"
    tool = planned.workspace.shell("acme/leaves", script)
    with served(planned) as node:
        allow(node.identity, planned.workspace.key)
        async with client_of(node, planned.workspace.key) as client:
            await start(client, planned, tool)
            pid = int(await anyio.to_thread.run_sync(pipe.read_text))
            await client.post("/runs/one/cancel", {"kill": is_kill, "grace_s": 1})
            await report_of(client, node)
    assert is_running(pid) is not is_kill  # a daemon outlives a call that is cancelled, as at home
    if not is_kill:
        os.killpg(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Return whether a process runs, and isn't only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
