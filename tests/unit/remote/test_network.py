"""A tool on a node over a network that fails: it runs once, or its caller is told why not."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ryecore.errors import RemoteError, RemoteUnavailable, RemoteUntrusted
from tests.proxy import Fault, Hold, Proxy
from tests.remotes import connect
from tests.served_node import ServedNode
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

NOTE = """
def execute(params, project_path):
    with open(params["log"], "a") as log:
        log.write("ran\\n")
    return {"text": params["text"]}
"""
STEPS = ("POST /snapshots", "POST /objects", "POST /execute")


@pytest.fixture
def proxy(node: ServedNode) -> Iterator[Proxy]:
    with Proxy(int(node.url.rpartition(":")[2])) as found:
        yield found


@pytest.fixture
def tool(workspace: Workspace, node: ServedNode, proxy: Proxy) -> str:
    connect(workspace, node, url=proxy.url, timeout_s=20)
    return workspace.python("acme/note", NOTE)


class Log:
    """What the tool has written: a line for each time that it ran."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self.parameters = {"log": str(self.path), "text": "high tide"}

    @property
    def runs(self) -> int:
        return self.path.read_text().count("ran") if self.path.exists() else 0


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(lose_request=True),
        Fault(cut_request_bytes=20),
        Fault(lose_answer=True),
        Fault(cut_answer_bytes=12),
        Fault(cut_answer_bytes=400),
        Fault(repeat=True),
        Fault(answer=b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"),
    ],
    ids=lambda fault: re.sub(r"\w+=(None|False),? ?", "", str(fault))[6:40],
)
async def test_a_fault_at_any_step_is_passed_and_the_tool_runs_once(
    workspace: Workspace, proxy: Proxy, tool: str, log: Log, step: str, fault: Fault
) -> None:
    proxy.fail(step, fault, times=2)
    async with workspace.open() as rye:
        done = await rye.execute(tool, log.parameters, target="remote:gpu")
    assert done.data == {"text": "high tide"}
    assert log.runs == 1
    assert proxy.count(step) >= 3


async def test_an_unchanged_project_takes_one_round_trip(
    workspace: Workspace, proxy: Proxy, tool: str, log: Log
) -> None:
    async with workspace.open() as rye:
        await rye.execute(tool, log.parameters, target="remote:gpu")
        before = len(proxy.requests)
        await rye.execute(tool, log.parameters, target="remote:gpu")
    assert [one.target for one in proxy.requests[before:]] == ["/execute"]


def unsigned(answer: bytes) -> bytes:
    return re.sub(rb"\r\nsignature[^\r]*", b"", answer, flags=re.IGNORECASE)


@pytest.mark.parametrize(
    "change",
    [
        unsigned,
        lambda answer: answer.replace(b"high tide", b"low  tide"),
        lambda answer: answer.replace(b" 200 ", b" 202 ", 1),
        lambda answer: answer.replace(b"rye=:", b"rye=:A", 1),
        lambda answer: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        lambda answer: b"HTTP/1.1 307 See\r\nLocation: /else\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["unsigned", "body", "status", "signature", "made up", "redirect"],
)  # fmt: skip
async def test_a_changed_answer_is_never_believed(
    workspace: Workspace, proxy: Proxy, tool: str, log: Log, change: object
) -> None:
    proxy.fail("POST /execute", Fault(change_answer=change), times=9)  # type: ignore[arg-type]
    async with workspace.open() as rye:
        with pytest.raises(RemoteUntrusted):
            await rye.execute(tool, log.parameters, target="remote:gpu")
        assert proxy.count("POST /execute") <= 2  # the first may say that the snapshot is missing


async def test_the_answer_to_an_earlier_request_is_never_believed(
    workspace: Workspace, proxy: Proxy, tool: str, log: Log
) -> None:
    """Also where both requests are the same, but for the time and the nonce."""
    kept: list[bytes] = []

    def keep(answer: bytes) -> bytes:
        kept.append(answer)
        return answer

    async with workspace.open() as rye:
        await rye.execute(tool, log.parameters, target="remote:gpu")
        proxy.fail("POST /execute", Fault(change_answer=keep))
        await rye.execute(tool, log.parameters, target="remote:gpu")
        proxy.fail("POST /execute", Fault(change_answer=lambda _: kept[0]))
        with pytest.raises(RemoteUntrusted):
            await rye.execute(tool, log.parameters, target="remote:gpu")


@pytest.mark.parametrize("step", STEPS)
async def test_a_changed_request_is_refused_by_the_node(
    workspace: Workspace, proxy: Proxy, tool: str, log: Log, step: str
) -> None:
    for change in (
        lambda head, body: (head, body.replace(b"a", b"b", 1)),
        lambda head, body: (head.replace(b"POST /", b"POST //", 1), body),
        lambda head, body: (head.replace(b"nonce", b"Nonce", 1), body),
    ):
        proxy.fail(step, Fault(change_request=change))
        async with workspace.open() as rye:
            with pytest.raises(RemoteError) as caught:
                await rye.execute(tool, log.parameters, target="remote:gpu")
        assert caught.value.problem in ("unauthorized", "not_found")
    assert log.runs == 0


async def test_a_network_that_is_gone_is_waited_for(
    workspace: Workspace, proxy: Proxy, tool: str, log: Log
) -> None:
    hold = Hold()
    proxy.fail("POST /execute", Fault(hold_answer=hold))

    def go_down() -> None:
        hold.reached()  # the tool has run; its answer is on the way
        with proxy.down():
            hold.release()
            for _ in range(3):
                proxy.wait_for_refusal()

    thread = threading.Thread(target=go_down)
    async with workspace.open() as rye:
        thread.start()
        done = await rye.execute(tool, log.parameters, target="remote:gpu")
    thread.join()
    assert (done.data, log.runs) == ({"text": "high tide"}, 1)


async def test_a_network_that_stays_away_is_said_clearly(
    workspace: Workspace, node: ServedNode, proxy: Proxy, tool: str, log: Log
) -> None:
    connect(workspace, node, url=proxy.url, timeout_s=1)
    async with workspace.open() as rye:
        with proxy.down(), pytest.raises(RemoteUnavailable, match="rye remote check gpu"):
            await rye.execute(tool, log.parameters, target="remote:gpu")
    assert log.runs == 0
