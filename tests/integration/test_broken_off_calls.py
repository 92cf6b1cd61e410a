"""Calls of every kind that broke off: a plain resume repeats none that may have had its effect."""

import json
import os
import signal
import time
from collections.abc import Callable, Coroutine
from http.server import BaseHTTPRequestHandler
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore import Rye
from ryecore.chain.primitives import EFFECT_UNKNOWN
from ryecore.errors import StateError
from ryecore.graph.result import GraphResult
from ryecore.state.model import ThreadRecord
from tests.graphs import graph
from tests.integration.test_mcp_sessions import Forgetful, forgetful
from tests.matrix import in_turn
from tests.mcp_items import HTTP, mcp_tool, pids, server_item, stdio_server
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

LOOPS = ["asyncio", "trio"]

PATIENCE_S = 60.0
TO_THE_END = ["gate", {"name": "pay"}]

Strike = Callable[[PlannedWorkspace, Rye], Coroutine[Any, Any, None]]
Case = tuple[dict[str, Any], Strike | None]
"""What the graph's node does, and how it is broken off while it runs."""


def calls(ref: str, **node: Any) -> dict[str, Any]:
    return {"action": {"item_id": ref, "params": {"text": "pay"}}, **node}


def forks(planned: PlannedWorkspace, **how: Any) -> dict[str, Any]:
    node = how.pop("node", {})
    ref = planned.write("child", TO_THE_END, **how)
    return {"action": {"item_id": ref, "thread": "fork"}, **node}


def asks(**node: Any) -> dict[str, Any]:
    prompt = f"PLAN\n{json.dumps([TO_THE_END])}"
    return {"type": "agent", "agent_ref": "writer", "prompt_template": prompt, **node}


def slow_graph(planned: PlannedWorkspace) -> str:
    node = calls(planned.workspace.shell("acme/slow", ': > "$1/../pay.begun"; exec sleep 300'))
    return graph(planned.workspace, {"slow": node}, "acme/child")


def on_child(wish: str) -> Strike:
    async def strike(planned: PlannedWorkspace, rye: Rye) -> None:
        await planned.begun("pay")
        (child,) = [one for one in await rye.threads.list() if _is_child(one)]
        await getattr(rye.threads, wish)(child.thread_id)

    return strike


def _is_child(row: ThreadRecord) -> bool:
    return row.item_id.endswith(":acme/child")


async def kill_connector(planned: PlannedWorkspace, rye: Rye) -> None:
    await anyio.to_thread.run_sync((planned.root / "called").read_bytes)
    connector, *_ = pids(planned.workspace)
    os.kill(connector, signal.SIGKILL)


def hanging(planned: PlannedWorkspace, **server: Any) -> str:
    os.mkfifo(planned.root / "called")
    stdio_server(planned.workspace, "hangs", str(planned.root / "called"), **server)
    return mcp_tool(planned.workspace)


async def take_call(planned: PlannedWorkspace, rye: Rye) -> None:
    await anyio.to_thread.run_sync((planned.root / "called").read_bytes)


def dying(planned: PlannedWorkspace, *, warm: bool) -> str:
    stdio_server(planned.workspace, "dies-once", str(planned.root / "died"))
    return mcp_tool(planned.workspace, warm=warm)


CASES: dict[str, Callable[[PlannedWorkspace], Case]] = {
    "an MCP server that died": lambda one: (calls(dying(one, warm=True)), None),
    "an MCP server that died, not kept": lambda one: (calls(dying(one, warm=False)), None),
    "an MCP server's own timeout": lambda one: (calls(hanging(one, timeout=0.3)), take_call),
    "the node's timeout over an MCP call": lambda one: (
        calls(hanging(one), timeout_s=3),
        take_call,
    ),
    "an MCP connector that was killed": lambda one: (calls(hanging(one)), kill_connector),
    "an agent's timeout": lambda one: (asks(timeout_s=0.5), None),
    "a thread that was killed": lambda one: (forks(one), on_child("kill")),
    "a thread that was cancelled": lambda one: (forks(one), on_child("cancel")),
    "a thread's own duration": lambda one: (forks(one, limits='duration_seconds="1"'), None),
    "the node's timeout over a graph": lambda one: (calls(slow_graph(one), timeout_s=1), None),
    "a graph that was killed": lambda one: (calls(slow_graph(one)), on_child("kill")),
    "a graph that was cancelled": lambda one: (calls(slow_graph(one)), on_child("cancel")),
    "the node's timeout over a thread": lambda one: (forks(one, node={"timeout_s": 1}), None),
}


