"""The MCP server on standard input and output, by the official SDK's client and by hand."""

import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp_clients import (
    COMMAND,
    INITIALIZE,
    MODES,
    arguments,
    ended,
    environ,
    make_waiting_tool,
    process,
    read_pid,
    said,
    stdio,
)
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@MODES
async def test_a_tool_is_executed_and_an_item_is_found_and_read(
    workspace: Workspace, mode: str
) -> None:
    ref = workspace.shell("a/t", "cat", description="Says it back.")
    async with stdio(workspace, mode=mode, fresh=mode == "auto") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        done = said(
            await client.call_tool(
                "rye_execute", arguments(workspace, item_id=ref, parameters={"a": "é"})
            )
        )
        found = said(
            await client.call_tool(
                "rye_fetch", arguments(workspace, query="description: back", scope="tool")
            )
        )
        read = said(await client.call_tool("rye_fetch", arguments(workspace, item_id=ref)))
    assert names == ["rye_execute", "rye_fetch"]
    assert done["data"] == {"a": "é"}
    assert [result["id"] for result in found["results"]] == [ref]
    assert "rye:signed:" in read["content"]


async def test_what_a_tool_or_a_caller_did_wrong_is_an_error_result(workspace: Workspace) -> None:
    ref = workspace.shell("a/fails", "echo why >&2; exit 3")
    wrong: list[dict[str, Any]] = [
        arguments(workspace, item_id=ref),
        arguments(workspace, item_id="tool:a/none"),
        arguments(workspace, item_id=7),
        arguments(workspace, item_id=ref, parameters=[1]),
        arguments(workspace, item_id=ref, dry_run="yes"),
        arguments(workspace, item_id=ref, target="moon"),
        arguments(workspace, item_id=ref, banana=1),
        arguments(workspace),
        {"item_id": ref},
        {"item_id": ref, "project_path": "/elsewhere"},
        {"item_id": ref, "project_path": "relative"},
        {"item_id": ref, "project_path": "/a\0b"},
        {"item_id": ref, "project_path": 7},
        {},
    ]
    async with stdio(workspace) as client:
        for given in wrong:
            document = said(await client.call_tool("rye_execute", given))
            assert document["status"] == "error", given
            assert document["error"]
            assert "Traceback" not in json.dumps(document)
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("rye_sign", arguments(workspace, item_id=ref))
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("no_such_tool", {})


@MODES
async def test_a_repeated_start_finds_its_run_by_the_key_in_its_meta(
    workspace: Workspace, mode: str
) -> None:
    ref = workspace.shell("a/t", 'echo paid >> "$1/../marks"; echo 1')

    async def start(key: object, **more: Any) -> dict[str, Any]:
        async with stdio(workspace, mode=mode) as client:  # each by a server of its own
            given = arguments(workspace, item_id=ref, **{"async": True, **more})
            meta: Any = {"ryecore/idempotency_key": key}
            return said(await client.call_tool("rye_execute", given, meta=meta))

    first = await start("order-17")
    with workspace.sync() as rye:
        rye.threads.wait(first["thread_id"])
    again = await start("order-17")
    assert (again["thread_id"], again["state"]) == (first["thread_id"], "completed")
    assert "order-17" in (await start("order-17", parameters={"n": 1}))["error"]
    assert "idempotency key" in (await start(5))["error"]
    assert "async" in (await start("order-18", **{"async": False}))["error"]
    assert (workspace.root / "marks").read_text() == "paid\n"


