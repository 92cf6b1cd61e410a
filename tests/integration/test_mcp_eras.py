"""Both eras of the protocol over HTTP: which one is spoken, and what each request then carries."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ryecore.errors import McpError
from tests.integration.test_mcp_http import pinned
from tests.mcp_items import server_item
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

REGION = {"type": "string", "x-mcp-header": "Region"}
COUNT = {"type": "integer"}
UNFIT = {"type": "number", "x-mcp-header": "N"}
TOOLS = [
    {
        "name": "echo",
        "inputSchema": {"type": "object", "properties": {"region": REGION, "n": COUNT}},
    },
    {"name": "bad", "inputSchema": {"type": "object", "properties": {"n": UNFIT}}},
]
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
SAID = {"content": [{"type": "text", "text": "said"}]}

Answer = Callable[[str, dict[str, Any]], dict[str, Any] | int | None]


class Recorder:
    """What a server was sent: the method, the headers and the message of each request."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.url = ""

    def of(self, method: str) -> tuple[dict[str, str], dict[str, Any]]:
        return next((headers, message) for one, headers, message in self.seen if one == method)


@contextmanager
def http_server(answer: Answer) -> Iterator[Recorder]:
    """A server whose results `answer` gives by method and message; None refuses with HTTP 400.

    A number is another HTTP status that refuses; 0 closes the connection instead. What has `error`
    alone is an error response.
    """
    recorder = Recorder(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            recorder.seen.append((message["method"], headers, message))
            if "id" not in message:
                return self.reply(202, b"")
            result = recorder.answer(message["method"], message)
            if result == 0:
                self.close_connection = True
                return None
            if isinstance(result, int):
                return self.reply(result, b"")
            if result is None:
                return self.reply(400, b"what is this?", "text/plain")
            told = result if result.keys() == {"error"} else {"result": result}
            document = {"jsonrpc": "2.0", "id": message["id"], **told}
            return self.reply(200, json.dumps(document).encode())

        def do_GET(self) -> None:
            self.reply(405, b"")

        def do_DELETE(self) -> None:
            self.reply(405, b"")

        def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        recorder.url = f"http://127.0.0.1:{server.server_port}/mcp"
        try:
            yield recorder
        finally:
            server.shutdown()


def modern(method: str, message: dict[str, Any]) -> dict[str, Any] | None:
    meta = message["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    match method:
        case "server/discover":
            return MODERN | DISCOVERED
        case "tools/list":
            return MODERN | {"tools": TOOLS}
        case "tools/call":
            return MODERN | SAID
    return None


def legacy(method: str, message: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            told = {"name": "old", "version": "1"}
            return {"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": told}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return SAID
    return None


def test_a_server_of_2026_gets_its_headers_and_the_metadata_with_each_request(
    workspace: Workspace,
) -> None:
    with http_server(modern) as server, workspace.sync() as rye:
        server_item(workspace, transport="http", url=server.url)
        assert rye.execute(pinned(workspace, rye), {"region": "süd", "n": 3}).success
        assert {method for method, _, _ in server.seen} == {
            "server/discover", "tools/list", "tools/call",
        }  # fmt: skip
        headers, message = server.of("tools/call")
        assert headers["mcp-protocol-version"] == "2026-07-28"
        assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "echo")
        assert headers["mcp-param-region"] == "=?base64?c8O8ZA==?="
        assert "mcp-param-n" not in headers
        assert message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] == "ryecore"


def test_a_tool_of_2026_whose_headers_are_invalid_is_left_out(workspace: Workspace) -> None:
    with http_server(modern) as server, workspace.sync() as rye:
        server_item(workspace, transport="http", url=server.url)
        listed = rye.execute("tool:mcp/servers/test").data["tools"]
        assert [one["name"] for one in listed] == ["echo"]


def test_a_server_of_before_is_initialized_once_it_has_refused_to_be_discovered(
    workspace: Workspace,
) -> None:
    with http_server(legacy) as server, workspace.sync() as rye:
        server_item(workspace, transport="http", url=server.url)
        assert rye.execute(pinned(workspace, rye), {"region": "x"}).success
        assert [method for method, _, _ in server.seen][:3] == [
            "server/discover", "initialize", "notifications/initialized",
        ]  # fmt: skip
        headers, message = server.of("tools/call")
        assert headers["mcp-protocol-version"] == "2025-03-26"
        assert "_meta" not in message["params"]


def test_the_error_of_a_server_that_speaks_neither_quotes_both_refusals(
    workspace: Workspace,
) -> None:
    with http_server(lambda *_: None) as server, workspace.sync() as rye:
        server_item(workspace, transport="http", url=server.url)
        with pytest.raises(McpError, match="HTTP 400"):
            rye.execute("tool:mcp/servers/test")
        assert [method for method, _, _ in server.seen] == ["server/discover", "initialize"]


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_a_call_whose_connection_breaks_off_may_have_had_its_effect(
    workspace: Workspace, warm: bool
) -> None:
    def break_off(method: str, message: dict[str, Any]) -> dict[str, Any] | int | None:
        return 0 if method == "tools/call" else modern(method, message)

    with http_server(break_off) as server, workspace.sync() as rye:
        server_item(workspace, transport="http", url=server.url)
        done = rye.execute(pinned(workspace, rye, warm=warm))
    assert done.effect_unknown
    assert "broke off" in str(done.error)


def test_a_refusal_is_quoted_once_however_often_it_came(workspace: Workspace) -> None:
    def refuse(method: str, message: dict[str, Any]) -> dict[str, Any] | int | None:
        return 401 if method == "tools/call" else modern(method, message)

    with http_server(refuse) as server, workspace.sync() as rye:
        server_item(workspace, transport="http", url=server.url)
        ref = pinned(workspace, rye)
        for _ in range(2):
            with pytest.raises(McpError) as refused:
                rye.execute(ref)
            assert refused.value.message == (
                "The MCP server 'mcp/servers/test' refused the call with HTTP 401."
            )
            assert "rye mcp login mcp/servers/test" in refused.value.next_step
