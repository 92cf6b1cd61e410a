"""`rye node serve` as a process: TLS, plain HTTP, signals, a second server, and a host's app."""

import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ryecore import SigningKey, __version__
from ryecore.display.sanitize import RyeWarning
from ryecore.errors import ConfigError, InputError
from ryecore.node import create_node_app, make_node, serve_node
from ryecore.node.identity import TlsFiles
from ryecore.remote.protocol.models import RunState, read_answer
from ryecore.remote.protocol.reports import read_report
from ryecore.serving import listen, load_tls, renew_tls, serve_app, url_of
from tests.certificates import make_certificates
from tests.graphs import graph
from tests.integration.test_graph_child_factories import WRITER, WRITING
from tests.node_host import snapshot_of
from tests.served_node import NodeClient, allow, client_of, served_node
from tests.thread_deps import DEPS, ROOT, furnish
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn's own loop."""
    return "asyncio"


async def _run_tool(client: NodeClient, workspace: Workspace, ref: str, thread_id: str) -> RunState:
    snapshot, objects = snapshot_of(workspace)
    await client.push(snapshot, *objects)
    answer = await client.post(
        "/execute",
        {
            "thread_id": thread_id,
            "item_id": ref,
            "parameters": {"name": "Ada"},
            "thread": "inline",
            "snapshot": snapshot.id,
            "ryecore": __version__,
            "wait_s": 30,
        },
    )
    assert answer.status_code in (200, 202), answer.text
    return read_answer(answer.json(), RunState)


async def test_a_signed_tool_runs_over_tls_and_its_report_is_signed(
    workspace: Workspace, tmp_path: Path
) -> None:
    ref = workspace.shell("acme/greet", "cat")
    tls = make_certificates(tmp_path)
    arguments = ["--tls-certificate", str(tls.certificate), "--tls-key", str(tls.key)]
    trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with served_node(tmp_path / "node", *arguments) as served:
        served.allow(workspace.key)
        async with client_of(served, workspace.key, verify=trusted) as client:
            state = await _run_tool(client, workspace, ref, "one")
            again = read_answer((await client.get("/runs/one")).json(), RunState)
        with pytest.raises(httpx2.TransportError):
            async with httpx2.AsyncClient() as plain:
                await plain.get(served.url.replace("https", "http") + "/health")
        async with client_of(served, workspace.key) as untrusting:
            with pytest.raises(httpx2.ConnectError):
                await untrusting.get("/status")

    assert served.url.startswith("https://127.0.0.1:")
    assert state.report is not None
    report = read_report(state.report, served.identity.key.public)
    assert (report.status, report.result["data"]) == ("completed", {"name": "Ada"})
    assert again == state


async def test_directives_and_graphs_use_the_models_of_the_node(
    workspace: Workspace, tmp_path: Path
) -> None:
    furnish(workspace)
    writing = graph(
        workspace, WRITING, agents=WRITER, state={"text": ""}, inputs={"x": {"type": "string"}}
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    reports = []
    with served_node(tmp_path / "node", "--deps", DEPS, environ=environ) as served:
        served.allow(workspace.key)
        async with client_of(served, workspace.key) as client:
            snapshot, objects = snapshot_of(workspace)
            await client.push(snapshot, *objects)
            for at, (ref, inputs) in enumerate(
                {"directive:acme/talk": {}, writing: {"x": "tides"}}.items()
            ):
                document = {
                    "thread_id": str(at), "item_id": ref, "parameters": inputs,
                    "thread": "inline" if ref == writing else "fork", "snapshot": snapshot.id,
                    "ryecore": __version__, "wait_s": 30,
                }  # fmt: skip
                answer = read_answer((await client.post("/execute", document)).json(), RunState)
                assert answer.report is not None
                reports.append(read_report(answer.report, served.identity.key.public))

    assert [one.status for one in reports] == ["completed", "completed"], reports
    assert "I was told: Write of tides." in str(reports[1].result)
    assert [one.name for one in reports[0].files] != []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "node.example"])
async def test_plain_http_beyond_this_machine_has_to_be_named(tmp_path: Path, host: str) -> None:
    make_node(tmp_path)

    with pytest.raises(InputError, match="--insecure-http"):
        await serve_node(tmp_path, host=host, port=0)


async def test_plain_http_behind_a_proxy_can_be_named(tmp_path: Path) -> None:
    with served_node(tmp_path / "node", "--host", "0.0.0.0", "--insecure-http") as served:
        async with httpx2.AsyncClient() as web:
            url = served.url.replace("0.0.0.0", "127.0.0.1")
            assert (await web.get(f"{url}/health")).status_code == 200


async def test_files_of_tls_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    make_node(tmp_path / "node")
    tls = make_certificates(tmp_path)

    with pytest.raises(ConfigError, match="TLS can't be used"):
        await serve_node(tmp_path / "node", port=0, tls=TlsFiles(tmp_path / "ca.pem", tls.key))