@pytest.mark.parametrize(("how", "anyio_backend"), in_turn([*CASES], LOOPS))
async def test_a_call_that_broke_off_is_not_repeated_by_itself(
    workspace: Workspace, how: str, anyio_backend: str
) -> None:
    planned = PlannedWorkspace(workspace)
    node, strike = CASES[how](planned)
    await broken_off(planned, node, strike)


@pytest.mark.parametrize(("kind", "anyio_backend"), in_turn(["tool", "agent"], LOOPS))
async def test_a_runs_own_duration_leaves_the_effect_of_its_node_unknown(
    workspace: Workspace, kind: str, anyio_backend: str
) -> None:
    planned = PlannedWorkspace(workspace)
    nodes = {
        "tool": lambda: calls(workspace.shell("acme/slow", "exec sleep 300")),
        "agent": asks,
    }
    await broken_off(planned, nodes[kind](), None, "cancelled", limits={"duration_seconds": 1})


async def test_a_run_whose_time_is_up_while_its_loop_is_busy_ends_as_any_such_run(
    workspace: Workspace,
) -> None:
    planned = PlannedWorkspace(workspace)
    ref = graph(
        workspace,
        {"pay": calls(workspace.shell("acme/slow", "exec sleep 300"))},
        permissions=("rye.execute.*",),
    )

    async def keep_the_loop_busy() -> None:
        await anyio.sleep(0.8)
        time.sleep(0.6)

    async with planned.open() as rye, anyio.create_task_group() as tasks:
        tasks.start_soon(keep_the_loop_busy)
        done = await rye.graphs.run(ref, limits={"duration_seconds": 1})
    assert (done.ended, done.effect_unknown) == ("cancelled", True), done.error


async def broken_off(
    planned: PlannedWorkspace,
    node: dict[str, Any],
    strike: Strike | None,
    ended: str = "error",
    limits: Any = None,
) -> None:
    ref = graph(
        planned.workspace,
        {"pay": node},
        permissions=("rye.execute.*",),
        agents={"writer": {"provider": "scripted", "model": "m-1", "tools": ["gate"]}},
    )
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            failed = await run_and_strike(planned, rye, ref, strike, limits)
            assert (failed.ended, failed.effect_unknown) == (ended, True), failed.error
            assert EFFECT_UNKNOWN in str(failed.error)
            planned.allow("pay")
            more = {"duration_seconds": 600} if limits else None
            with pytest.raises(StateError, match="'pay' interrupted") as caught:
                await rye.graphs.resume(failed.run_id)
            assert "--rerun" in caught.value.next_step
            done = await rye.graphs.resume(failed.run_id, result={"paid": True}, limits=more)
            assert done.ended == "completed"


async def run_and_strike(
    planned: PlannedWorkspace, rye: Rye, ref: str, strike: Strike | None, limits: Any
) -> GraphResult:
    ended = list[GraphResult]()
    async with anyio.create_task_group() as group:
        if strike is not None:
            group.start_soon(strike, planned, rye)
        ended.append(await rye.graphs.run(ref, limits=limits))
    return ended[0]


class Mute(Forgetful):
    """A server over HTTP that reads a call, and closes the connection or never answers."""

    def __init__(self, *, closes: bool) -> None:
        super().__init__(0, "", "")
        self.closes = closes

    def answer(self, request: BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
        """Answer one message."""
        if message.get("method") != "tools/call":
            super().answer(request, message)
            return
        self.ran.append("pay")
        if not self.closes:
            request.connection.recv(1)  # until the client has given up
        request.close_connection = True


@pytest.mark.parametrize(("closes", "anyio_backend"), in_turn([True, False], LOOPS))
async def test_a_call_over_http_without_an_answer_is_not_repeated_by_itself(
    workspace: Workspace, anyio_backend: str, *, closes: bool
) -> None:
    server, planned = Mute(closes=closes), PlannedWorkspace(workspace)
    with forgetful(server) as url:
        server_item(workspace, transport="http", url=url, timeout=0.5)
        await broken_off(planned, calls(mcp_tool(workspace, runtime=HTTP)), None)
    assert server.ran == ["pay"]
