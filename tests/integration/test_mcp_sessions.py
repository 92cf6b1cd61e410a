"""Sessions with MCP servers that end, hang, are refused or speak another version."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ryecore import CallContext, CancelToken
from ryecore.errors import CallCancelled, McpError
from ryecore.lillux import watch
from ryecore.testing.ports import free_port
from tests.integration.test_mcp_http import bad_server, pinned, sdk_server, status
from tests.matrix import IS_SOAK, in_turn
from tests.mcp_items import HTTP, assert_gone, mcp_tool, pids, server_item, stdio_server, why
from tests.mcp_server import TOOLS

pytestmark = pytest.mark.usefixtures("forked_connectors")

# a server that was started again


@pytest.mark.parametrize("kind", ["http", "json", "sse"])
def test_a_server_that_was_started_again_is_called_at_once(workspace, kind):
    port = free_port()
    with workspace.sync() as rye:
        with sdk_server(kind, port=port) as url:
            server_item(workspace, transport="sse" if kind == "sse" else "http", url=url)
            ref = pinned(workspace, rye)
            assert rye.execute(ref, {"text": "one"}).success
        with sdk_server(kind, port=port):
            for said in ("two", "three"):
                done = rye.execute(ref, {"text": said})
                assert done.success, done.error
                assert done.data["content"][0]["text"] == said


def test_a_server_that_is_down_says_so_and_is_called_once_it_is_back(workspace):
    port = free_port()
    with workspace.sync() as rye:
        with sdk_server("http", port=port) as url:
            server_item(workspace, transport="http", url=url)
            ref = pinned(workspace, rye)
        with pytest.raises(McpError, match="connect"):
            rye.execute(ref, {"text": "hi"})
        with sdk_server("http", port=port):
            assert rye.execute(ref, {"text": "hi"}).success


class Forgetful:
    """A server over HTTP that refuses an old session's calls in a way of its own."""

    def __init__(self, code: int, body: dict[str, Any] | str, method: str) -> None:
        self.code = code
        self.body = body
        self.method = method
        self.sessions = 0
        self.ran: list[str] = []
        self.has_forgotten = False

    def answer(self, request: BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
        """Answer one message."""
        session = request.headers.get("mcp-session-id")
        method, number = message.get("method"), message.get("id")
        is_old = session is not None and int(session) < self.sessions
        if method == self.method and (is_old or not self.has_forgotten):
            if not self.has_forgotten:
                self.has_forgotten = True
                self.sessions += 1
            body = self.body
            if isinstance(body, dict):
                given = number if body.get("id") == "its own" else body.get("id")
                body = json.dumps({"jsonrpc": "2.0", **body, "id": given})
            self.send(request, self.code, body, "application/json" if body[:1] == "{" else "")
            return
        if number is None:
            self.send(request, 202, "")
            return
        result = self.result(str(method), message)
        answer = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
        self.send(request, 200, answer, "application/json", session or str(self.sessions))

    def result(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        """The result of a request that isn't refused."""
        match method:
            case "initialize":
                self.sessions += 1
                info = {"name": "test", "version": "1"}
                version = message["params"]["protocolVersion"]
                capabilities = {"tools": {"listChanged": True}}
                return {
                    "protocolVersion": version, "capabilities": capabilities, "serverInfo": info
                }  # fmt: skip
            case "tools/list":
                return {"tools": TOOLS}
            case "tools/call":
                said = message["params"]["arguments"]["text"]
                self.ran.append(said)
                return {"content": [{"type": "text", "text": said}]}
        return {}

    def send(
        self, request: Any, code: int, body: str, kind: str = "", session: str | None = None
    ) -> None:
        """Send a response."""
        content = body.encode()
        request.send_response(code)
        request.send_header("content-length", str(len(content)))
        if kind:
            request.send_header("content-type", kind)
        if session is not None:
            request.send_header("mcp-session-id", session)
        request.end_headers()
        request.wfile.write(content)


@contextmanager
def forgetful(server: Forgetful) -> Iterator[str]:
    """Run a server; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            server.answer(self, json.loads(content))

        def do_GET(self) -> None:
            status(405)(self)

        do_DELETE = do_GET  # noqa: N815 - its base calls them so

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base names it
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.daemon_threads = True
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/mcp"
        finally:
            serving.shutdown()
            thread.join()


def error_of(code: int, message: str, number: object = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}, "id": number}


REFUSALS: dict[str, tuple[int, dict[str, Any] | str]] = {
    "404": (404, ""),
    "404 of FastMCP": (404, error_of(-32600, "Session not found", "server-error")),
    "404 under its own id": (404, error_of(-32001, "Session not found", "its own")),
    "400 of server-everything": (
        400,
        error_of(-32000, "Bad Request: No valid session ID provided"),
    ),
    "400 of a fresh transport": (400, error_of(-32000, "Bad Request: Server not initialized")),
    "400 in plain text": (400, "no such session"),
    "410": (410, "gone"),
    "401 of rmcp": (401, "Unauthorized: Session not found"),
}


def test_a_session_that_the_server_forgot_is_begun_anew_for_a_call(workspace):
    server = Forgetful(200, "", "tools/call")
    server.has_forgotten = True  # it has nobody to forget yet
    with forgetful(server) as url, workspace.sync() as rye:
        server_item(workspace, transport="http", url=url)
        ref = mcp_tool(workspace, runtime=HTTP)
        assert rye.execute(ref, {"text": "first"}).success
        for name, (server.code, server.body) in REFUSALS.items():
            server.has_forgotten = False
            done = rye.execute(ref, {"text": name})
            assert done.success, f"{name}: {done.error}"
    assert server.ran == ["first", *REFUSALS]
    assert server.sessions == 1 + 2 * len(REFUSALS)  # a forgotten one is counted by forgetting it


@pytest.mark.parametrize("name", [*REFUSALS] if IS_SOAK else ["404 of FastMCP", "401 of rmcp"])
def test_a_session_that_the_server_forgot_is_begun_anew_for_a_list(workspace, name):
    server = Forgetful(*REFUSALS[name], "tools/list")
    with forgetful(server) as url, workspace.sync() as rye:
        server_item(workspace, transport="http", url=url)
        ref = mcp_tool(workspace, runtime=HTTP)
        for said in ("one", "two"):
            done = rye.execute(ref, {"text": said})
            assert done.success, done.error
    assert server.ran == ["one", "two"]


def test_a_call_that_the_server_has_read_is_not_repeated(workspace):
    server = Forgetful(400, error_of(-32602, "I don't like it", "its own"), "tools/call")
    with forgetful(server) as url, workspace.sync() as rye:
        server_item(workspace, transport="http", url=url)
        done = rye.execute(mcp_tool(workspace, runtime=HTTP), {"text": "one"})
    assert "I don't like it" in done.error
    assert (server.sessions, server.ran) == (2, [])  # the second is counted by forgetting the first


# a server that refuses


@pytest.mark.parametrize(
    ("refusal", "way"),
    in_turn(
        [
            (401, {}, ['headers: {Authorization: "Bearer ${A_TOKEN}"}', "set A_TOKEN"]),
            (403, {}, ["env_config"]),
            (401, {"x-key": "${A_TOKEN}"}, ["(x-key)", "to credentials that it accepts"]),
            (403, {"x-key": "${A_TOKEN}"}, ["(x-key)", "with the rights for this"]),
        ],
        [("http", True), ("sse", False), ("sse", True), ("http", False)],
    ),
)
def test_a_server_that_wants_other_credentials_says_what_to_do(workspace, refusal, way):
    (code, headers, said), (transport, warm) = refusal, way
    workspace.environ["A_TOKEN"] = "hunter2-hunter2"
    with bad_server(status(code)) as url:
        item = {"transport": transport, "url": url, "headers": headers}
        server_item(workspace, env={"A_TOKEN": "${A_TOKEN}"}, **item)
        told = why(workspace, mcp_tool(workspace, runtime=HTTP, warm=warm))
    assert f"HTTP {code}" in told
    assert all(one in told for one in said)
    assert "hunter2" not in told


def test_credentials_that_end_during_a_session_are_told(workspace):
    server = Forgetful(401, "token expired", "tools/call")
    with forgetful(server) as url, workspace.sync() as rye:
        server_item(workspace, transport="http", url=url, headers={"x-key": "abcdef"})
        with pytest.raises(McpError, match=r"HTTP 401.*\(x-key\)"):
            rye.execute(mcp_tool(workspace, runtime=HTTP), {"text": "one"})
    assert server.ran == []


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_the_time_to_start_bounds_every_transport(workspace, transport):
    never = threading.Event()

    def hang(_: BaseHTTPRequestHandler) -> None:
        never.wait(30)

    with bad_server(hang) as url:
        server_item(workspace, transport=transport, url=url, startup_timeout=0.5)
        told = why(workspace, mcp_tool(workspace, runtime=HTTP))
        never.set()
    assert "was not ready within 0.5 s" in told


# a server that hangs


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("mode", "anyio_backend"), in_turn(["mute-once", "mute-once-and-tells"], ["asyncio", "trio"])
)
async def test_calls_that_were_not_sent_to_a_hung_server_go_to_a_fresh_one(
    workspace, mode, anyio_backend
):
    fifo = workspace.root / "called"
    os.mkfifo(fifo)
    stdio_server(workspace, mode, str(fifo))
    hang, echo, token, ends = mcp_tool(workspace, "hang"), mcp_tool(workspace), CancelToken(), {}

    async def call(name: str, ref: str, ctx: CallContext | None = None) -> None:
        try:
            done = await rye.execute(ref, {"text": name}, ctx=ctx)
            ends[name] = done.error or done.data["content"][0]["text"]
        except CallCancelled:
            ends[name] = "cancelled"

    async with workspace.open() as rye, anyio.create_task_group() as calls:
        calls.start_soon(call, "in flight", hang)
        await anyio.to_thread.run_sync(fifo.read_bytes)
        calls.start_soon(call, "muting", echo, CallContext(cancellation=token))
        await anyio.to_thread.run_sync(fifo.read_bytes)
        token.cancel()
        while "muting" not in ends:
            await anyio.wait_all_tasks_blocked()
            await anyio.sleep(0)
        for number in range(10):  # while the server is asked whether it answers
            calls.start_soon(call, str(number), echo)
        async with watch(workspace.root / "pids") as watcher:
            while len(pids(workspace)) < 4:
                await watcher.changed()
        for number in range(10, 20):  # and once another one has been started
            calls.start_soon(call, str(number), echo)
    assert ends.pop("muting") == "cancelled"
    told = ends.pop("in flight")
    assert "stopped answering after a call was cancelled" in told
    assert "may have had its effect" in told
    assert ends == {str(number): str(number) for number in range(20)}
    assert len(pids(workspace)) == 4  # two connectors, each with its server
    assert_gone(pids(workspace))


def test_a_server_that_hangs_is_replaced_after_a_call_timed_out(workspace):
    fifo = workspace.root / "called"
    stdio_server(workspace, "mute-once-and-tells", str(fifo), timeout=0.3)
    ref = mcp_tool(workspace)
    with workspace.sync() as rye:
        first = rye.execute(ref, {"text": "one"})
        assert "may have had its effect" in first.error
        assert rye.execute(ref, {"text": "two"}).success


# a server that speaks another version


STRICT = [-32600, -32022]
MORE_STRICT = [-32601, -32602, -32603, -32000, -32020]


@pytest.mark.parametrize("code", STRICT + (MORE_STRICT if IS_SOAK else []))
def test_a_strict_server_of_2026_is_called(workspace, code):
    stdio_server(workspace, f"strict {code}")
    assert workspace.execute(mcp_tool(workspace), {"text": "hi"}).data["content"][0]["text"] == "hi"


@pytest.mark.parametrize(
    ("server", "warm"),
    in_turn(
        [
            ("speaks-the-future", ["2099-01-01", "speaks one of MCP's versions 2024-11-05"]),
            ("strict exit", ["no 2026-07-28; then it "]),
        ],
        [True, False],
    ),
)
def test_a_server_of_no_known_version_says_which(workspace, server, warm):
    mode, said = server
    stdio_server(workspace, mode)
    told = why(workspace, mcp_tool(workspace, warm=warm))
    assert all(one in told for one in said), told