async def test_one_process_serves_a_node(tmp_path: Path) -> None:
    with (
        served_node(tmp_path / "node") as served,
        pytest.raises(ConfigError, match=f"process {served.process.pid}"),
    ):
        await serve_node(tmp_path / "node", port=0)
    # A killed one leaves no lock.
    with served_node(tmp_path / "node"):
        pass


async def test_a_nonce_stays_used_when_the_node_was_killed(tmp_path: Path) -> None:
    key = SigningKey.generate()
    with served_node(tmp_path / "node") as served:
        served.allow(key)
        port = served.url.rpartition(":")[2]
        async with client_of(served, key) as client:
            signed = client.sign("GET", "/status")
            first = await client.web.get("/status", headers=signed)
    with served_node(tmp_path / "node", "--port", port) as served:
        async with client_of(served, key) as client:
            again = await client.web.get("/status", headers=signed)

    assert (first.status_code, again.json()["type"]) == (200, "replayed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_node_and_its_tools(
    workspace: Workspace, tmp_path: Path, number: signal.Signals
) -> None:
    fifo, states = tmp_path / "fifo", list[RunState]()
    ref = workspace.shell("acme/wait", f"echo $$ > {fifo}; sleep 600")

    os.mkfifo(fifo)
    with served_node(tmp_path / "node", settings="port: 0\nshutdown_s: 0\n") as served:
        served.allow(workspace.key)
        async with client_of(served, workspace.key) as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                states.append(await _run_tool(client, workspace, ref, "waits"))

            tasks.start_soon(call)
            pid = int(await anyio.to_thread.run_sync(fifo.read_text))
            served.process.send_signal(number)
            code = await anyio.to_thread.run_sync(served.process.wait)

        assert served.process.stderr is not None
        said = served.process.stderr.read().decode()
    assert said == f"ryecore ends the node: {number.name} came\n"
    assert code == 0
    assert [one.status for one in states] == ["running"]  # the next start says how it ended
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("is_impatient", [False, True])
async def test_a_running_tool_may_end_before_the_node_does(
    workspace: Workspace, tmp_path: Path, is_impatient: bool
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    ref = workspace.shell("acme/wait", f"echo > {begun}; cat {go_on} > /dev/null; echo '{{}}'")
    states: list[RunState] = []
    with served_node(tmp_path / "node", settings="port: 0\nshutdown_s: 3600\n") as served:
        served.allow(workspace.key)
        async with client_of(served, workspace.key) as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                states.append(await _run_tool(client, workspace, ref, "waits"))

            tasks.start_soon(call)
            await anyio.to_thread.run_sync(begun.read_text)
            served.process.terminate()
            while (await client.get("/status")).json()["is_accepting"]:
                pass
            refused = await client.post(
                "/execute",
                {
                    "thread_id": "late", "item_id": ref, "parameters": {}, "thread": "inline",
                    "snapshot": "ab" * 32, "ryecore": __version__,
                },
            )  # fmt: skip
            if is_impatient:
                served.process.terminate()
            else:
                await anyio.to_thread.run_sync(go_on.write_text, "")
            code = await anyio.to_thread.run_sync(served.process.wait)

    assert (refused.status_code, refused.json()["type"]) == (503, "busy")
    assert "retry-after" in refused.headers
    assert code == 0
    assert [one.status for one in states] == ["running" if is_impatient else "completed"]


@asynccontextmanager
async def _mounted(folder: Path) -> AsyncIterator[str]:
    """Serve a host's application with a node in it."""
    node = create_node_app(folder)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with node.router.lifespan_context(node):
            yield

    async def own(_: object) -> PlainTextResponse:
        return PlainTextResponse("the host's own")

    routes = [Route("/", own), Mount("/tools/node", node)]
    listening, ready = listen("127.0.0.1", 0), anyio.Event()
    async with anyio.create_task_group() as tasks:
        host = Starlette(routes=routes, lifespan=lifespan)
        async with host.router.lifespan_context(host):
            tasks.start_soon(
                lambda: serve_app(host, listening, runs_lifespan=False, announce=ready.set)
            )
            await ready.wait()
            yield url_of(listening, "127.0.0.1")
            tasks.cancel_scope.cancel()


async def test_a_node_is_mounted_in_a_hosts_application(
    workspace: Workspace, tmp_path: Path
) -> None:
    ref = workspace.shell("acme/greet", "cat")
    identity = make_node(tmp_path / "node")
    allow(identity, workspace.key)
    async with (
        _mounted(tmp_path / "node") as url,
        httpx2.AsyncClient(base_url=f"{url}/tools/node", timeout=30) as web,
    ):
        assert (await web.get(url)).text == "the host's own"
        assert (await web.get("/health")).json() == {"status": "ok"}
        client = NodeClient(identity, workspace.key, web)
        state = await _run_tool(client, workspace, ref, "mounted/one")

    assert state.status == "completed"


async def test_a_hosts_middleware_sees_each_request_of_a_node(tmp_path: Path) -> None:
    make_node(tmp_path)
    node, seen = create_node_app(tmp_path), list[str]()

    class Watching:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(scope["path"])
            await self.app(scope, receive, send)

    node.add_middleware(Watching)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(node), base_url="http://node"
    ) as web:
        answers = [await web.post(path) for path in ("/execute", "/snapshots", "/none")]

    assert seen == ["/execute", "/snapshots", "/none"]
    assert [one.status_code for one in answers] == [503, 503, 404]


