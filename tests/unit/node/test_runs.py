"""Tests of runs on a node: one run for each request, with a signed report."""

import json
import os
import threading
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import anyio
import pytest
from attrs import evolve

from ryecore import SigningKey
from ryecore.convert.strict import WIRE
from ryecore.lillux import watch
from ryecore.lillux.keys import BoxKey, seal_envelope
from ryecore.node.database import open_node_database
from ryecore.node.events import NodeEvent
from ryecore.node.problems import NodeProblem
from ryecore.node.run_table import RunRow, RunTable
from ryecore.node.spaces import remove_left_spaces
from ryecore.remote.protocol.models import (
    MAX_RESULT_DEPTH,
    CancelBody,
    RunState,
    is_nested_too_deeply,
)
from ryecore.remote.protocol.pieces import Piece
from ryecore.remote.protocol.reports import Change
from tests.audited import read_log
from tests.disk import replace_syncs
from tests.graphs import adding
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
        ended = NodeEvent(1, "status", {"status": "completed", "node_thread_id": None})
        assert [one async for one in node.runs.events(node.caller, "one")] == [ended]
        assert [one async for one in node.runs.events(node.caller, "one", 1)] == []


async def test_the_variable_of_the_node_names_the_audit_log_of_its_runs(
    workspace: Workspace, tmp_path: Path
) -> None:
    tool = workspace.shell("acme/t", "echo ${RYE_AUDIT:-none}")
    workspace.environ["RYE_AUDIT"] = str(tmp_path / "audit.jsonl")
    async with direct_node(workspace, tmp_path / "node") as node:
        report = node.report(await node.send(node.body(tool)))
    assert report.result["data"]["stdout"] == "none\n"
    lines = read_log(tmp_path / "audit.jsonl")
    assert [one["outcome"] for one in lines] == ["started", "success"]
    assert {one["caller"] for one in lines} == {f"node:{workspace.key.public.fingerprint}"}
    assert {one["key"] for one in lines} == {workspace.key.public.fingerprint}


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
                states.append(await node.send(body, evolve(node.caller, max_runs=1)))

            for _ in range(5):
                group.start_soon(send)
        states.append(await node.send(body))
        assert len({str(one) for one in states}) == 1
        assert log.read_text() == "ran\n"
        other = evolve(body, parameters={"log": str(log), "more": 1})
        with pytest.raises(NodeProblem) as refused:
            await node.send(other)
        assert refused.value.problem.type == "other_request"
        full = evolve(node.caller, max_runs=0)  # no new run may begin
        assert await node.send(body, full) == states[0]
        with pytest.raises(NodeProblem) as refused:
            await node.send(evolve(body, thread_id="other"), full)
        assert refused.value.problem.type == "too_many_runs"
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
        assert "trace" not in report.result


async def test_a_result_that_a_report_cannot_hold_is_an_error(
    workspace: Workspace, tmp_path: Path
) -> None:
    tool = workspace.python(
        "acme/deep",
        "def execute(params, project_path):\n"
        "    found = []\n"
        "    for _ in range(params['levels']):\n"
        "        found = [found]\n"
        "    return {'found': found}",
    )
    async with direct_node(workspace, tmp_path / "node") as node:
        for levels, status in ((MAX_RESULT_DEPTH - 10, "completed"), (MAX_RESULT_DEPTH, "error")):
            body = node.body(tool, str(levels), parameters={"levels": levels})
            state = await node.send(body)
            report = node.report(state)
            assert report.status == status, report.result
            assert not is_nested_too_deeply({"report": state.report})
        assert "nested deeper" in report.result["error"]


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


async def test_changed_project_files_are_reported_and_kept(
    workspace: Workspace, tmp_path: Path
) -> None:
    for name in ("same", "changed", "removed", "linked"):
        (workspace.project / name).write_text(f"old {name}")
    secret = tmp_path / "secret"
    secret.write_text("not of the project")
    tool = workspace.shell(
        "acme/change",
        "cd $RYE_PROJECT; touch same; echo new > changed; rm removed; mkdir -p deep;"
        f" echo made > deep/made; chmod +x deep/made; ln -s {secret} link;"
        f" ln -sf {secret} linked; mkdir .git; touch .git/HEAD .ai/state/mine; echo",
        env_config={"env": {"RYE_PROJECT": "{project_path}"}},
    )
    async with direct_node(workspace, tmp_path / "node") as node:
        report = node.report(await node.send(node.body(tool, "a", collect=True)))
        assert report.status == "completed", report.result
        old = sha256(b"old changed").hexdigest()
        new, made = sha256(b"new\n").hexdigest(), sha256(b"made\n").hexdigest()
        assert report.changes == (
            Change("changed", new, 4, False, old),
            Change("deep/made", made, 5, True, None),
            Change("removed", None, 0, False, sha256(b"old removed").hexdigest()),
        )
        content = node.content.of(node.caller)
        assert content.open(made).read() == b"made\n"
        again = node.report(await node.send(node.body(tool, "b")))
        assert again.changes is None
        assert "File exists" not in str(again.result), "a changed space was used again"


