"""Calls of signed tools as tasks, behind the MCP server, for clients of both eras."""

import os
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from attrs import evolve
from mcp import Client

from ryecore.graph.model import GRAPH_RUNTIME
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.mcp_server import create_server
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.matrix import IS_SOAK
from tests.mcp_clients import INITIALIZE, http
from tests.mcp_wire import ModernHttp, RpcError, legacy
from tests.unit.chain.test_channel import HELPER
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

OFFERED = ("--tools", "a/*", "--no-verbs")
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GREETS = f"""{HELPER}
def execute(params, project_path):
    answer = ask("elicit", message="Who are you?", requestedSchema={FORM!r})
    return "Hello " + answer["result"]["content"]["name"]
"""


def waiting(workspace: Workspace, **declared: Any) -> tuple[Path, Path]:
    """A tool that says its process id by one FIFO, and returns what it reads from another."""
    pid, release = workspace.project / "pid", workspace.project / "release"
    for fifo in (pid, release):
        os.mkfifo(fifo)
    script = 'echo $$ > "$1/pid"; cat "$1/release"'
    workspace.shell("a/waits", script, task_support="optional", **declared)
    return pid, release


def ended(workspace: Workspace, client: ModernHttp, task_id: str) -> dict[str, Any]:
    """The task once it has ended, as its run has."""
    with workspace.sync() as rye:
        assert rye.threads.wait(task_id.partition(".")[2], timeout_s=20).ended
    return client("tasks/get", taskId=task_id)


def asking(client: ModernHttp, task_id: str) -> dict[str, Any]:
    """The task once it asks, which its client learns only by asking again when it is told to."""
    while (task := client("tasks/get", taskId=task_id))["status"] == "working":
        time.sleep(task["pollIntervalMs"] / 1000)
    return task


def test_a_task_survives_its_server_and_is_found_by_its_client_alone(workspace: Workspace) -> None:
    pid, release = waiting(workspace)
    with http(workspace, *OFFERED) as served:
        task_id = ModernHttp(served.url)("tools/call", name="a__waits", arguments={})["taskId"]
        pid.read_text()
    with http(workspace, *OFFERED) as again:
        client = ModernHttp(again.url)
        assert client("tasks/get", taskId=task_id)["status"] == "working"
        release.write_text("done")
        task = ended(workspace, client, task_id)
        assert task["status"] == "completed"
        assert '"stdout": "done"' in task["result"]["content"][0]["text"]
        plain = ModernHttp(again.url, offered={})
        with pytest.raises(RpcError, match=r"io\.modelcontextprotocol/tasks") as refused:
            plain("tasks/get", taskId=task_id)
        assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        guessed = task_id.partition(".")[2]
        for wrong in (f"x.{guessed}", f".{guessed}", task_id[:-1], "nothing"):
            with pytest.raises(RpcError, match="not found") as unknown:
                client("tasks/get", taskId=wrong)
            assert unknown.value.code == types.INVALID_PARAMS
        with pytest.raises(RpcError, match="mcp-name"):
            client("tasks/get", "another", taskId=task_id)
    with (
        http(workspace, *OFFERED, RYE_MCP_TOKEN="another-token-of-the-tests") as other,
        pytest.raises(RpcError, match="not found"),
    ):
        ModernHttp(other.url, "another-token-of-the-tests")("tasks/get", taskId=task_id)


def test_a_task_stays_as_it_ended_though_its_tools_output_schema_changes(
    workspace: Workspace,
) -> None:
    def declare(wanted: str) -> None:
        schema = {"type": "object", "required": [wanted]}
        declared: Any = {"output_schema": schema, "task_support": "optional"}
        body = "def execute(params, project):\n    return {'total': 1}"
        workspace.python("a/apart", body, **declared)
        workspace.python("a/here", body, reports=True, **declared)
        workspace.yaml(
            "a/flow", version="1.0.0", tool_type="graph", executor_id=GRAPH_RUNTIME, category="a",
            description="A graph.", permissions=[],
            config={"start": "end", "nodes": {"end": {"type": "return"}}}, **declared,
        )  # fmt: skip

    declare("total")
    with http(workspace, *OFFERED) as served:
        client = ModernHttp(served.url)
        names = ("a__apart", "a__here", "a__flow")
        ids = [client("tools/call", name=name, arguments={})["taskId"] for name in names]
        before = [ended(workspace, client, task_id) for task_id in ids]
        declare("success")
        after = [client("tasks/get", taskId=task_id) for task_id in ids]
    results = [one["result"] for one in after]
    assert [one["result"] for one in before] == results
    assert [one.get("structuredContent") for one in results[:2]] == [{"total": 1}, {"total": 1}]
    assert results[2]["isError"]
    assert "total" in results[2]["content"][0]["text"]