async def test_a_node_whose_lifespan_was_not_run_says_so(tmp_path: Path) -> None:
    make_node(tmp_path)
    transport = httpx2.ASGITransport(create_node_app(tmp_path))
    async with httpx2.AsyncClient(transport=transport, base_url="http://node") as web:
        answer = await web.get("/status")

    assert (answer.status_code, answer.json()["type"]) == (503, "busy")
    assert "lifespan" in answer.json()["next_step"]


def test_a_node_without_the_extra_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; sys.modules['uvicorn'] = None\n"
        "from ryecore.cli import main; sys.argv = ['rye', 'node', 'serve']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "pip install 'ryecore[server]'" in done.stderr


def test_nothing_of_the_server_is_imported_before_it_is_used() -> None:
    program = (
        "import sys, ryecore.node, ryecore.cli.node\n"
        "print([name for name in ('uvicorn', 'starlette', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == "[]", done.stderr


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    context = load_tls(tls.certificate, tls.key)
    first, authority = tls.certificate.read_text(), (tmp_path / "ca.pem").read_text()
    listening, ready = listen("127.0.0.1", 0), anyio.Event()
    port = listening.getsockname()[1]

    async def served() -> str:
        address = ("127.0.0.1", port)
        return await anyio.to_thread.run_sync(ssl.get_server_certificate, address)

    async def until(certificate: str) -> None:
        with anyio.fail_after(30):
            while (await served()).split() != certificate.split():
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            partial(serve_app, Starlette(), listening, tls=context, announce=ready.set)
        )
        tasks.start_soon(partial(renew_tls, context, tls.certificate, tls.key, each_s=0.01))
        await ready.wait()
        await until(first)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", RyeWarning)
            tls.certificate.write_text(authority)  # whose key is another one
            with anyio.fail_after(30):
                while not warned:
                    await served()
        assert "isn't used" in str(warned[0].message)
        assert (await served()).split() == first.split()
        make_certificates(tmp_path)
        await until(tls.certificate.read_text())
        tasks.cancel_scope.cancel()


async def test_connections_beyond_the_most_are_closed_at_once() -> None:
    listening, ready = listen("127.0.0.1", 0), anyio.Event()
    address = listening.getsockname()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            partial(serve_app, Starlette(), listening, max_connections=3, announce=ready.set)
        )
        await ready.wait()
        with ExitStack() as opened:
            silent = [await anyio.connect_tcp(*address) for _ in range(3 + 64)]
            for one in silent:
                opened.callback(one._transport.abort)  # type: ignore[attr-defined]
            for _ in range(3):
                async with await anyio.connect_tcp(*address) as further:
                    with pytest.raises(anyio.EndOfStream):
                        await further.receive()
            await silent[0].send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert (await silent[0].receive()).startswith(b"HTTP/1.1 503 ")
        tasks.cancel_scope.cancel()


async def test_a_node_without_a_free_descriptor_logs_one_line(tmp_path: Path) -> None:
    with served_node(tmp_path / "node") as served, ExitStack() as opened:
        pid, address = served.process.pid, urlsplit(served.url)
        held = len(os.listdir(f"/proc/{pid}/fd"))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (held + 2, hard))
        for _ in range(20):
            opened.enter_context(socket.create_connection((address.hostname, address.port)))
        assert served.process.stderr is not None
        lines = [b""]
        while not lines[-1].startswith(b"Connections"):  # upkeep may lack descriptors, too
            lines.append(await anyio.to_thread.run_sync(served.process.stderr.readline))
            assert lines[-1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        served.process.terminate()
        rest = await anyio.to_thread.run_sync(served.process.stderr.read)

    output = b"".join(lines) + rest
    assert output.count(b"Connections can't be taken: This process has too many open files.") == 1
    assert b"ryecore ends the node: SIGTERM came\n" in rest
    assert b"Traceback" not in output


async def test_a_verbose_node_says_why_a_request_was_refused(tmp_path: Path) -> None:
    key = SigningKey.generate()
    with served_node(tmp_path / "node", "--verbose") as served:
        async with client_of(served, key) as client:
            await client.get("/objects/%1b%5d0")
        served.process.terminate()
        assert served.process.stderr is not None
        log = served.process.stderr.read().decode()

    assert log.isprintable() or log.replace("\n", "").isprintable()
    assert f"no caller has the key {key.public.fingerprint}" in log
