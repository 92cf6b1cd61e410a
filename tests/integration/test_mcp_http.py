"""Tools of MCP servers that are reached over HTTP: the SDK's own servers, and bad ones."""

import gzip
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ryecore.errors import McpToolChanged
from ryecore.testing.ports import free_port
from tests.forking import ROOT, SERVERS, Forked
from tests.matrix import in_turn
from tests.mcp_items import HTTP, mcp_tool, server_item, why
from tests.npm import npm_set
from tests.unit.lillux.system import children
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")

TOKEN = "hunter2-hunter2"


@contextmanager
def sdk_server(kind: str, token: str = "", port: int = 0) -> Iterator[str]:
    """A server of the SDK in a process of its own; its URL."""
    process = Forked(
        ["tests.mcp_http_server", kind, str(port)],
        imported=SERVERS,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={"MCP_TEST_TOKEN": token},
    )
    try:
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.communicate()


def pinned(workspace: Workspace, rye, name: str = "echo", **config: object) -> str:
    """Pin a tool to what the server says of it now."""
    listed = rye.execute("tool:mcp/servers/test").raise_for_status().data["tools"]
    declared = next(one for one in listed if one["name"] == name)
    return mcp_tool(workspace, name, runtime=HTTP, declared=declared, **config)


@pytest.mark.parametrize("kind", ["http", "json", "stateless", "sse"])
def test_a_server_is_called(workspace: Workspace, kind: str):
    with sdk_server(kind) as url, workspace.sync() as rye:
        server_item(workspace, transport="sse" if kind == "sse" else "http", url=url)
        ref = pinned(workspace, rye)
        for said in ("hello", "again"):
            done = rye.execute(ref, {"text": said})
            assert done.data["content"] == [{"type": "text", "text": said}]
            assert done.metadata["pinned"] is True


def test_the_timeout_of_calls_ends_no_stream_that_is_merely_quiet(workspace: Workspace):
    before = children()
    with sdk_server("sse") as url, workspace.sync() as rye:
        server_item(workspace, transport="sse", url=url, timeout=1)
        ref = pinned(workspace, rye)
        assert rye.execute(ref, {"text": "one"}).success
        first = children() - before
        time.sleep(1.5)  # the quiet itself is what is tried
        assert rye.execute(ref, {"text": "two"}).success
        assert children() - before == first


def test_a_published_server_is_called(workspace: Workspace):
    package = npm_set("mcp") / "node_modules/@modelcontextprotocol/server-everything"
    process = subprocess.Popen(
        ["node", str(package / "dist/index.js"), "streamableHttp"],
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": workspace.environ["PATH"], "PORT": (port := str(free_port()))},
    )
    try:
        while "listening" not in (line := process.stderr.readline()).lower():
            assert line, "it ended"
        server_item(workspace, transport="http", url=f"http://127.0.0.1:{port}/mcp")
        with workspace.sync() as rye:
            ref = pinned(workspace, rye, "get-sum")
            assert "42" in rye.execute(ref, {"a": 40, "b": 2}).data["content"][0]["text"]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("warm", [True, False])
def test_the_secret_of_a_header_goes_to_the_server_alone(workspace: Workspace, warm: bool):
    workspace.environ["A_TOKEN"] = TOKEN
    item = {"transport": "http", "headers": {"Authorization": "Bearer ${A_TOKEN}"}}
    with sdk_server("http", TOKEN) as url, workspace.sync() as rye:
        server_item(workspace, env={"A_TOKEN": "${A_TOKEN}"}, url=url, **item)
        ref = pinned(workspace, rye, warm=warm)
        done = rye.execute(ref, {"text": "hi"}, trace=True)
        assert done.success
        assert TOKEN not in done.to_json()
        assert TOKEN not in rye.execute(ref, {"text": "hi"}, dry_run=True).to_json()
    workspace.environ["A_TOKEN"] = TOKEN + "-but-wrong"
    with sdk_server("http", TOKEN) as url:
        server_item(workspace, env={"A_TOKEN": "${A_TOKEN}"}, url=url, **item)
        told = why(workspace, ref)
        assert "401" in told
        assert TOKEN not in told


def test_a_tool_that_changes_on_the_server_is_refused(workspace: Workspace):
    with sdk_server("stateless") as url, workspace.sync() as rye:
        server_item(workspace, transport="http", url=url)
        ref, change = pinned(workspace, rye), pinned(workspace, rye, "change")
        assert rye.execute(ref, {"text": "hi"}).success
        assert rye.execute(change).success
        with pytest.raises(McpToolChanged, match="Says it to me"):
            rye.execute(ref, {"text": "hi"})


