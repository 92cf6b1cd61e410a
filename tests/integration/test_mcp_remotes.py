"""Runs on nodes over MCP: the official SDK's client, a real server, and a real node."""

import os
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from tests.mcp_clients import MODES, arguments, ended, said, stdio
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_deps import DEPS, furnish
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]
GPU = {"target": "remote:gpu"}
SUM = {"item_id": "directive:acme/sum", "parameters": {"x": 4}, "thread": "fork", **GPU}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def node(workspace: Workspace) -> Iterator[ServedNode]:
    """A node with models, that the workspace names `gpu`."""
    environ = {**os.environ, **workspace.environ, "PLACE": "the node"}
    with served_node(workspace.root / "node", "--deps", DEPS, environ=environ) as served:
        connect(workspace, served, timeout_s=1)
        yield served


@MODES
async def test_a_client_runs_items_on_a_node(
    workspace: Workspace, node: ServedNode, mode: str
) -> None:
    furnish(workspace)
    tool = {"item_id": workspace.shell("acme/place", "echo $PLACE")}
    async with stdio(workspace, mode=mode) as client:  # without models of its own
        here = said(await client.call_tool("rye_execute", arguments(workspace, **tool)))
        there = said(await client.call_tool("rye_execute", arguments(workspace, **tool, **GPU)))
        thread = said(await client.call_tool("rye_execute", arguments(workspace, **SUM)))
        later = {**tool, **GPU, "async": True}
        started = said(await client.call_tool("rye_execute", arguments(workspace, **later)))
        missing = {"item_id": "tool:acme/missing", **GPU}
        refused = said(await client.call_tool("rye_execute", arguments(workspace, **missing)))
        unknown = {**tool, "target": "remote:lab"}
        nowhere = said(await client.call_tool("rye_execute", arguments(workspace, **unknown)))
    assert (here["data"]["stdout"], there["data"]["stdout"]) == ("\n", "the node\n")
    assert there["metadata"]["remote"] == "gpu"
    assert (thread["state"], thread["outputs"]) == ("completed", {"total": 7})
    assert (refused["error_type"], refused["metadata"]["remote"]) == ("not_found", "gpu")
    assert str(node.identity.folder) not in str(refused)
    assert "rye remote add lab URL" in nowhere["next_step"]
    async with workspace.open() as rye:
        report = await rye.threads.wait(started["thread_id"], timeout_s=60)
        assert "the node" in str(report.data)
        assert (await rye.threads.show(thread["thread_id"])).record.place is not None


async def test_what_a_client_may_bounds_what_it_runs_on_a_node(
    workspace: Workspace, node: ServedNode
) -> None:
    furnish(workspace)
    may, other = (workspace.shell(f"acme/{name}", "echo ran") for name in ("may", "other"))
    async with stdio(workspace, "--grant", "rye.execute.tool.acme.may") as client:
        done = said(await client.call_tool("rye_execute", arguments(workspace, item_id=may, **GPU)))
        refused = said(
            await client.call_tool("rye_execute", arguments(workspace, item_id=other, **GPU))
        )
        thread = said(await client.call_tool("rye_execute", arguments(workspace, **SUM)))
    assert done["status"] == "success"
    assert "lacks the capability rye.execute.tool.acme.other" in refused["error"]
    assert "lacks the capability rye.execute.directive.acme.sum" in thread["error"]


async def test_a_cancelled_call_ends_its_tool_on_the_node_and_a_dead_node_is_said(
    workspace: Workspace, node: ServedNode
) -> None:
    pipe = workspace.root / "pipe"
    os.mkfifo(pipe)
    ref = workspace.shell("acme/stay", f"echo $$ > {pipe}; exec sleep 1000")
    call = arguments(workspace, item_id=ref, **GPU)
    async with stdio(workspace) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "rye_execute", call)
            pid = int(await anyio.to_thread.run_sync(pipe.read_text))
            group.cancel_scope.cancel()
        await ended(pid)
        node.process.kill()
        node.process.wait()
        dead = said(await client.call_tool("rye_execute", call))
    assert dead["error_type"] == "remote_unavailable"
    assert dead["next_step"]
