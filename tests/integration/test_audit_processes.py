"""The audit log of executes that several processes carry out, and of processes that are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.errors import ConfigError, InputError
from ryecore.lillux import watch
from tests.audited import read_log
from tests.detached import PATIENCE_S, end_of, launch
from tests.graphs import adding
from tests.mcp_clients import arguments, said, stdio
from tests.remotes import connect
from tests.served_node import served_node
from tests.thread_deps import DEPS, furnish
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def anyio_backend() -> str:
    """The processes' loops are their own, whatever their host runs on."""
    return "asyncio"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs/audit.jsonl"


@pytest.fixture(autouse=True)
def variable(workspace: Workspace, log: Path) -> None:
    log.parent.mkdir()
    workspace.environ["RYE_AUDIT"] = str(log)


async def ended(log: Path, run_id: str) -> list[dict[str, Any]]:
    """The lines of a run, once it has ended."""
    with anyio.fail_after(PATIENCE_S):
        async with watch(log.parent) as watcher:
            while True:
                lines = [one for one in read_log(log) if one["id"] == run_id]
                if any(one["outcome"] != "started" for one in lines):
                    return lines
                await watcher.changed()


async def test_who_launches_writes_the_start_and_the_process_the_end(
    workspace: Workspace, log: Path
) -> None:
    furnish(workspace)
    tool = workspace.shell("acme/t", "echo x")
    graph = adding(workspace)
    async with workspace.open(deps_factory=DEPS) as rye:
        runs = [await launch(rye, tool), await launch(rye, graph, a=1)]
        forked = await rye.execute("directive:acme/sum", {"x": 4}, thread="fork", async_=True)
        runs.append(forked)
        for run in runs:
            await end_of(rye, run)
    for run, ref in zip(runs, (tool, graph, "directive:acme/sum"), strict=True):
        start, end = await ended(log, run.thread_id)
        assert (start["outcome"], start["operation"]) == ("started", "start")
        assert (end["outcome"], end["operation"]) == ("success", "execute")
        assert start["ref"] == end["ref"] == ref
        assert start["hash"] == end["hash"] is not None
        assert start["thread_id"] == end["thread_id"] == run.thread_id
        assert start["pid"] == os.getpid() != end["pid"]


async def test_a_graph_that_is_waited_for_is_recorded_by_who_waits_and_its_nodes_by_its_process(
    workspace: Workspace, log: Path
) -> None:
    graph = adding(workspace)
    async with workspace.open() as rye:
        assert (await rye.execute(graph, {"a": 1})).success
    lines = read_log(log)
    own = [one for one in lines if one["ref"] == graph]
    assert [one["outcome"] for one in own] == ["started", "success"]
    assert {one["pid"] for one in own} == {os.getpid()}
    run_id = own[1]["thread_id"]
    inner = [one for one in lines if one["ref"] != graph]
    assert inner
    assert {one["caller_thread"] for one in inner} == {run_id}
    assert os.getpid() not in {one["pid"] for one in inner}


async def test_a_function_that_another_process_does_not_have_keeps_it_from_running(
    workspace: Workspace,
) -> None:
    furnish(workspace)
    graph, tool, marks = adding(workspace), workspace.shell("acme/t", "touch ran"), []
    async with workspace.open(audit=marks.append) as rye:
        for ref, options in ((graph, {}), (tool, {"async_": True})):
            with pytest.raises(ConfigError, match="audit log is a function"):
                await rye.execute(ref, {"a": 1} if ref == graph else {}, **options)
    # A factory that makes models alone is known only there.
    async with workspace.open(audit=marks.append, deps_factory=DEPS) as rye:
        run = await launch(rye, tool)
        report = await end_of(rye, run)
    assert "audit log is a function" in str(report.result)
    assert not (workspace.project / "ran").exists()
    assert [one.outcome for one in marks] == ["started", "error", "refused", "started"]


async def test_a_host_that_is_killed_leaves_a_start_without_an_end(
    workspace: Workspace, log: Path
) -> None:
    ref = workspace.shell("acme/stay", "touch began; sleep 300")
    command = [sys.executable, "-m", "ryecore.cli", "execute", ref]
    environ = {**workspace.environ, "USER_SPACE": str(workspace.user)}
    with subprocess.Popen(
        [*command, "--project", str(workspace.project)], env=environ, start_new_session=True
    ) as process:
        async with watch(workspace.project) as watcher:
            while not (workspace.project / "began").exists():
                await watcher.changed()
        os.killpg(process.pid, signal.SIGKILL)
    (line,) = read_log(log)
    assert (line["ref"], line["outcome"]) == (ref, "started")
    assert line["hash"] is not None


def test_a_short_command_writes_the_same_without_an_event_loop(
    workspace: Workspace, log: Path
) -> None:
    ref = workspace.shell("acme/t", "echo x")
    program = (
        "import sys; from ryecore.cli import main; sys.argv[0] = 'rye'\n"
        "try:\n    main()\n"
        "finally:\n    print('asyncio' in sys.modules, file=sys.stderr)"
    )
    environ = {**workspace.environ, "USER_SPACE": str(workspace.user)}
    for item, code in ((ref, 0), ("tool:acme/nowhere", 2)):
        done = subprocess.run(
            [sys.executable, "-c", program, "execute", item, "--project", str(workspace.project)],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert done.stderr.splitlines()[-1] == "False"
    assert [one["outcome"] for one in read_log(log)] == ["started", "success", "refused"]


async def test_calls_of_an_mcp_client_say_so(workspace: Workspace, log: Path) -> None:
    furnish(workspace)
    tool = workspace.shell("acme/t", "echo x")
    async with stdio(workspace, "--deps", DEPS) as client:
        for given in (
            {"item_id": tool},
            {"item_id": "directive:acme/sum", "parameters": {"x": 4}, "thread": "fork"},
            {"item_id": "tool:acme/nowhere"},
        ):
            said(await client.call_tool("rye_execute", arguments(workspace, **given)))
    ends = [one for one in read_log(log) if one["outcome"] != "started"]
    assert [(one["ref"], one["outcome"], one["caller"]) for one in ends] == [
        (tool, "success", "mcp"),
        ("directive:acme/sum", "success", "mcp"),
        ("tool:acme/nowhere", "refused", "mcp"),
    ]


async def test_what_a_node_carries_out_is_recorded_here_with_the_node_as_target(
    workspace: Workspace, log: Path, tmp_path: Path
) -> None:
    tool = workspace.shell("acme/t", "echo x")
    graph = adding(workspace)
    with served_node(tmp_path / "node") as served:
        connect(workspace, served)
        async with workspace.open() as rye:
            assert (await rye.execute(tool, target="remote:gpu")).success
            assert (await rye.execute(graph, {"a": 1}, target="remote:gpu")).success
            with pytest.raises(InputError):
                await rye.execute(tool, target="remote:nowhere")
    lines = read_log(log)
    assert [(one["ref"], one["outcome"], one["target"]) for one in lines] == [
        (tool, "started", "remote:gpu"),
        (tool, "success", "remote:gpu"),
        (graph, "started", "remote:gpu"),
        (graph, "success", "remote:gpu"),
        (tool, "refused", "remote:nowhere"),
    ]
    assert lines[3]["thread_id"] == lines[3]["id"]
    assert all(one["hash"] for one in lines[2:4])
