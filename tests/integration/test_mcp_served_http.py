"""ryecore as an MCP server over streamable HTTP: by the SDK's client, and by plain requests."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.mcp_clients import (
    INITIALIZE,
    MODES,
    TOKEN,
    Served,
    arguments,
    ended,
    http,
    make_waiting_tool,
    process,
    read_pid,
    said,
)
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def client_of(served: Served, **options: Any) -> AsyncIterator[Client]:
    async with (
        create_mcp_http_client(headers=BEARER) as web,
        Client(streamable_http_client(served.url, http_client=web), **options) as client,
    ):
        yield client


@MODES
async def test_tools_are_executed_twenty_at_once(workspace: Workspace, mode: str) -> None:
    ref = workspace.shell("a/t", "cat")
    answers: dict[int, object] = {}
    with http(workspace) as served:
        async with client_of(served, mode=mode) as client:

            async def call(number: int) -> None:
                given = arguments(workspace, item_id=ref, parameters={"n": number})
                answers[number] = said(await client.call_tool("rye_execute", given))["data"]

            async with anyio.create_task_group() as calls:
                for number in range(20):
                    calls.start_soon(call, number)
    assert answers == {number: {"n": number} for number in range(20)}


@MODES
async def test_a_call_that_is_cancelled_leaves_no_process(workspace: Workspace, mode: str) -> None:
    ref, fifo = make_waiting_tool(workspace)
    with http(workspace) as served:
        async with client_of(served, mode=mode) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call_tool, "rye_execute", arguments(workspace, item_id=ref))
                pid = await anyio.to_thread.run_sync(read_pid, fifo)
                calls.cancel_scope.cancel()
            await ended(pid)
    assert not is_alive(pid)


@MODES
async def test_the_person_at_the_client_decides_on_signatures(
    workspace: Workspace, mode: str
) -> None:
    workspace.write("knowledge/k.md", "High tide.\n", sign=False)

    async def approve(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert "High tide." in params.message
        return types.ElicitResult(action="accept", content={"approve": True})

    with http(workspace, "--allow-sign") as served:
        async with client_of(served, mode=mode, elicitation_callback=approve) as client:
            given = arguments(workspace, item_id="knowledge:k")
            signed = said(await client.call_tool("rye_sign", given))
    assert signed["summary"] == "Signed 1/1 item."


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_server_ends_by_a_signal_with_all_that_it_started(
    workspace: Workspace, number: int
) -> None:
    ref, fifo = make_waiting_tool(workspace)
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "rye_execute", "arguments": arguments(workspace, item_id=ref)},
    }
    with http(workspace) as served:
        async with anyio.create_task_group() as calls, web(served) as opened:
            begun = await opened.post(served.url, json=INITIALIZE)
            session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}

            async def call() -> None:
                answer = await opened.post(served.url, json=body, headers=session)
                assert "closed while the call ran" in answer.text

            async def listen() -> None:
                with suppress(httpx2.TransportError):  # the server ends meanwhile
                    await opened.get(served.url, headers=session)

            calls.start_soon(call)
            calls.start_soon(listen)
            pid = await anyio.to_thread.run_sync(read_pid, fifo)
            served.process.send_signal(number)
            code = await anyio.to_thread.run_sync(served.process.wait)
        assert served.process.stderr is not None
        assert b"Traceback" not in served.process.stderr.read()
    assert code == 0
    assert not is_alive(pid)


# Plain requests.


@asynccontextmanager
async def web(_served: Served, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    accepted = {"Accept": "application/json, text/event-stream", **BEARER, **headers}
    async with httpx2.AsyncClient(headers=accepted, timeout=30) as opened:
        yield opened


async def test_nobody_gets_in_without_the_token(workspace: Workspace) -> None:
    wrong = ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"]
    with http(workspace) as served:
        async with web(served) as opened:
            allowed = await opened.post(served.url, json=INITIALIZE)
            small = {"Authorization": f"bearer {TOKEN}"}
            allowed_too = await opened.post(served.url, json=INITIALIZE, headers=small)
            for given in wrong:
                opened.headers.pop("Authorization", None)
                opened.headers = httpx2.Headers(
                    [*opened.headers.raw, (b"Authorization", given.encode())]
                )
                refused = await opened.post(served.url, json=INITIALIZE)
                assert refused.status_code == 401, given
                assert refused.headers["www-authenticate"] == "Bearer"
    assert allowed.status_code == allowed_too.status_code == 200


async def test_a_page_of_another_name_cannot_reach_it(workspace: Workspace) -> None:
    with http(workspace) as served:
        async with web(served) as opened:
            host = await opened.post(served.url, json=INITIALIZE, headers={"Host": "evil.example"})
            origin = await opened.post(
                served.url, json=INITIALIZE, headers={"Origin": "https://evil.example"}
            )
            assert (host.status_code, origin.status_code) == (421, 403)
            for name in ("localhost:80.evil.example", "127.0.0.1:1@evil.example", "localhost:"):
                host = await opened.post(served.url, json=INITIALIZE, headers={"Host": name})
                assert host.status_code in (400, 421), name
                headers = {"Origin": f"http://{name}"}
                origin = await opened.post(served.url, json=INITIALIZE, headers=headers)
                assert origin.status_code == 403, name
            for name in ("localhost", "localhost:443", "[::1]:9"):
                headers = {"Host": name, "Origin": f"http://{name}"}
                known = await opened.post(served.url, json=INITIALIZE, headers=headers)
                assert known.status_code == 200, name


async def test_a_name_that_is_allowed_reaches_it_behind_a_proxy_with_tls_too(
    workspace: Workspace,
) -> None:
    with http(workspace, "--allow-host", "rye.example") as served:
        async with web(served) as opened:
            for origin in ("http://rye.example:8080", "https://rye.example"):
                headers = {"Host": "rye.example", "Origin": origin}
                answer = await opened.post(served.url, json=INITIALIZE, headers=headers)
                assert answer.status_code == 200, origin


async def test_what_is_no_request_is_refused_and_the_server_goes_on(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "wc -c")
    with http(workspace) as served:
        async with web(served) as opened:
            for content in (b"", b"{", b"[]", b"\xff", b"null", b'{"jsonrpc": "1.0"}'):
                answer = await opened.post(
                    served.url, content=content, headers={"Content-Type": "application/json"}
                )
                assert 400 <= answer.status_code < 500, content
                assert "Traceback" not in answer.text
            huge = await opened.post(
                served.url, content=b"x" * 40_000_000, headers={"Content-Type": "application/json"}
            )
            assert huge.status_code == 413
            elsewhere = await opened.get(served.url.replace("/mcp", "/other"))
            assert elsewhere.status_code == 404
        async with client_of(served) as client:
            given = arguments(workspace, item_id=ref, parameters={"text": "x" * 20_000_000})
            done = said(await client.call_tool("rye_execute", given))
    assert int(done["data"]) > 20_000_000


async def test_without_authentication_it_lets_everybody_on_this_machine_in(
    workspace: Workspace,
) -> None:
    with http(workspace, "--no-auth") as served:
        async with web(served) as opened:
            del opened.headers["Authorization"]
            answer = await opened.post(served.url, json=INITIALIZE)
    assert answer.status_code == 200


async def test_a_token_is_made_and_shown_once_or_read_from_a_private_file(
    workspace: Workspace,
) -> None:
    with process(workspace, "--http", "0") as server:
        assert server.stderr is not None
        token = server.stderr.readline().decode().rpartition(" ")[2].strip()
        url = server.stderr.readline().decode().rpartition(" ")[2].strip()
        async with httpx2.AsyncClient(
            headers={"Accept": "application/json, text/event-stream"}
        ) as w:
            answer = await w.post(
                url, json=INITIALIZE, headers={"Authorization": f"Bearer {token}"}
            )
        assert len(token) > 40
    assert answer.status_code == 200

    file = workspace.root / "token"
    file.write_text("short\n")
    for mode, says in ((0o644, "Others may read"), (0o600, "fewer than 16")):
        file.chmod(mode)
        with process(workspace, "--http", "0", "--token-file", str(file)) as server:
            _, err = server.communicate(timeout=30)
        assert (server.returncode, says in err.decode()) == (2, True)


async def test_the_token_reaches_no_tool_and_no_argument(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "env; cat /proc/$PPID/cmdline")
    with http(workspace, fresh=True) as served:
        async with client_of(served) as client:
            done = said(await client.call_tool("rye_execute", arguments(workspace, item_id=ref)))
    assert TOKEN not in json.dumps(done)


async def test_a_port_that_is_taken_is_a_clear_error(workspace: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with process(workspace, "--http", port, "--no-auth") as server:
            out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (2, b"")
    assert "Nothing can listen" in err.decode()


async def test_the_address_may_be_named(workspace: Workspace) -> None:
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    with process(workspace, "--http", "[::1]:0", "--no-auth") as server:
        assert server.stderr is not None
        line = server.stderr.readline().decode()
    assert "http://[::1]:" in line