# bad servers

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def bad_server(answer: Answer) -> Iterator[str]:
    """A server that answers each request so; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            with suppress(OSError):  # the client had enough
                answer(self)
            self.close_connection = True

        do_GET = do_DELETE = do_POST  # noqa: N815 - its base calls them so

        def log_message(self, *said: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


def status(code: int) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        request.send_header("content-length", "0")
        request.end_headers()

    return answer


def body(content: bytes, kind: str = "application/json", **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("content-type", kind)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def endless(kind: str, first: bytes = b"") -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("content-type", kind)
        request.end_headers()
        request.wfile.write(first)
        while True:
            request.wfile.write(b"x" * 65536)

    return answer


NEVER = threading.Event()
ANSWERS: dict[str, tuple[Answer, str]] = {
    "401": (status(401), "HTTP 401"),
    "404": (status(404), "HTTP 404"),
    "500": (status(500), "HTTP 500"),
    "garbage": (body(b"what is this"), "parse"),
    "a page": (body(b"<html>", "text/html"), "content type"),
    "endless json": (endless("application/json"), "more than 15 MiB"),
    "endless event": (endless("text/event-stream", b"data: "), "an event of more than 15 MiB"),
    "compressed": (
        body(gzip.compress(b"{}"), content_encoding="gzip"),
        "answered in a compressed form",
    ),
    "never": (lambda _: NEVER.wait(20), "was not ready within"),  # type: ignore[dict-item, return-value]
}


@pytest.mark.parametrize(("name", "warm"), in_turn([*ANSWERS], [True, False]))
def test_a_bad_answer_is_an_error_that_says_so(workspace: Workspace, name: str, warm: bool):
    answer, said = ANSWERS[name]
    with bad_server(answer) as url:
        server_item(
            workspace, transport="http", url=url, startup_timeout=5 if name != "never" else 1
        )
        told = why(workspace, mcp_tool(workspace, runtime=HTTP, warm=warm))
        NEVER.set()
    NEVER.clear()
    assert said.lower() in told.lower()
    if said.startswith("HTTP"):
        assert told.count(said) == 1


def test_headers_do_not_follow_a_redirect_to_another_host(workspace: Workspace):
    workspace.environ["A_TOKEN"] = TOKEN
    seen: list[str] = []

    def other(request: BaseHTTPRequestHandler) -> None:
        seen.append(str(request.headers))
        status(200)(request)

    with bad_server(other) as elsewhere:

        def redirect(request: BaseHTTPRequestHandler) -> None:
            request.send_response(307)
            request.send_header("location", elsewhere)
            request.send_header("content-length", "0")
            request.end_headers()

        with bad_server(redirect) as url:
            server_item(
                workspace,
                env={"A_TOKEN": "${A_TOKEN}"},
                transport="http",
                url=url,
                headers={"x-token": "${A_TOKEN}"},
            )
            assert "redirect" in why(workspace, mcp_tool(workspace, runtime=HTTP)).lower()
    assert seen == []


def test_a_server_that_is_not_there_says_so(workspace: Workspace):
    server_item(
        workspace, transport="http", url=f"http://127.0.0.1:{free_port()}/mcp?key=a-secret-key"
    )
    told = why(workspace, mcp_tool(workspace, runtime=HTTP))
    assert "connect" in told.lower()
    assert "a-secret-key" not in told


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://example.org/", "not one of http or https"),
        ("https://ada:secret@example.org/", "holds a user's name"),
        ("https://", "not one of http or https"),
    ],
)
def test_a_url_that_may_not_be_used_is_refused(workspace: Workspace, url: str, said: str):
    server_item(workspace, transport="http", url=url)
    try:
        told = why(workspace, mcp_tool(workspace, runtime=HTTP))
    except Exception as error:
        told = str(error)
    assert said in told
    assert "ada:secret" not in told


def test_a_certificate_that_nobody_vouches_for_is_refused(workspace: Workspace, tmp_path: Path):
    import ssl

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server_item(workspace, transport="http", url=f"https://localhost:{server.server_port}/mcp")
        told = why(workspace, mcp_tool(workspace, runtime=HTTP))
        server.shutdown()
        thread.join()
    assert "certificate" in told.lower()
