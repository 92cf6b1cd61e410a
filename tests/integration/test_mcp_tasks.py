"""Tools of MCP servers that are called as tasks, of servers of both eras."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore import CallContext, ExecutionResult, Rye
from ryecore.lillux.watching import watch
from ryecore.mcp_client.authoring import pin_tool, read_declarations
from ryecore.results import ToolLog, ToolProgress, ToolQuestion
from tests.mcp_clients import TOKEN, ended, http, stdio_command
from tests.mcp_items import HTTP, mcp_tool
from tests.unit.chain.test_channel import HELPER
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

SERVER = "mcp/servers/test"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GREETS = f"""{HELPER}
def execute(params, project_path):
    say(progress=1, total=2, message="half")
    answer = ask("elicit", message="Who are you?", requestedSchema={FORM!r})
    return "Hello " + answer["result"]["content"]["name"]
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


OFFERED = ("--tools", "a/*", "--no-verbs")


def http_item(workspace: Workspace, url: str) -> None:
    """The item of a server over HTTP that may ask."""
    config = {"transport": "http", "url": url, "headers": {"Authorization": f"Bearer {TOKEN}"}}
    more: dict[str, Any] = {"may_ask": ["elicit"], "executor_id": None, "tool_type": "mcp_server"}
    workspace.yaml(SERVER, config=config, **more)


@contextmanager
def serving(workspace: Workspace, transport: str) -> Iterator[None]:
    """The item of a server that offers the signed tools of this project: of 2026 over HTTP."""
    if transport == "http":
        with http(workspace, *OFFERED) as served:
            http_item(workspace, served.url)
            yield
        return
    command, *args = stdio_command()
    project = ("--project", str(workspace.project))
    workspace.yaml(
        SERVER,
        env_config={"env": {"USER_SPACE": str(workspace.user)}},
        config={"transport": "stdio", "command": command, "args": [*args, *project, *OFFERED]},
        may_ask=["elicit"], executor_id=None, tool_type="mcp_server",
    )  # fmt: skip
    yield


async def pinned(rye: Rye, name: str, transport: str) -> str:
    listed = await rye.execute(f"tool:{SERVER}")
    listed.raise_for_status()
    tool = read_declarations(listed.data["tools"])[name]  # type: ignore[index]
    item = pin_tool(
        tool, server=SERVER, transport=transport, folder="mcp/test", space=rye.spaces.project
    )
    rye.sign(str(item.path))
    return f"tool:{item.item_id}"


BOTH = pytest.mark.parametrize("transport", ["http", "stdio"])


@BOTH
async def test_a_task_reports_asks_and_gives_its_result_like_a_call(
    workspace: Workspace, transport: str
) -> None:
    workspace.python("a/greets", GREETS, task_support="required", may_ask=["elicit"])
    questions: list[ToolQuestion] = []
    reports: list[object] = []

    async def answer(question: ToolQuestion, /) -> Mapping[str, object]:
        questions.append(question)
        return {"action": "accept", "content": {"name": "Ada"}}

    with serving(workspace, transport):
        async with workspace.open(ask=answer) as rye:
            ref = await pinned(rye, "a__greets", transport)
            done = await rye.execute(ref, ctx=CallContext(report_sink=reports.append))
    assert done.success, done.error
    assert done.data["content"] == [{"type": "text", "text": "Hello Ada"}]
    assert [one.params["message"] for one in questions] == ["Who are you?"]
    assert "half" in [one.message for one in reports if isinstance(one, ToolProgress)]


def waiting(workspace: Workspace) -> Path:
    """A tool that says its process id by a FIFO, and waits."""
    fifo = workspace.project / "pid"
    os.mkfifo(fifo)
    workspace.shell("a/waits", 'echo $$ > "$1/pid"; exec sleep 1000', task_support="optional")
    return fifo


@BOTH
async def test_a_call_that_is_cancelled_cancels_its_task(
    workspace: Workspace, transport: str
) -> None:
    fifo = waiting(workspace)
    with serving(workspace, transport):
        async with workspace.open() as rye:
            ref = await pinned(rye, "a__waits", transport)
            async with anyio.create_task_group() as calls:
                calls.start_soon(rye.execute, ref)
                tool = int(await anyio.to_thread.run_sync(fifo.read_text))
                calls.cancel_scope.cancel()
            await ended(tool)
            await forgotten(workspace)
    assert not is_alive(tool)


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
async def test_a_task_is_followed_though_its_server_is_started_again(
    workspace: Workspace, warm: bool
) -> None:
    outcome = await outcome_after_a_restart(workspace, warm, OFFERED)
    assert outcome.success, outcome.error
    assert '"stdout": "done"' in outcome.data["content"][0]["text"]  # type: ignore[index]


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
async def test_a_task_that_its_server_no_longer_knows_leaves_its_effect_unknown(
    workspace: Workspace, warm: bool
) -> None:
    less = (*OFFERED, "--grant", "rye.execute.tool.a.*")  # other grants are another client
    outcome = await outcome_after_a_restart(workspace, warm, less)
    assert outcome.effect_unknown
    assert "Task not found" in str(outcome.error)
    assert not left(workspace)


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
async def test_a_task_whose_server_refuses_the_next_session_leaves_its_effect_unknown(
    workspace: Workspace, warm: bool
) -> None:
    outcome = await outcome_after_a_restart(
        workspace, warm, OFFERED, RYE_MCP_TOKEN="another-token-of-the-tests"
    )
    assert outcome.effect_unknown
    assert left(workspace)  # a later session cancels it


