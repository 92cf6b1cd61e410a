"""What the network loses, cuts and changes between an inline tool's caller and the node."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from ryecore.errors import (
    CallCancelled,
    InputError,
    ItemNotFound,
    RemoteError,
    RemoteUnavailable,
    RemoteUntrusted,
)
from ryecore.policy import CallContext, CancelToken
from tests.lying import lie
from tests.proxy import Fault, Hold, Proxy
from tests.remotes import connect, name_remote
from tests.served_node import ServedNode
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

COUNT = (
    "import os\n"
    "def execute(params, project_path):\n"
    "    with open(params['to'], 'a') as file:\n"
    "        file.write('x')\n"
    "    return os.path.getsize(params['to'])"
)


@pytest.fixture
def proxy(node: ServedNode) -> Iterator[Proxy]:
    """A proxy in front of the node."""
    with Proxy(urlsplit(node.url).port or 0) as opened:
        yield opened


@pytest.fixture
def counter(workspace: Workspace, node: ServedNode, proxy: Proxy, tmp_path: Path) -> Path:
    """The file that the tool `acme/count` of the workspace adds a byte to, on the node."""
    connect(workspace, node, url=proxy.url, timeout_s=5)
    workspace.python("acme/count", COUNT)
    return tmp_path / "counter"


BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\nConnection: close\r\n\r\nnginx"
BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(lose_request=True),
        Fault(lose_answer=True),
        Fault(repeat=True),
        Fault(cut_request_bytes=20),
        Fault(cut_answer_bytes=100),
        Fault(answer=BAD_GATEWAY),
        Fault(answer=BUSY),
    ],
    ids=str,
)
@pytest.mark.parametrize("request_line", ["POST /execute", "POST /snapshots", "POST /objects"])
async def test_a_tool_runs_exactly_once_whatever_the_network_loses(
    workspace: Workspace, proxy: Proxy, counter: Path, fault: Fault, request_line: str
) -> None:
    proxy.fail(request_line, fault)
    async with workspace.open() as rye:
        if request_line == "POST /execute":  # the one that starts the tool, not the first
            await rye.remotes.push()
        done = await rye.execute("tool:acme/count", {"to": str(counter)}, target="remote")
    assert done.data == 1
    assert counter.read_text() == "x"


@pytest.mark.both_loops
async def test_a_warm_call_is_one_request(
    workspace: Workspace, proxy: Proxy, counter: Path
) -> None:
    async with workspace.open() as rye:
        for expected in (1, 2):
            done = await rye.execute("tool:acme/count", {"to": str(counter)}, target="remote")
            assert done.data == expected
    sent = [f"{one.method} {one.target}" for one in proxy.requests]
    first = ["POST /execute", "POST /snapshots", "POST /objects", "POST /execute"]
    assert sent == [*first, "POST /execute"]


async def test_a_second_push_is_one_round_trip(
    workspace: Workspace, proxy: Proxy, counter: Path
) -> None:
    del counter
    async with workspace.open() as rye:
        assert (await rye.remotes.push()).files == 2
        before = len(proxy.requests)
        assert (await rye.remotes.push()).files == 0
        assert len(proxy.requests) == before + 1
        workspace.python("acme/more", COUNT)
        assert (await rye.remotes.push()).files == 1


async def test_a_node_that_is_gone_is_unavailable_with_a_next_step(
    workspace: Workspace, proxy: Proxy, counter: Path
) -> None:
    name = {"timeout_s": 1}
    async with workspace.open() as rye:
        remote = rye.remotes.list()[0]
        name_remote(workspace, proxy.url, remote.key, more=name)
        await rye.remotes.push()
        with proxy.down(), pytest.raises(RemoteUnavailable, match="rye remote check gpu") as gone:
            await rye.execute("tool:acme/count", {"to": str(counter)}, target="remote")
        assert gone.value.item_id == "tool:acme/count"
        assert proxy.count("POST /execute") == 0
        done = await rye.execute("tool:acme/count", {"to": str(counter)}, target="remote")
    assert done.data == 1


async def test_the_network_may_go_while_the_tool_runs(
    workspace: Workspace, proxy: Proxy, counter: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "go")
    ref = workspace.shell(
        "acme/wait",
        f"echo > {tmp_path}/begun; cat {tmp_path}/go; echo x >> {counter}; echo done",
    )
    results: list[object] = []
    async with workspace.open() as rye, anyio.create_task_group() as group:
        await rye.remotes.push()

        async def call() -> None:
            results.append((await rye.execute(ref, target="remote", timeout_s=60)).data)

        group.start_soon(call)
        await anyio.to_thread.run_sync((tmp_path / "begun").read_bytes)
        with proxy.down():
            pass
        await anyio.to_thread.run_sync((tmp_path / "go").write_text, "")
    assert "done" in str(results)
    assert counter.read_text() == "x\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer.replace(b'"status":"completed"', b'"status":"cancelled"'),
        lambda answer: answer.replace(b"200 OK", b"202 OK"),
        lambda answer: answer.replace(b"ignature: ", b"ignature-: "),
        lambda answer: answer.replace(b"rye=:", b"rye=:AAAA"),
        lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        lambda _: b"HTTP/1.1 401 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        lambda _: b"HTTP/1.1 302 Go\r\nLocation: http://x\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["status", "code", "no signature", "other signature", "unsigned", "401", "redirect"],
)
async def test_an_answer_that_the_node_did_not_sign_is_not_believed(
    workspace: Workspace, proxy: Proxy, counter: Path, change: object
) -> None:
    async with workspace.open() as rye:
        await rye.remotes.push()
        proxy.fail("POST /execute", Fault(change_answer=change))  # type: ignore[arg-type]
        with pytest.raises(RemoteUntrusted):
            await rye.execute("tool:acme/count", {"to": str(counter)}, target="remote")


async def test_an_answer_to_another_request_is_not_believed(
    workspace: Workspace, proxy: Proxy, counter: Path
) -> None:
    kept: list[bytes] = []

    def keep(answer: bytes) -> bytes:
        kept.append(answer)
        return kept[0]

    proxy.fail("POST /execute", Fault(change_answer=keep), times=2)
    async with workspace.open() as rye:
        await rye.remotes.push()
        call = {"to": str(counter)}
        assert (await rye.execute("tool:acme/count", call, target="remote")).data == 1
        with pytest.raises(RemoteUntrusted):
            await rye.execute("tool:acme/count", call, target="remote")


async def test_a_cancelled_call_is_stopped_on_the_node(
    workspace: Workspace, proxy: Proxy, counter: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "ended")
    script = f"trap 'echo > {tmp_path}/ended; exit' TERM; echo > {tmp_path}/begun; read < {counter}"
    os.mkfifo(counter)
    ref = workspace.shell("acme/wait", script)
    token = CancelToken()
    async with workspace.open() as rye:

        async def cancel() -> None:
            await anyio.to_thread.run_sync((tmp_path / "begun").read_bytes)
            token.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            with pytest.raises(CallCancelled):
                await rye.execute(ref, target="remote", ctx=CallContext(cancellation=token))
    assert proxy.count("POST /runs/[^/]+/cancel") == 1


async def test_a_call_ends_at_its_callers_deadline(
    workspace: Workspace, proxy: Proxy, counter: Path
) -> None:
    hold = Hold()
    async with workspace.open() as rye:
        await rye.remotes.push()
        proxy.fail("POST /execute", Fault(hold_request=hold))
        ctx = CallContext(deadline=time.monotonic() + 0.5)
        with pytest.raises(RemoteUnavailable):
            await rye.execute("tool:acme/count", {"to": str(counter)}, target="remote", ctx=ctx)
        hold.release()


async def test_a_tools_own_failure_and_errors_are_as_locally(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node)
    failing = workspace.shell("acme/fail", "echo oops >&2; exit 3")
    async with workspace.open() as rye:
        local, remote = [
            await rye.execute(failing, target=target) for target in ("local", "remote")
        ]
        assert (remote.status, remote.error) == (local.status, local.error)
        assert remote.data == local.data
        for target in ("local", "remote"):
            with pytest.raises(ItemNotFound, match="was not found") as missing:
                await rye.execute("tool:acme/fial", target=target)
            assert missing.value.similar == ("acme/fail",)
        changed = workspace.path("tools/acme/fail.sh")
        changed.write_text(changed.read_text() + "# changed\n")
        errors = []
        for target in ("local", "remote"):
            with pytest.raises(Exception) as refused:
                await rye.execute(failing, target=target)
            errors.append(type(refused.value))
        assert errors[0] is errors[1]


async def test_parameters_that_are_too_large_are_refused_before_they_are_sent(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node)
    ref = workspace.shell("acme/a", "true")
    async with workspace.open() as rye:
        with pytest.raises(InputError) as refused:
            await rye.execute(ref, {"x": "y" * (17 * 2**20)}, target="remote")
        assert "16,777,216" in str(refused.value)


SECRET = "hf_0123456789abcdefghij"


async def test_a_secret_travels_sealed_and_only_where_it_is_named_and_listed(
    workspace: Workspace, node: ServedNode, proxy: Proxy
) -> None:
    connect(workspace, node, url=proxy.url, secrets="[HF_TOKEN]")
    workspace.environ |= {"HF_TOKEN": SECRET, "OTHER_TOKEN": SECRET[::-1]}
    script = "echo ${HF_TOKEN:-none} ${OTHER_TOKEN:-none}"
    names = ("HF_TOKEN", "OTHER_TOKEN")
    naming = {"env": {name: f"${{{name}:-}}" for name in names}}
    workspace.shell("acme/named", script, env_config=naming)
    workspace.shell("acme/unnamed", script)
    (workspace.project / ".env").write_text("HF_TOKEN=other\n")
    async with workspace.open() as rye:
        named = await rye.execute("tool:acme/named", target="remote")
        unnamed = await rye.execute("tool:acme/unnamed", target="remote")
    assert SECRET in str(named.data)
    assert SECRET[::-1] not in str(named.data)
    assert SECRET not in str(unnamed.data)
    sent = b"".join(one.head + one.body for one in proxy.requests)
    assert SECRET.encode() not in sent
    assert SECRET[::-1].encode() not in sent
    assert proxy.count("GET /identity") == 1


async def test_a_long_tool_is_asked_for_until_it_ends(
    workspace: Workspace, proxy: Proxy, counter: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("ryecore.remote.calls.MAX_WAIT_S", 0.1)
    os.mkfifo(tmp_path / "go")
    ref = workspace.shell("acme/wait", f"cat {tmp_path}/go; echo x >> {counter}; echo done")
    results: list[Any] = []
    async with workspace.open() as rye, anyio.create_task_group() as group:

        async def call() -> None:
            results.append(await rye.execute(ref, target="remote", timeout_s=60))

        async def wait_for_polls(count: int) -> None:
            with anyio.fail_after(30):
                while proxy.count("GET /runs/") < count:
                    await anyio.sleep(0.01)

        group.start_soon(call)
        await wait_for_polls(2)
        with proxy.down():
            pass
        await wait_for_polls(4)
        await anyio.to_thread.run_sync((tmp_path / "go").write_text, "")
    (done,) = results
    assert done.success
    assert counter.read_text() == "x\n"
    assert proxy.count("POST /execute") == 2  # the first found that files were missing


async def test_a_node_that_forgot_a_run_is_not_asked_to_repeat_it(
    workspace: Workspace, proxy: Proxy, counter: Path, node: ServedNode, monkeypatch: Any
) -> None:
    monkeypatch.setattr("ryecore.remote.calls.MAX_WAIT_S", 0.1)
    ref = workspace.shell("acme/wait", f"echo x >> {counter}; read < {counter}.never")
    os.mkfifo(f"{counter}.never")
    async with workspace.open() as rye:
        await rye.remotes.push()
        forgotten = {"type": "not_found", "title": "No run.", "status": 404}
        proxy.fail("GET /runs/", lie(node.identity.key, lambda _: forgotten, status=404))
        with pytest.raises(RemoteError, match="Look at its effect"):
            await rye.execute(ref, target="remote", timeout_s=20)
    assert proxy.count("POST /execute") == 1


async def test_a_file_that_changes_on_the_way_travels_as_it_is_then(
    workspace: Workspace, node: ServedNode, proxy: Proxy
) -> None:
    connect(workspace, node, url=proxy.url, push='{include: ["data"]}')
    data = workspace.project / "data"
    data.write_text("one")
    ref = workspace.shell("acme/read", "cat data")
    hold = Hold()
    proxy.fail("POST /snapshots", Fault(hold_answer=hold))

    async def change() -> None:
        await anyio.to_thread.run_sync(hold.reached)
        data.write_text("two")
        hold.release()

    async with workspace.open() as rye, anyio.create_task_group() as group:
        group.start_soon(change)
        done = await rye.execute(ref, target="remote")
    assert "two" in str(done.data)


async def test_a_late_call_that_runs_in_place_of_a_newer_one_gives_the_result(
    workspace: Workspace, node: ServedNode, proxy: Proxy, counter: Path
) -> None:
    connect(workspace, node, url=proxy.url, push='{include: ["data"]}', timeout_s=20)
    data = workspace.project / "data"
    data.write_text("one")
    os.mkfifo(counter)
    ref = workspace.shell("acme/read", f"echo begun > {counter}; cat data")
    late, offered, pushing = Hold(), Hold(), Hold()
    # When it comes at last, its caller has hung up: the first of the two is read to its end.
    proxy.fail("POST /execute", Fault(hold_request=late, repeat=True))
    for hold in (offered, pushing):
        proxy.fail("POST /snapshots", Fault(hold_request=hold))

    async def change() -> None:
        await anyio.to_thread.run_sync(late.reached)
        proxy.cut()  # so that it is sent again
        await anyio.to_thread.run_sync(offered.reached)
        data.write_text("two")
        offered.release()
        await anyio.to_thread.run_sync(pushing.reached)  # for the new request
        data.write_text("one")
        await other.remotes.push()
        data.write_text("two")
        late.release()
        await anyio.to_thread.run_sync(counter.read_text)
        pushing.release()

    async with (
        workspace.open() as rye,
        workspace.open() as other,
        anyio.create_task_group() as group,
    ):
        group.start_soon(change)
        done = await rye.execute(ref, target="remote")
    assert "one" in str(done.data)


async def test_of_many_calls_at_once_one_pushes(
    workspace: Workspace, proxy: Proxy, counter: Path
) -> None:
    results: list[Any] = []
    async with workspace.open() as rye, anyio.create_task_group() as group:

        async def call() -> None:
            to = {"to": str(counter)}
            results.append(await rye.execute("tool:acme/count", to, target="remote"))

        for _ in range(8):
            group.start_soon(call)
    assert len(results) == 8
    assert counter.read_text() == "x" * 8
    assert proxy.count("POST /objects") == 1