async def test_what_json_has_no_form_for_does_not_break_the_answer(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", 'printf \'{"half": "\\\\ud800", "n": [1]}\'')
    async with stdio(workspace) as client:
        document = said(await client.call_tool("rye_execute", arguments(workspace, item_id=ref)))
    assert document["data"]["n"] == [1]


async def test_a_link_to_a_served_project_is_that_project(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "true")
    (workspace.root / "link").symlink_to(workspace.project)
    async with stdio(workspace) as client:
        given = {"item_id": ref, "project_path": str(workspace.root / "link")}
        assert said(await client.call_tool("rye_execute", given))["status"] == "success"


async def test_grants_are_all_that_a_client_may_do(workspace: Workspace) -> None:
    workspace.shell("a/t", "true")
    workspace.shell("b/t", "true")
    async with stdio(workspace, "--grant", "rye.execute.tool.a.*") as client:
        good = said(await client.call_tool("rye_execute", arguments(workspace, item_id="tool:a/t")))
        bad = said(await client.call_tool("rye_execute", arguments(workspace, item_id="tool:b/t")))
        read = said(await client.call_tool("rye_fetch", arguments(workspace, item_id="tool:a/t")))
    assert (good["status"], bad["status"], read["status"]) == ("success", "error", "error")
    assert "rye.execute.tool.b.t" in bad["error"]


async def test_fifty_calls_at_once_are_each_answered_with_their_own(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "cat")
    answers: dict[int, object] = {}
    async with stdio(workspace) as client:

        async def call(number: int) -> None:
            given = arguments(workspace, item_id=ref, parameters={"n": number})
            answers[number] = said(await client.call_tool("rye_execute", given))["data"]

        async with anyio.create_task_group() as calls:
            for number in range(50):
                calls.start_soon(call, number)
    assert answers == {number: {"n": number} for number in range(50)}


@MODES
async def test_a_call_that_is_cancelled_leaves_no_process(workspace: Workspace, mode: str) -> None:
    ref, fifo = make_waiting_tool(workspace)
    pid = 0
    async with stdio(workspace, mode=mode) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "rye_execute", arguments(workspace, item_id=ref))
            pid = await anyio.to_thread.run_sync(read_pid, fifo)
            calls.cancel_scope.cancel()
        await ended(pid)
        workspace.shell("a/after", "true")
        done = await client.call_tool("rye_execute", arguments(workspace, item_id="tool:a/after"))
        assert said(done)["status"] == "success"


async def test_progress_tells_the_steps_in_their_order(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "true")
    told: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with stdio(workspace) as client:
        await client.call_tool(
            "rye_execute", arguments(workspace, item_id=ref), progress_callback=tell
        )
    assert [progress for progress, _ in told] == [*range(1, len(told) + 1)]
    steps = [str(message).split(" ")[0] for _, message in told]
    assert steps.index("resolve") < steps.index("verify_integrity") < steps.index("execute")


async def test_an_asynchronous_call_answers_at_once_with_a_thread_id(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "true")
    async with stdio(workspace) as client:
        given = {**arguments(workspace, item_id=ref), "async": True}
        document = said(await client.call_tool("rye_execute", given))
    assert document["thread_id"]
    assert document["state"] == "running"


# Signing: the person at the client decides.


def person(*answers: bool | None) -> tuple[list[str], Any]:
    """Somebody who approves, refuses (False) or turns away (None), and what they were asked."""
    asked: list[str] = []
    left = list(answers)

    async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        said = left.pop(0)
        if said is None:
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content={"approve": said})

    return asked, answer


async def test_a_hostile_schema_of_a_tool_is_given_up_and_the_server_answers_on(
    workspace: Workspace,
) -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "^(?:(?=.*z)a)*$"}}}
    ref = workspace.python("a/t", "def execute(params, project): return 1", config_schema=schema)
    async with stdio(workspace) as client:
        given = arguments(workspace, item_id=ref, parameters={"a": "a" * 200_000})
        document = said(await client.call_tool("rye_execute", given))
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert document["error_type"] == "invalid_parameters"
    assert "checking it against its schema takes more than" in str(document)
    assert "rye_execute" in names


async def test_an_answer_of_the_person_counts_by_one_field_whatever_else_it_holds(
    workspace: Workspace,
) -> None:
    workspace.write("knowledge/k.md", "High tide.\n", sign=False)
    hostile = {"approve": "true", "more": ["a" * 100_000] * 5}

    async def answer(_context: Any, _params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=hostile)

    async with stdio(workspace, "--allow-sign", elicitation_callback=answer) as client:
        document = said(
            await client.call_tool("rye_sign", arguments(workspace, item_id="knowledge:k"))
        )
    assert document["error_type"] == "not_approved"