async def test_an_unchanged_space_is_used_again(workspace: Workspace, tmp_path: Path) -> None:
    tool = workspace.python(
        "acme/where",
        "def execute(params, project_path):\n    return {'at': str(project_path)}",
    )
    async with direct_node(workspace, tmp_path / "node") as node:
        places = [
            node.report(await node.send(node.body(tool, name))).result["data"]["at"]
            for name in ("a", "b", "c")
        ]
        assert len(set(places)) == 1
        (workspace.project / "more").write_text("more")
        other = node.report(await node.send(node.body(tool, "d"))).result["data"]["at"]
        assert other not in places


async def test_a_run_gets_no_space_that_an_ended_one_has_changed_though_others_use_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waits = workspace.shell("acme/wait", f"pwd > {fifo}; cat {fifo}")
    changes = workspace.shell("acme/change", "touch changed; pwd")
    looks = workspace.shell("acme/look", "pwd; ls")
    async with direct_node(workspace, tmp_path / "node") as node:

        async def stdout_of(ref: str, name: str) -> list[str]:
            report = node.report(await node.send(node.body(ref, name)))
            return str(report.result["data"]["stdout"]).split()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stdout_of, waits, "a")
            place = (await anyio.to_thread.run_sync(fifo.read_text)).split()
            assert await stdout_of(looks, "b") == place, "runs at the same time share a space"
            assert await stdout_of(looks, "c") == place
            assert await stdout_of(changes, "d") == place
            other, *listed = await stdout_of(looks, "e")
            fifo.write_text("end")
    assert [other] != place
    assert listed == []


async def test_a_tool_that_nests_folders_too_deep_for_python_does_not_end_the_node(
    workspace: Workspace, tmp_path: Path
) -> None:
    ref = workspace.python(
        "acme/nest",
        "import os\n\ndef execute(params, project_path):\n    os.chdir(project_path)\n"
        "    for _ in range(1100):\n        os.mkdir('d')\n        os.chdir('d')\n    return {}",
    )
    async with direct_node(workspace, tmp_path / "node") as node:
        for name in ("a", "b"):  # the next one closes the space of the one before
            report = node.report(await node.send(node.body(ref, name)))
            assert report.status == "completed", report.result
    async with direct_node(workspace, tmp_path / "node") as node:
        assert node.report(await node.send(node.body(ref, "d"))).status == "completed"
    remove_left_spaces(tmp_path / "node/data", ())  # pytest couldn't


async def test_a_space_that_no_run_uses_makes_room_for_the_next_one(
    workspace: Workspace, tmp_path: Path
) -> None:
    ref = workspace.shell("acme/change", "echo x >> large; echo '{}'")
    (workspace.project / "large").write_bytes(os.urandom(300_000))
    async with direct_node(workspace, tmp_path / "node") as node:
        snapshot = node.push()
        quota = evolve(
            node.caller, max_bytes=node.content.of(node.caller).quota.used_bytes + 500_000
        )
        for name in ("a", "b", "c"):  # each changes its space, so that the next one needs another
            state = await node.send(node.body(ref, name, snapshot=snapshot), quota)
            assert state.status == "completed", state
        content = node.content.of(quota)
        more = os.urandom(300_000)
        piece = Piece(sha256(more).hexdigest(), len(more), 0, more)
        with pytest.raises(NodeProblem):
            content.store([piece])
        answer = await node.runs.with_room(quota, lambda: content.store([piece]))
        assert answer.stored == (piece.sha256,)


async def test_only_a_tool_that_names_a_secret_gets_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    counting = "echo plain ${#PLAIN} token ${#HF_TOKEN}"
    names = workspace.shell("acme/names", counting, env_config={"env": {"PLAIN": "${PLAIN}"}})
    asks = workspace.shell("acme/asks", counting, env_config={"env": {"HF_TOKEN": "${HF_TOKEN}"}})
    async with direct_node(workspace, tmp_path / "node") as node:
        secrets = {"PLAIN": "plain-value", "HF_TOKEN": "hf_0123456789abcdefghij"}

        def sealed(secrets: dict[str, str], key: BoxKey = node.box_key) -> str:
            return b64encode(seal_envelope(key.public, secrets)).decode()

        for tool, envelope, counted in (
            (names, sealed(secrets), "plain 11 token 0"),
            (asks, sealed(secrets), "plain 0 token 23"),
            (asks, None, "plain 0 token 0"),
        ):
            thread_id = f"{counted.replace(' ', '-')}-{envelope is None}"
            report = node.report(await node.send(node.body(tool, thread_id, envelope=envelope)))
            assert counted in str(report.result["data"]), report.result
        for refused in (
            sealed(secrets, BoxKey.generate()),
            sealed({"LD_PRELOAD": "/evil.so"}),
            sealed({"PATH": "/evil"}),
            "nonsense",
        ):
            with pytest.raises(NodeProblem) as problem:
                await node.send(node.body(asks, "never", envelope=refused))
            assert problem.value.problem.type == "invalid"
    stored = b"".join(path.read_bytes() for path in (tmp_path / "node").glob("node.db*"))
    assert b"hf_0123" not in stored
    assert b"plain-value" not in stored