def test_cancelling_a_task_ends_its_processes(workspace: Workspace) -> None:
    pid, _ = waiting(workspace)
    with http(workspace, *OFFERED) as served:
        client = ModernHttp(served.url)
        task_id = client("tools/call", name="a__waits", arguments={})["taskId"]
        tool = int(pid.read_text())
        assert client("tasks/cancel", taskId=task_id).keys() <= {"resultType", "_meta"}
        assert ended(workspace, client, task_id)["status"] == "cancelled"
        assert not is_alive(tool)
        client("tasks/cancel", taskId=task_id)  # once more, which does nothing


def test_a_server_that_is_ended_ends_its_tasks_without_a_traceback(workspace: Workspace) -> None:
    pid, _ = waiting(workspace, reports=True)
    with http(workspace, *OFFERED) as served:
        ModernHttp(served.url)("tools/call", name="a__waits", arguments={})
        tool = int(pid.read_text())
        served.process.terminate()
        said = served.process.communicate(timeout=30)[1].decode()
    assert not is_alive(tool)
    assert "Traceback" not in said, said


def test_a_client_without_tasks_waits_for_the_same_tool(workspace: Workspace) -> None:
    workspace.shell("a/t", "echo plain", task_support="optional")
    workspace.shell("a/needs", "true", task_support="required")
    with http(workspace, *OFFERED) as served:
        client = ModernHttp(served.url, offered={})
        done = client("tools/call", name="a__t", arguments={})
        assert "plain" in done["content"][0]["text"]
        with pytest.raises(RpcError) as refused:
            client("tools/call", name="a__needs", arguments={})
    assert refused.value.data == {
        "requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    }


def test_a_task_asks_once_and_takes_only_a_response_to_its_question(workspace: Workspace) -> None:
    workspace.python("a/greets", GREETS, task_support="optional", may_ask=["elicit"])
    with http(workspace, *OFFERED) as served:
        client = ModernHttp(served.url)
        task_id = client("tools/call", name="a__greets", arguments={})["taskId"]
        ((key, request),) = asking(client, task_id)["inputRequests"].items()
        assert request["params"]["message"] == "Who are you?"
        with pytest.raises(RpcError, match="response"):
            client("tasks/update", taskId=task_id, inputResponses={key: {"roots": []}})
        answer = {"action": "accept", "content": {"name": "Ada"}}
        client("tasks/update", taskId=task_id, inputResponses={"other": answer})
        assert client("tasks/get", taskId=task_id)["status"] == "input_required"
        client("tasks/update", taskId=task_id, inputResponses={key: answer})
        assert ended(workspace, client, task_id)["result"]["content"][0]["text"] == "Hello Ada"


@pytest.mark.parametrize("reports", [True, False], ids=["here", "apart"])
def test_a_wrong_call_begins_no_task(workspace: Workspace, reports: bool) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    workspace.shell("a/t", "true", task_support="optional", config_schema=schema, reports=reports)
    with http(workspace, *OFFERED) as served:
        refused = ModernHttp(served.url)("tools/call", name="a__t", arguments={"n": "one"})
    assert refused["isError"]
    assert "n" in refused["content"][0]["text"]
    with workspace.sync() as rye:
        assert rye.threads.list(all=True) == ()


def test_a_client_of_2025_creates_gets_lists_and_cancels_tasks(workspace: Workspace) -> None:
    pid, _ = waiting(workspace)
    workspace.shell("a/needs", "exit 3", task_support="required")
    workspace.shell("a/plain", "true")
    with legacy(workspace, *OFFERED) as client:
        offered = client.begin()["capabilities"]
        assert offered["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert "extensions" not in offered
        listed = {one["name"]: one.get("execution") for one in client("tools/list")["tools"]}
        assert listed == {
            "a__waits": {"taskSupport": "optional"},
            "a__needs": {"taskSupport": "required"},
            "a__plain": None,
        }
        for name, more in (("a__needs", {}), ("a__plain", {"task": {}})):
            with pytest.raises(RpcError) as refused:
                client("tools/call", name=name, arguments={}, **more)
            assert refused.value.code == types.METHOD_NOT_FOUND
        task = client("tools/call", name="a__waits", arguments={}, task={"ttl": 60_000})["task"]
        assert (task["status"], task["ttl"]) == ("working", None)
        pid.read_text()
        failing = client("tools/call", name="a__needs", arguments={}, task={})["task"]["taskId"]
        done = client("tasks/result", taskId=failing)
        assert done["isError"]
        assert done["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": failing}
        found = {one["taskId"]: one["status"] for one in client("tasks/list")["tasks"]}
        assert found == {task["taskId"]: "working", failing: "failed"}
        stopped = client("tasks/cancel", taskId=task["taskId"])
        assert stopped["status"] == "cancelled"
        for method in ("tasks/cancel", "tasks/result"):
            with pytest.raises(RpcError, match="cancel"):
                client(method, taskId=task["taskId"])
        for cursor in ("7:x", "9" * 5000 + ":"):
            with pytest.raises(RpcError, match="cursor") as unknown:
                client("tasks/list", cursor=cursor)
            assert unknown.value.code == types.INVALID_PARAMS
        with pytest.raises(RpcError, match="Method not found"):
            client("tasks/update", taskId=failing, inputResponses={})
    with legacy(workspace, *OFFERED) as again:  # by another process, for the same person
        again.begin()
        assert len(again("tasks/list")["tasks"]) == 2
    with (
        legacy(workspace, *OFFERED, "--grant", "rye.execute.tool.a.*") as less,
    ):
        less.begin()
        assert less("tasks/list")["tasks"] == []


def test_a_client_of_2025_is_asked_while_it_waits_for_a_result(workspace: Workspace) -> None:
    workspace.python("a/greets", GREETS, task_support="optional", may_ask=["elicit"])
    asked: list[Any] = []

    with legacy(workspace, *OFFERED) as client:

        def answer(request: Any) -> dict[str, Any]:
            related = request["params"]["_meta"]["io.modelcontextprotocol/related-task"]
            asked.append((related, client("tasks/get", **related)["status"]))
            return {"action": "accept", "content": {"name": "Ada"}}

        client.begin()
        client.answers = answer
        task_id = client("tools/call", name="a__greets", arguments={}, task={})["task"]["taskId"]
        done = client("tasks/result", taskId=task_id)
    assert done["content"][0]["text"] == "Hello Ada"
    assert asked == [({"taskId": task_id}, "input_required")]


@pytest.mark.skipif(not IS_SOAK, reason="starts a hundred processes")
def test_calls_of_one_moment_open_no_more_tasks_than_are_allowed(workspace: Workspace) -> None:
    waits = "def execute(params, project_path):\n    import time\n    time.sleep(1000)\n"
    workspace.python("a/waits", waits, task_support="optional", reports=True)
    with http(workspace, *OFFERED) as served, ThreadPoolExecutor(32) as callers:
        client = ModernHttp(served.url)

        def call(_: int) -> bool:
            return "taskId" in client("tools/call", name="a__waits", arguments={})

        assert sum(callers.map(call, range(130))) == 100


def test_open_tasks_count_for_their_client_alone_beside_many_other_threads(
    workspace: Workspace,
) -> None:
    workspace.shell("a/waits", "exec sleep 1000", task_support="optional")
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"))

    async def register(count: int, labels: Mapping[str, str], owner: ProcessId) -> None:
        async def many() -> None:
            for _ in range(count):
                await store.registry.register(
                    str(uuid.uuid4()), "tool:a/waits", owner=owner, labels=labels
                )

        await store.registry.together(many)

    run_blocking(register(1000, {"tenant": "acme"}, current_process()))
    grants = ("--grant", "rye.execute.tool.a.*")
    with legacy(workspace, *OFFERED) as client, legacy(workspace, *OFFERED, *grants) as other:
        for one in (client, other):
            one.begin()
        first = client("tools/call", name="a__waits", arguments={}, task={})["task"]["taskId"]
        row = run_blocking(store.registry.get_thread(first.partition(".")[2]))
        dead = evolve(current_process(), start_ticks=1)
        labels = {**row.labels, "mcp_task": "x"}
        run_blocking(register(99, labels, dead))
        second = client("tools/call", name="a__waits", arguments={}, task={})["task"]["taskId"]
        for number in range(98):
            more = {**row.labels, "mcp_task": str(number)}
            run_blocking(register(1, more, current_process()))
        refused = client("tools/call", name="a__waits", arguments={}, task={})
        assert refused["isError"]
        assert "100 tasks are open already" in refused["content"][0]["text"]
        third = other("tools/call", name="a__waits", arguments={}, task={})["task"]["taskId"]
        for one, task_id in ((client, first), (client, second), (other, third)):
            one("tasks/cancel", taskId=task_id)
    store.close()


def test_tasks_that_are_removed_while_they_are_listed_are_left_out(workspace: Workspace) -> None:
    workspace.shell("a/quick", "true", task_support="optional")
    with legacy(workspace, *OFFERED) as client:
        client.begin()
        begun = [
            client("tools/call", name="a__quick", arguments={}, task={})["task"]["taskId"]
            for _ in range(12)
        ]
        for task_id in begun:
            client("tasks/result", taskId=task_id)

        def prune() -> None:
            with workspace.sync() as rye:
                while rye.threads.list(all=True):  # the last are younger than a second at first
                    rye.threads.prune(older_than="1s")

        with ThreadPoolExecutor(1) as pruning:
            pruned = pruning.submit(prune)
            while not pruned.done():
                assert len(client("tasks/list")["tasks"]) <= len(begun)
            pruned.result()
        assert client("tasks/list")["tasks"] == []


def test_older_clients_have_no_tasks(workspace: Workspace) -> None:
    workspace.shell("a/needs", "true", task_support="required")
    with legacy(workspace, *OFFERED) as client:
        client.begin("2025-06-18")
        with pytest.raises(RpcError, match="Method not found"):
            client("tasks/list")
        refused = client("tools/call", name="a__needs", arguments={})
        assert refused["isError"]
        assert "has to be called as a task" in refused["content"][0]["text"]


def test_nobody_lists_tasks_where_clients_cannot_be_told_apart(workspace: Workspace) -> None:
    with http(workspace, "--no-auth") as served:
        began = httpx2.post(
            served.url, json=INITIALIZE, headers={"Accept": "application/json, text/event-stream"}
        )
    assert '"cancel":{}' in began.text
    assert '"list":{}' not in began.text


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_here_ends_with_its_transport_and_its_row_says_so(
    workspace: Workspace,
) -> None:
    body = f"{HELPER}\ndef execute(params, project_path):\n    ask('elicit', message='?')\n"
    ref = workspace.python("a/asks", body, task_support="optional", may_ask=["elicit"])
    async with workspace.open() as rye:
        server = create_server([rye], tools=["a/*"], verbs=False)

        async def elicit(_: Any, params: Any) -> types.ElicitResult:
            raise AssertionError("only tasks/result asks")

        async with Client(server, mode="legacy", elicitation_callback=elicit) as client:
            await client.session._dispatcher.send_raw_request(
                "tools/call", {"name": "a__asks", "arguments": {}, "task": {}}, {}
            )
            (row,) = await rye.threads.list()
            assert row.item_id == ref
        with anyio.fail_after(5):
            report = await rye.threads.wait(row.thread_id)
    assert report.status == "cancelled"
