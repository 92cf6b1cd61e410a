"""A directive on a node that lies, or whose events and files are changed on their way."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest

from ryecore import SigningKey
from ryecore.errors import RemoteUntrusted
from ryecore.threads.result import ThreadResult
from tests.lying import lie, sign_again
from tests.proxy import Fault, Proxy
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def node(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    """A node with the scripted models."""
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as served:
        yield served


@pytest.fixture
def proxy(planned: PlannedWorkspace, node: ServedNode) -> Iterator[Proxy]:
    """A proxy in front of the node, which the workspace takes for the node."""
    with Proxy(urlsplit(node.url).port or 0) as opened:
        connect(planned.workspace, node, url=opened.url, timeout_s=5)
        yield opened


def stream(*events: bytes) -> Fault:
    """Return a fault that puts other events behind the head of a stream."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events) + b"0\r\n\r\n"

    def change(answer: bytes) -> bytes:
        return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + body

    return Fault(change_answer=change)


OTHER = SigningKey(bytes([9]) * 32)
DEEP = "[" * 900 + "]" * 900
EVENTS = (
    b"garbage",
    b"\xff\xfe\n\n",
    b"id: 1\nevent: tree\ndata: {\n\n",
    b"id: x\nevent: tree\ndata: {}\n\n",
    b"id: %s\nevent: tree\ndata: {}\n\n" % (b"9" * 5000),
    b"id: 99999999999999999999\nevent: tree\ndata: {}\n\n",
    b"id: 5\nevent: tree\ndata: []\n\n",
    b"id: 6\nevent: tree\ndata: " + json.dumps({"children": json.loads(DEEP)}).encode() + b"\n\n",
    b'id: 7\nevent: tree\ndata: {"item_id": "\\u001b[31m", "status": "running"}\n\n',
    b'id: 8\nevent: \x1b]0;owned\x07\ndata: {"status": "completed"}\n\n',
    b"id: 9\nevent: tree\ndata: " + b"x" * (2 * 2**20) + b"\n\n",
    b"data: " * 100_000,
)


async def test_no_event_disturbs_the_run_or_decides_its_end(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    ref = planned.write("work", ["mark", {"text": "there"}])
    end = b'id: 90\nevent: status\ndata: {"status": "error", "node_thread_id": "x"}\n\n'
    async with planned.workspace.open() as rye:
        for event in EVENTS:
            proxy.fail("GET /runs/.*/events", stream(event, end))
            done = await rye.execute(ref, thread="fork", target="remote:gpu")
            assert isinstance(done, ThreadResult)
            assert (done.status, done.error) == ("success", None), event
            assert (await rye.threads.show(done.thread_id)).status == "completed"
            tree = await rye.threads.tree(done.thread_id)
            assert tree.item_id == ref
    assert proxy.count("GET /runs/.*/events") >= len(EVENTS)


LIES: tuple[dict[str, object], ...] = (
    {"cost": {"spend": -5}},
    {"cost": {"spend": 1e300}},
    {"thread_id": "another"},
    {"request_sha256": "0" * 64},
    {"files": [{"name": "../../../key.pem", "sha256": "0" * 64, "size_bytes": 1}]},
)


async def test_a_report_that_lies_ends_the_run_charged_in_full(
    planned: PlannedWorkspace, node: ServedNode, proxy: Proxy
) -> None:
    ref = planned.write("work", ["mark", {"text": "there"}])
    told: list[tuple[SigningKey, dict[str, object]]] = []

    def tell(state: dict[str, object]) -> object:
        key, lies = told[-1]
        return sign_again(key, state, **lies) if state.get("report") else state

    fault = lie(node.identity.key, tell)
    proxy.fail("POST /execute|GET /runs/.*\\?wait_s", fault, times=1000)
    async with planned.workspace.open() as rye:
        for key, lies in (*((node.identity.key, one) for one in LIES), (OTHER, {})):
            told.append((key, lies))
            done = await rye.execute(
                ref, thread="fork", target="remote:gpu", limits={"spend": 0.01}
            )
            assert isinstance(done, ThreadResult)
            assert done.status == "error", lies
            assert done.error
            assert "didn't make it" not in done.error  # it is the report that is refused
            account = await rye.threads.account(done.thread_id)
            assert account.held.spend_microcents == 0
            assert account.own.spend_microcents == 1_000_000
            assert await rye.threads.list() == ()


async def test_a_file_that_is_changed_on_its_way_is_never_proved(
    planned: PlannedWorkspace, proxy: Proxy
) -> None:
    ref = planned.write("work", ["mark", {"text": "there"}])

    def change(answer: bytes) -> bytes:
        return re.sub(rb"there", rb"where", answer)

    proxy.fail("GET /objects/", Fault(change_answer=change), times=1000)
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", target="remote:gpu")
        assert isinstance(done, ThreadResult)
        assert (done.status, done.error) == ("success", None)
        assert not (await rye.threads.verify(done.thread_id)).ok


@pytest.mark.parametrize("name", ["..", "/etc", "a/../.."])
async def test_a_change_that_leads_out_of_the_project_ends_the_run(
    planned: PlannedWorkspace, node: ServedNode, proxy: Proxy, name: str
) -> None:
    await _check_changes(planned, node, proxy, [f"{name}/x"], is_believed=False)


async def test_changes_of_what_runs_by_itself_are_never_applied(
    planned: PlannedWorkspace, node: ServedNode, proxy: Proxy
) -> None:
    names = (
        ".git/hooks/x", "sub/.git/hooks/x", ".GIT/config", ".ai/tools/x", ".AI/tools/x",
        "sub/.ai/tools/x", "sub/.Ai/config/keys/trusted/x", ".ssh/config", "sub/.env",
        ".a\u034fi/tools/x", "\u1160.AI/x", ".g\ufe0fit/hooks/x", ".\u017fsh/x", "sub/.E\u034fNV",
    )  # fmt: skip
    await _check_changes(planned, node, proxy, names, is_believed=True)


async def _check_changes(
    planned: PlannedWorkspace,
    node: ServedNode,
    proxy: Proxy,
    names: Sequence[str],
    *,
    is_believed: bool,
) -> None:
    """Run a tool that writes a file, on a node that says it has written others, too."""
    workspace = planned.workspace
    ref = workspace.shell("acme/write", "echo made > made.txt")
    before = set(workspace.root.rglob("x"))

    def tell(state: dict[str, Any]) -> object:
        if not state.get("report"):
            return state
        (made,) = state["report"]["changes"]
        changes = [made, *({**made, "path": one, "executable": True} for one in names)]
        return sign_again(node.identity.key, state, changes=changes)

    fault = lie(node.identity.key, tell)
    proxy.fail("POST /execute|GET /runs/.*\\?wait_s", fault, times=1000)
    async with workspace.open() as rye:
        if is_believed:
            done = await rye.execute(ref, target="remote:gpu", pull=True)
            report = await rye.threads.pull(str(done.to_dict()["thread_id"]))
            assert (report.applied, report.changed) == (True, ("made.txt",))
            assert set(report.left_out) == set(names)
            assert (workspace.project / "made.txt").read_text() == "made\n"
        else:
            with pytest.raises(RemoteUntrusted, match="isn't one of the project"):
                await rye.execute(ref, target="remote:gpu", pull=True)
            (row,) = await rye.threads.list(all=True)
            assert row.status == "error"
    found = {path for path in workspace.root.rglob("x") if "spaces" not in path.parts}
    assert found == before