@MODES
async def test_an_item_is_signed_once_the_person_at_the_client_approved(
    workspace: Workspace, mode: str
) -> None:
    workspace.write("knowledge/k.md", "High tide.\n", sign=False)
    asked, answer = person(False, None, True)
    async with stdio(workspace, "--allow-sign", mode=mode, elicitation_callback=answer) as client:
        given = arguments(workspace, item_id="knowledge:k")
        refused, turned_away, signed = [
            said(await client.call_tool("rye_sign", given)) for _ in range(3)
        ]
        read = said(await client.call_tool("rye_fetch", given))
    assert (refused["error_type"], turned_away["error_type"]) == ("not_approved", "not_approved")
    assert signed["summary"] == "Signed 1/1 item."
    assert read["status"] == "success"
    assert len(asked) == 3
    assert '"knowledge:k.md" (unsigned' in asked[0]
    assert "  | High tide." in asked[0]


@MODES
async def test_what_was_swapped_while_the_person_read_is_not_signed(
    workspace: Workspace, mode: str
) -> None:
    path = workspace.write("knowledge/k.md", "High tide.\n", sign=False)
    asked: list[str] = []

    async def swap(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        path.write_text("Obey.\n")
        return types.ElicitResult(action="accept", content={"approve": len(asked) == 1})

    async with stdio(workspace, "--allow-sign", mode=mode, elicitation_callback=swap) as client:
        given = arguments(workspace, item_id="knowledge:k")
        document = said(await client.call_tool("rye_sign", given))
    assert document["status"] == "error"
    assert "rye:signed" not in path.read_text()


@MODES
async def test_config_is_asked_about_file_by_file(workspace: Workspace, mode: str) -> None:
    for name in ("a", "b"):
        workspace.write(f"config/x/{name}.yaml", "a: 1\n", sign=False)
    asked, answer = person(True, True)
    async with stdio(workspace, "--allow-sign", mode=mode, elicitation_callback=answer) as client:
        given = arguments(workspace, item_id="config:x/*")
        document = said(await client.call_tool("rye_sign", given))
    assert document["summary"] == "Signed 2/2 items."
    assert len(asked) == 2


async def test_a_client_that_cannot_ask_is_refused_with_the_reason(workspace: Workspace) -> None:
    workspace.write("knowledge/k.md", "High tide.\n", sign=False)
    workspace.write("knowledge/good.md", "Low tide.\n")
    async with stdio(workspace, "--allow-sign") as client:
        sign = said(await client.call_tool("rye_sign", arguments(workspace, item_id="knowledge:k")))
        copy = said(
            await client.call_tool(
                "rye_fetch", arguments(workspace, item_id="knowledge:good", destination="user")
            )
        )
    assert "elicitation" in sign["error"]
    assert copy["error_type"] == "not_approved"


async def test_without_allow_sign_nothing_is_copied_either(workspace: Workspace) -> None:
    workspace.write("knowledge/k.md", "High tide.\n")
    asked, answer = person(True)
    async with stdio(workspace, elicitation_callback=answer) as client:
        given = arguments(workspace, item_id="knowledge:k", destination="user")
        document = said(await client.call_tool("rye_fetch", given))
    assert document["error_type"] == "not_approved"
    assert asked == []
    assert not workspace.path("knowledge", "user").exists()


# By hand: what no well-behaved client does.


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(
    workspace: Workspace, number: int, item_id: str, **parameters: object
) -> dict[str, object]:
    given = arguments(workspace, item_id=item_id, parameters=parameters)
    params = {"name": "rye_execute", "arguments": given}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def send(server: "subprocess.Popen[bytes]", *lines: object) -> None:
    assert server.stdin is not None
    for line in lines:
        raw = line if isinstance(line, bytes) else json.dumps(line).encode()
        server.stdin.write(raw + b"\n")
    server.stdin.flush()


def receive(server: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert server.stdout is not None
    message: dict[str, Any] = json.loads(server.stdout.readline())
    return message


def data_of(answer: dict[str, Any]) -> Any:
    """What a tool returned, from the answer to `rye_execute`."""
    return json.loads(answer["result"]["content"][0]["text"])["data"]


def begin(server: "subprocess.Popen[bytes]") -> None:
    send(server, INITIALIZE, INITIALIZED)
    assert receive(server)["id"] == 0


def test_lines_that_are_no_messages_are_passed_over(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "cat")
    with process(workspace) as server:
        begin(server)
        send(server, b"", b"not json", b"{", b"\xff\xfe", b"[]", b"null", b'{"jsonrpc": "1.0"}')
        send(server, b'{"jsonrpc": "2.0", "id": 5, "method": "no/such"}')
        send(server, call(workspace, 1, ref, a=1))
        answers = [receive(server), receive(server)]
    by_id = {answer["id"]: answer for answer in answers}
    assert by_id[5]["error"]["code"] == -32601
    assert data_of(by_id[1]) == {"a": 1}


def test_half_a_character_does_not_cost_a_client_its_answer(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "cat")
    with process(workspace) as server:
        begin(server)
        asked = json.dumps(call(workspace, 1, ref, text="HALF")).encode()
        send(server, asked.replace(b"HALF", b"cut here \\ud83d"))
        answer = receive(server)
    assert data_of(answer) == {"text": "cut here ?"}


def test_a_request_of_twenty_megabytes_is_answered(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "wc -c")
    with process(workspace) as server:
        begin(server)
        send(server, call(workspace, 1, ref, text="x" * 20_000_000))
        answer = receive(server)
    assert int(data_of(answer)) > 20_000_000


def test_a_line_beyond_the_bound_is_passed_over(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "cat")
    with process(workspace) as server:
        begin(server)
        send(server, call(workspace, 1, ref, text="x" * 40_000_000), call(workspace, 2, ref, a=2))
        answer = receive(server)
    assert answer["id"] == 2


@pytest.mark.parametrize("how", ["closed", signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_server_ends_with_all_that_it_started(workspace: Workspace, how: str | int) -> None:
    ref, fifo = make_waiting_tool(workspace)
    with process(workspace) as server:
        begin(server)
        send(server, call(workspace, 1, ref))
        pid = read_pid(fifo)
        if isinstance(how, int):
            server.send_signal(how)
        else:
            assert server.stdin is not None
            server.stdin.close()
        assert server.wait(timeout=20) == 0
        assert not is_alive(pid)
        assert server.stdout is not None
        for line in server.stdout.read().splitlines():  # the call may be answered yet
            assert "closed" in json.dumps(json.loads(line))
        assert server.stderr is not None
        assert server.stderr.read() == b""


def test_a_server_that_is_killed_leaves_no_process_either(workspace: Workspace) -> None:
    ref, fifo = make_waiting_tool(workspace)
    with process(workspace) as server:
        begin(server)
        send(server, call(workspace, 1, ref))
        watched = os.pidfd_open(read_pid(fifo))
        server.kill()
        try:
            assert select.select([watched], [], [], 20)[0], "the tool outlives its server"
        finally:
            os.close(watched)


def test_a_client_that_reads_no_more_does_not_keep_the_server(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "head -c 3000000 /dev/zero | tr '\\0' x")
    with process(workspace) as server:
        begin(server)
        send(server, call(workspace, 1, ref))
        assert server.stdout is not None
        server.stdout.read(1)  # it writes now, and the pipe is full
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=20) == 0


def test_without_a_client_it_ends_at_once(workspace: Workspace) -> None:
    with process(workspace) as server:
        assert server.communicate(timeout=30)[1] == b""
        assert server.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_a_stream_it_says_so(workspace: Workspace, closed: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} {' '.join(COMMAND)} {closed}"],
        cwd=workspace.project,
        env=environ(workspace),
        check=False,
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"no standard input" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--project", "/no/such"], "not a folder"),
        (["--http", "x"], "isn't an address"),
        (["--http", "99999"], "isn't an address"),
        (["--no-auth"], "for --http"),
        (["--grant", "banana"], "isn't a capability"),
        (["--grant", "rye.sign.*"], "grants nothing"),
        (["--grant", "rye.sign.tool.a"], "grants nothing"),
        (["--http", "0.0.0.0:0", "--no-auth"], "Without a token"),
        (["--http", "203.0.113.7:0"], "Nothing can listen"),
        (["--http", "0", "--token-file", "/no/such"], "can't be read"),
    ],
)
def test_a_wrong_option_is_refused_with_a_next_step(
    workspace: Workspace, args: list[str], said: str
) -> None:
    with process(workspace, *args, RYE_MCP_TOKEN="a-token-of-the-tests") as server:
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (2, b"")
    assert said in err.decode()
    assert "next:" in err.decode()
    assert "Traceback" not in err.decode()
