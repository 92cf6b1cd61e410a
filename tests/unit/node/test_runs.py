"""Tests of runs on a node: one run for each request, with a signed report."""

from pathlib import Path

import anyio
import pytest
from attrs import evolve

from ryecore.node.problems import NodeProblem
from ryecore.remote.protocol.models import RunState
from tests.node_host import direct_node
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


async def test_a_tool_runs_in_its_space_and_its_report_is_signed(
    workspace: Workspace, tmp_path: Path
) -> None:
    (workspace.project / "data").mkdir()
    (workspace.project / "data/in.txt").write_text("high tide")
    tool = workspace.python(
        "acme/read",
        "def execute(params, project_path):\n"
        "    from pathlib import Path\n"
        "    text = (Path(project_path) / 'data/in.txt').read_text()\n"
        "    return {'text': text, 'at': str(project_path)}",
    )
    async with direct_node(workspace, tmp_path / "node") as node:
        state = await node.send(node.body(tool))
        report = node.report(state)
        assert report.status == "completed", report.result
        assert report.result["data"]["text"] == "high tide"
        assert str(node.folder) in report.result["data"]["at"]
        assert report.caller == workspace.key.public.fingerprint
        assert (state.status, state.node_thread_id) == ("completed", None)


async def test_a_repeated_request_finds_the_first_ones_run(
    workspace: Workspace, tmp_path: Path
) -> None:
    tool = workspace.python(
        "acme/count",
        "def execute(params, project_path):\n"
        "    from pathlib import Path\n"
        "    with open(params['log'], 'a') as file:\n"
        "        file.write('ran\\n')\n"
        "    return {}",
    )
    log = tmp_path / "log"
    async with direct_node(workspace, tmp_path / "node") as node:
        body = node.body(tool, parameters={"log": str(log)})
        states: list[RunState] = []
        async with anyio.create_task_group() as group:

            async def send() -> None:
                states.append(await node.send(body))

            for _ in range(5):
                group.start_soon(send)
        states.append(await node.send(body))
        assert len({str(one) for one in states}) == 1
        assert log.read_text() == "ran\n"
        other = evolve(body, parameters={"log": str(log), "more": 1})
        with pytest.raises(NodeProblem) as refused:
            await node.send(other)
        assert refused.value.problem.type == "other_request"
    async with direct_node(workspace, tmp_path / "node") as node:
        assert await node.send(body) == states[0]
        assert log.read_text() == "ran\n"


async def test_a_failed_tool_is_reported_as_the_local_call_answers(
    workspace: Workspace, tmp_path: Path
) -> None:
    failing = workspace.python("acme/fail", "def execute(params, project_path):\n    return 1 / 0")
    workspace.shell("acme/changed", "echo hi")
    path = workspace.path("tools/acme/changed.sh")
    path.write_text(path.read_text() + "echo more\n")
    async with direct_node(workspace, tmp_path / "node") as node:
        report = node.report(await node.send(node.body(failing, "a")))
        assert (report.status, report.result["status"]) == ("error", "error")
        assert "division by zero" in report.result["error"]
        report = node.report(await node.send(node.body("tool:acme/changed", "b")))
        assert (report.status, report.result["error_type"]) == ("error", "integrity")
        report = node.report(await node.send(node.body("tool:acme/none", "c")))
        assert report.result["item_id"] == "tool:acme/none"


async def test_a_caller_s_scopes_bound_its_runs(workspace: Workspace, tmp_path: Path) -> None:
    tool = workspace.shell("acme/hi", "echo hi")
    async with direct_node(workspace, tmp_path / "node") as node:
        narrow = evolve(node.caller, scopes=("rye.execute.tool.other.*",))
        report = node.report(await node.send(node.body(tool, "a"), narrow))
        assert "rye.execute.tool.acme.hi" in report.result["error"]
        asked = node.body(tool, "b", capabilities=("rye.execute.tool.other.*",))
        assert node.report(await node.send(asked)).status == "error"
        asked = node.body(tool, "c", capabilities=("rye.execute.tool.*",))
        assert node.report(await node.send(asked)).status == "completed"


async def test_what_cannot_run_is_refused_before_it_begins(
    workspace: Workspace, tmp_path: Path
) -> None:
    tool = workspace.shell("acme/hi", "echo hi")
    async with direct_node(workspace, tmp_path / "node") as node:
        none = evolve(node.caller, max_runs=0)
        for body, caller, problem in (
            (node.body(tool, snapshot="0" * 64), node.caller, "snapshot_missing"),
            (node.body(tool, ryecore="99.0.0"), node.caller, "version"),
            (node.body(tool, thread="fork"), node.caller, "invalid"),
            (node.body(tool, thread_id="../up"), node.caller, "invalid"),
            (node.body(tool), none, "too_many_runs"),
        ):
            with pytest.raises(NodeProblem) as refused:
                await node.send(body, caller)
            assert refused.value.problem.type == problem
        with pytest.raises(NodeProblem) as refused:
            await node.runs.state(node.caller, "one")
        assert refused.value.problem.type == "not_found"
