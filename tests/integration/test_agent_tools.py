"""Agents with signed tools in processes of their own: verified each time, and never left over."""

import os
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from ryecore import (
    Agent,
    AgentNode,
    AgentRunnerDeps,
    CancelToken,
    EventBus,
    NodeExecContext,
    ToolDef,
    ToolRegistry,
    create_agent_node_executor,
)
from ryecore.agent import AgentToolResult
from ryecore.lillux import watch
from ryecore.testing import FunctionProvider, ScriptedProvider, call
from tests.unit.lillux.system import wait_for_fds
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def context(agent, **ctx):
    node = AgentNode.asking("Go.", agent=agent)
    return NodeExecContext(vertex=node, resolved_agent=agent, **ctx)


def deps(model, *tools):
    return AgentRunnerDeps(
        resolve_provider=lambda _: model, key_for=lambda _: "", registry=ToolRegistry(tools)
    )


def agent(*tools):
    return Agent(name="a", provider="p", model="m", tools=[one.name for one in tools])


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        with anyio.fail_after(10):
            await anyio.wait_readable(descriptor)
        os.close(descriptor)


@pytest.mark.parametrize("by", ["token", "task"])
async def test_a_cancel_ends_the_process_of_a_signed_tool(workspace, by):
    pidfile = workspace.root / "pid"
    workspace.shell(
        "acme/hang", f"sleep 1000 & echo $! > {pidfile}.new; mv {pidfile}.new {pidfile}\nwait"
    )
    async with workspace.open() as rye:
        hang = await ToolDef.from_item(rye, "tool:acme/hang")
        run = create_agent_node_executor(deps(ScriptedProvider([call(hang.name)]), hang))
        token, scope, done = CancelToken(), anyio.CancelScope(), []
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:

                async def vertex():
                    with scope:
                        done.append(await run(context(agent(hang), signal=token)))

                tasks.start_soon(vertex)
                async with watch(pidfile) as changes:
                    while not pidfile.exists():
                        await changes.changed()
                (token if by == "token" else scope).cancel()
        assert [one.failure.code for one in done] == (["cancelled"] if by == "token" else [])
        await gone(int(pidfile.read_text()))


async def test_a_tool_that_is_changed_between_two_turns_is_not_run_again(workspace):
    workspace.shell("acme/say", "echo '{\"said\": 1}'")
    path = workspace.path("tools/acme/say.sh")
    ran = workspace.root / "ran"

    def tamper(request):
        path.write_text(path.read_text().replace("echo", f"touch {ran}; echo"))
        return call("acme__say")

    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, "tool:acme/say")
        model = ScriptedProvider([call("acme__say"), tamper, "never"])
        bus: EventBus = EventBus("run")
        events = bus.subscribe()
        done = await create_agent_node_executor(deps(model, tool))(
            context(agent(tool), emit=bus.emit)
        )
        bus.close()
        results = [
            one.event.success
            async for one in events
            if isinstance(getattr(one, "event", None), AgentToolResult)
        ]
    assert results == [True, False]
    assert (done.failure.code, len(model.requests)) == ("tool_denied", 2)
    assert not ran.exists()


async def test_a_hundred_runs_at_once_share_one_executor_and_leave_no_descriptor(workspace):
    workspace.shell("acme/say", "echo '{\"said\": 1}'")
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, "tool:acme/say")

        def answer(request):
            return "done" if len(request.messages) > 1 else call("acme__say")

        run = create_agent_node_executor(deps(FunctionProvider(answer), tool))
        await run(context(agent(tool)))
        before = len(os.listdir("/proc/self/fd"))
        outcomes = []

        async def one():
            outcomes.append(await run(context(agent(tool))))

        with anyio.fail_after(100):
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(one)
        assert [done.output for done in outcomes] == ["done"] * 100
        wait_for_fds(before + 2)