async def test_the_node_s_own_credentials_reach_no_tool(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.environ["OPENAI_API_KEY"] = "sk-0123456789abcdef0123"
    workspace.environ["CUDA_VISIBLE_DEVICES"] = "0"
    asks = workspace.shell(
        "acme/asks",
        "echo [$MINE] $CUDA_VISIBLE_DEVICES",
        env_config={"env": {"MINE": "${OPENAI_API_KEY}"}},
    )
    async with direct_node(workspace, tmp_path / "node") as node:
        report = node.report(await node.send(node.body(asks)))
        assert "sk-0123" not in str(report.result)


async def test_under_an_operator_s_trust_the_caller_s_key_does_not_count(
    workspace: Workspace, tmp_path: Path
) -> None:
    tool = workspace.shell("acme/hi", "echo hi")
    operator = SigningKey.generate()
    vouched = workspace.shell("acme/vouched", "echo hi")
    workspace.sign(workspace.path("tools/acme/vouched.sh"), key=operator)
    async with direct_node(workspace, tmp_path / "node", operator_keys=(operator.public,)) as node:
        bounded = evolve(node.caller, trust="operator")
        report = node.report(await node.send(node.body(tool, "a"), bounded))
        assert report.result["error_type"] == "integrity"
        report = node.report(await node.send(node.body(vouched, "b"), bounded))
        assert report.status == "completed", report.result


async def test_a_tool_ends_at_its_deadline_and_when_it_is_cancelled(
    workspace: Workspace, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    tool = workspace.shell("acme/hang", f"mkfifo {fifo}; cat {fifo}")
    async with direct_node(workspace, tmp_path / "node") as node:
        report = node.report(await node.send(node.body(tool, "late", deadline_s=0.5)))
        assert report.status == "error"
        fifo.unlink(missing_ok=True)
        for kill, ended in ((False, "cancelled"), (True, "killed")):
            await node.send(node.body(tool, ended, wait_s=0))
            async with watch(tmp_path) as watcher:
                while not fifo.exists():
                    await watcher.changed()
            await node.runs.cancel(node.caller, ended, CancelBody(kill=kill))
            report = node.report(await node.runs.state(node.caller, ended, 30))
            assert report.status == ended
            fifo.unlink()


async def test_a_graph_runs_with_its_tree(workspace: Workspace, tmp_path: Path) -> None:
    flow = adding(workspace)
    async with direct_node(workspace, tmp_path / "node") as node:
        state = await node.send(node.body(flow, parameters={"a": 2}))
        report = node.report(state)
        assert report.status == "completed", report.result
        assert report.result["data"]["output"] == {"sum": 3}
        assert state.node_thread_id == report.result["data"]["graph_run_id"]
        events = [one async for one in node.runs.events(node.caller, "one")]
        assert {one.event for one in events} == {"status", "run", "tree"}
        assert "transcript.jsonl" in {one.name for one in report.files}


async def test_a_run_that_was_killed_before_it_began_is_reported_as_killed(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder, ref = tmp_path / "node", workspace.shell("acme/never", "echo never")
    async with direct_node(workspace, folder) as node:
        body, caller = node.body(ref), node.caller.fingerprint
    database = open_node_database(folder)  # of a process that died before the run had a space
    table = RunTable(database)
    request = json.dumps(WIRE.write(body))
    await table.insert(RunRow.of(caller, body, "0" * 64), request)
    await table.ask_to_stop(caller, "one", kill=True)
    database.close()

    async with direct_node(workspace, folder) as node:
        report = node.report(await node.runs.state(node.caller, "one", 30))

    assert (report.status, report.cost.spend_microcents) == ("killed", 0)


async def test_neither_a_tool_begins_nor_an_answer_comes_before_the_run_is_on_the_disk(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    ran = tmp_path / "ran"
    tool = workspace.shell("acme/touch", f"touch {ran}")
    states: list[RunState] = []

    def sync(descriptor: int) -> None:
        began.set()
        assert may_end.wait(30)

    async with direct_node(workspace, tmp_path / "node") as node, workspace.open() as rye:
        await node.send(node.body(tool, "warm"))
        body = node.body(tool)
        replace_syncs(monkeypatch, sync)

        async def send(wait_s: float) -> None:
            states.append(await node.send(evolve(body, wait_s=wait_s)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, 30.0)
            await anyio.to_thread.run_sync(began.wait, 30)
            tasks.start_soon(send, 0.0)  # it is found
            ran.unlink()
            for _ in range(3):  # meanwhile a tool that waits for nothing begins and ends
                await rye.execute(tool)
                ran.unlink()
            await anyio.wait_all_tasks_blocked()
            assert states == []
            assert not ran.exists()
            may_end.set()
    assert ran.exists()
    assert {one.thread_id for one in states} == {"one"}
    assert states[-1].status == "completed"