async def outcome_after_a_restart(
    workspace: Workspace, warm: bool, again: Sequence[str], **variables: str
) -> ExecutionResult:
    """The outcome of a call whose server is killed, and started again, while it is a task."""
    pid, release = workspace.project / "pid", workspace.project / "release"
    for fifo in (pid, release):
        os.mkfifo(fifo)
    workspace.shell("a/waits", 'echo $$ > "$1/pid"; cat "$1/release"', task_support="optional")
    outcomes: list[ExecutionResult] = []
    with ExitStack() as servers:
        served = servers.enter_context(http(workspace, *OFFERED))
        http_item(workspace, served.url)
        async with workspace.open() as rye:
            listed = (await rye.execute(f"tool:{SERVER}")).raise_for_status().data["tools"]  # type: ignore[index]
            ref = mcp_tool(workspace, "a__waits", runtime=HTTP, declared=listed[0], warm=warm)

            async def call() -> None:
                outcomes.append(await rye.execute(ref, timeout_s=50))

            async with anyio.create_task_group() as calls:
                calls.start_soon(call)
                await anyio.to_thread.run_sync(pid.read_text)
                await noted(workspace)
                served.process.kill()
                await anyio.to_thread.run_sync(served.process.wait)
                servers.enter_context(http(workspace, *again, port=served.port, **variables))
                await anyio.to_thread.run_sync(release.write_text, "done")
    return outcomes[0]


async def test_a_task_that_takes_too_long_is_cancelled(workspace: Workspace) -> None:
    workspace.shell("a/waits", "exec sleep 1000", task_support="optional")
    with serving(workspace, "http"):
        async with workspace.open() as rye:
            ref = await pinned(rye, "a__waits", "http")
            done = await rye.execute(ref, timeout_s=3)
            assert not done.success
            for row in await rye.threads.list(all=True):  # the server's own: it serves this project
                ended_row = await rye.threads.wait(row.thread_id, timeout_s=20)
                assert ended_row.status == "cancelled"
            await forgotten(workspace)


async def test_a_task_whose_tool_fails_or_dies_fails_the_call(workspace: Workspace) -> None:
    workspace.python(
        "a/fails", "def execute(params, project):\n    return {'success': False, 'error': 'no'}",
        task_support="optional",
    )  # fmt: skip
    with serving(workspace, "stdio"):
        async with workspace.open() as rye:
            done = await rye.execute(await pinned(rye, "a__fails", "stdio"))
    assert (done.success, done.error) == (False, "no")


def left(workspace: Workspace) -> list[Path]:
    return [*(workspace.user / ".ai/state/mcp/tasks").rglob("*.json")]


async def noted(workspace: Workspace, *, some: bool = True) -> None:
    """Wait until some task is noted, or none."""
    tasks = workspace.user / ".ai/state/mcp/tasks"

    def folders() -> list[Path]:
        above = [one for one in tasks.parents if one.is_relative_to(workspace.root)]
        return [one for one in (*above, tasks, *tasks.glob("*")) if one.is_dir()]

    with anyio.fail_after(20):
        while bool(left(workspace)) != some:
            watched = folders()
            async with watch(*watched) as changes:
                if bool(left(workspace)) != some and watched == folders():
                    await changes.changed()


async def forgotten(workspace: Workspace) -> None:
    """Wait until no task is noted, which the connector ends a moment after its tool."""
    await noted(workspace, some=False)


def connectors_of(workspace: Workspace) -> list[int]:
    """The processes that keep a session for this project."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if b"--keep" in command and str(workspace.project).encode() in command:
            found.append(int(path.parent.name))
    return found


@pytest.mark.fresh_processes
async def test_a_task_whose_waiting_process_was_killed_is_cancelled_and_told(
    workspace: Workspace,
) -> None:
    fifo = waiting(workspace)
    workspace.shell("a/t", "true")
    outcomes: list[Any] = []
    logs: list[object] = []
    with serving(workspace, "http"):
        async with workspace.open() as rye:
            ref, quick = await pinned(rye, "a__waits", "http"), await pinned(rye, "a__t", "http")

            async def call() -> None:
                outcomes.append(await rye.execute(ref))

            async with anyio.create_task_group() as calls:
                calls.start_soon(call)
                tool = int(await anyio.to_thread.run_sync(fifo.read_text))
                await noted(workspace)
                (file,) = left(workspace)
                assert file.stat().st_mode & 0o077 == 0
                assert file.parent.stat().st_mode & 0o077 == 0
                for connector in connectors_of(workspace):
                    os.kill(connector, signal.SIGKILL)
            (done,) = outcomes
            assert done.effect_unknown
            assert is_alive(tool)
            done = await rye.execute(quick, ctx=CallContext(report_sink=logs.append))
            assert done.success, done.error
            await ended(tool)
            (log,) = [one for one in logs if isinstance(one, ToolLog)]
            assert "a__waits" in str(log.data)
            assert "was killed" in str(log.data)
            await forgotten(workspace)
