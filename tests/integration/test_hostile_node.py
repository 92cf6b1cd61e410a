"""A node that its user trusts with a run lies about it, and about everything else."""

import gzip
import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import SigningKey
from ryecore.errors import RemoteError, RemoteUnavailable, RemoteUntrusted
from ryecore.policy import CallContext
from ryecore.remote.config import Remote, RemoteEntry
from ryecore.remote.connection import ConnectedNode
from ryecore.state.records import canonical_json
from tests.lying_node import Answer, LyingNode, lying_node, sign_again
from tests.matrix import IS_SOAK
from tests.remotes import name_remote
from tests.served_node import ServedNode, served_node
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
STRANGER = SigningKey.generate()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    folder = tmp_path_factory.mktemp("operator") / "node"
    with served_node(folder, settings="port: 0\nmin_free_bytes: 0\n") as node:
        yield node


@pytest.fixture
def node(served: ServedNode, workspace: Workspace) -> Iterator[LyingNode]:
    """A node that the workspace names `gpu`, and whose tool `acme/hi` it may run there."""
    served.allow(workspace.key)
    workspace.shell("acme/hi", 'echo \'{"said": "hi"}\'')
    with lying_node(served) as lying:
        name_remote(workspace, lying.url, served.identity.key.public, more={"timeout_s": 2})
        yield lying


async def _run(workspace: Workspace, deadline_s: float = 20.0) -> Any:
    ctx = CallContext(deadline=time.monotonic() + deadline_s)
    async with workspace.open() as rye:
        return await rye.execute("tool:acme/hi", target="remote:gpu", ctx=ctx)


def _but_report(**changes: Any) -> Callable[[Any, SigningKey], Any]:
    return lambda state, key: state | {"report": sign_again(state["report"], key, **changes)}


@pytest.mark.parametrize(
    "lie",
    [
        lambda state, key: state | {"report": sign_again(state["report"], STRANGER)},
        lambda state, key: state | {"report": {**state["report"], "status": "error"}},
        lambda state, key: state | {"thread_id": "another"},
        lambda state, key: state | {"report": None},
        lambda state, key: state | {"status": "running"},
        lambda state, key: state | {"status": "sideways"},
        lambda state, key: [],
        lambda state, key: None,
        _but_report(thread_id="another"),
        _but_report(item_id="tool:acme/other"),
        _but_report(caller="0123456789abcdef"),
        _but_report(node="0123456789abcdef"),
        _but_report(snapshot="ab" * 32),
        _but_report(request_sha256="ab" * 32),
        _but_report(status="sideways"),
        _but_report(status="running"),
        _but_report(result=None),
        _but_report(result={}),
        _but_report(result={"status": "success", "item_id": 5}),
        _but_report(result={"status": "success", "item_id": "x", "chain_elements": 5}),
        _but_report(result={"status": "success", "item_id": "x", "metadata": []}),
        _but_report(cost=None),
        _but_report(cost={"turns": 1, "input_tokens": 1, "output_tokens": 1, "spend": -5}),
    ],
)
async def test_a_report_that_is_not_of_this_run_is_not_believed(
    workspace: Workspace, node: LyingNode, lie: Callable[[Any, SigningKey], Any]
) -> None:
    key = node.served.identity.key
    node.change("POST /execute", lambda state: lie(state, key))

    with pytest.raises(RemoteUntrusted):
        await _run(workspace)


async def test_the_report_of_an_earlier_run_is_not_believed(
    workspace: Workspace, node: LyingNode
) -> None:
    seen: list[Any] = []
    node.change("POST /execute", lambda state: seen.append(state) or state)
    await _run(workspace)

    node.change("POST /execute", lambda state: seen[0] | {"thread_id": state["thread_id"]})
    with pytest.raises(RemoteUntrusted, match="another run"):
        await _run(workspace)


async def test_an_answer_of_another_key_is_not_believed(
    workspace: Workspace, node: LyingNode
) -> None:
    node.answer("POST /execute", lambda answer: answer.send(b"{}", key=STRANGER))
    with pytest.raises(RemoteUntrusted, match="not signed by the key"):
        await _run(workspace)

    node.answer("POST /execute", lambda answer: answer.begin(200, {"Content-Length": "0"}))
    with pytest.raises(RemoteUntrusted):
        await _run(workspace)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_request_follows_a_redirect(
    workspace: Workspace, node: LyingNode, served: ServedNode, status: int
) -> None:
    with lying_node(served) as elsewhere:
        node.answer(
            "POST /*", lambda answer: answer.send(b"", status, Location=f"{elsewhere.url}/execute")
        )
        with pytest.raises(RemoteError):
            await _run(workspace)
        assert elsewhere.requests == []


def _endless(answer: Answer) -> None:
    answer.begin(200, {"Transfer-Encoding": "chunked"})
    while True:
        answer.write(b"100000\r\n" + b" " * 2**20 + b"\r\n")


def _huge(answer: Answer) -> None:
    answer.begin(200, {"Content-Length": str(10**12)})
    while True:
        answer.write(b" " * 2**20)


def _bomb(answer: Answer) -> None:
    answer.send(gzip.compress(b" " * 500_000_000, 1), Content_Encoding="gzip")


def _headers(answer: Answer) -> None:
    answer.begin(200, {f"X-{number}": "x" * 1000 for number in range(20_000)})


def _interim(answer: Answer) -> None:
    while True:
        answer.write(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * 1000)


def _drip(answer: Answer) -> None:
    answer.begin(200, {"Content-Length": "1000000"})
    with suppress(OSError):
        while True:
            answer.write(b" ")
            threading.Event().wait(0.2)


def _deep(answer: Answer) -> None:
    answer.send(b'{"report":' * 100_000 + b"1" + b"}" * 100_000)


def _many(answer: Answer) -> None:
    answer.send(b'{"thread_id": [' + b"[]," * 5_000_000 + b"[]]}")


def _number(answer: Answer) -> None:
    answer.send(b'{"thread_id": ' + b"9" * 1_000_000 + b"}")


def _text(answer: Answer) -> None:
    answer.send(b"\xff\xfe{}")


@pytest.mark.parametrize(
    "write",
    [_endless, _huge, _bomb, _headers, _interim, _drip, _deep, _many, _number, _text],
    ids=lambda one: one.__name__[1:],
)
async def test_an_answer_that_is_meant_to_harm_is_bounded(
    workspace: Workspace, node: LyingNode, write: Callable[[Answer], None]
) -> None:
    node.answer("POST /execute", write)
    before = _peak_kib()
    began = time.monotonic()

    with pytest.raises((RemoteUntrusted, RemoteUnavailable)) as caught:
        await _run(workspace, 6.0 if IS_SOAK else 2.5)

    assert time.monotonic() - began < 25
    assert "POST /execute" in node.requests
    assert _peak_kib() - before < 700_000
    assert len(str(caught.value)) < 3000


def _peak_kib() -> int:
    with open("/proc/self/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmHWM")))


async def test_an_object_that_comes_drop_by_drop_is_not_awaited_for_ever(
    workspace: Workspace, node: LyingNode, tmp_path: Path
) -> None:
    def drip(answer: Answer) -> None:
        answer.send(b"", stream=True)
        while True:
            answer.write(b"x")
            threading.Event().wait(0.1)

    node.answer("GET /objects/*", drip)
    entry = RemoteEntry(node.url, node.served.identity.key.public, timeout_s=1)
    remote = ConnectedNode(Remote("gpu", entry), lambda: workspace.key, _unused, _unused)
    with anyio.fail_after(20), pytest.raises(RemoteUnavailable, match="1,000 bytes"):
        await remote.read_object("ab" * 32, 1000, tmp_path / "object")
    await remote.aclose()
    assert (tmp_path / "object").stat().st_size < 1000


def _unused(*_: object) -> Any:
    raise AssertionError("nothing is pushed")


async def test_a_run_that_never_ends_is_not_asked_for_all_the_time(
    workspace: Workspace, node: LyingNode
) -> None:
    def running(answer: Answer) -> None:
        body = json.loads(answer.body or b"{}")
        running.id = body.get("thread_id", getattr(running, "id", ""))  # type: ignore[attr-defined]
        document = {"thread_id": running.id, "status": "running"}  # type: ignore[attr-defined]
        answer.send(json.dumps(document).encode(), 202)

    node.answer("POST /execute", running)
    node.answer("GET /runs/*", running)
    with pytest.raises(RemoteUnavailable, match="whether it had its effect is unknown"):
        await _run(workspace, 3.0)

    asked = [one for one in node.requests if one.startswith("GET /runs/")]
    assert len(asked) < 40


async def test_a_push_that_gets_nowhere_ends(workspace: Workspace, node: LyingNode) -> None:
    turns, lost = iter(range(10**9)), set[str]()

    def missing(answer: Answer) -> None:
        files = json.loads(answer.body)["files"]
        lost.update(one["sha256"] for one in files if one["size_bytes"])
        document = {"snapshot": hashlib.sha256(canonical_json(json.loads(answer.body))).hexdigest()}
        document |= {"missing": [{"sha256": one, "have_bytes": 0} for one in sorted(lost)]}
        answer.send(json.dumps(document).encode())

    def never(_: Any) -> Any:
        have = (next(turns) + 1) % 2
        return {
            "stored": [],
            "partial": [{"sha256": one, "have_bytes": have} for one in sorted(lost)],
        }

    node.answer("POST /snapshots", missing)
    node.change("POST /objects", never)
    async with workspace.open() as rye:
        with anyio.fail_after(20), pytest.raises(RemoteError):
            await rye.remotes.push()
    assert 2 < len(node.requests) < 100


def _prints_plain_text(workspace: Workspace, most: int, *arguments: str) -> None:
    """See that a command prints something, without escapes, to people and as JSON.

    Args:
        workspace: Where it runs.
        most: It prints fewer characters than these, to each of its streams.
        arguments: The command of `rye`.
    """
    for more in ((), ("--json",)):
        ran = PlannedWorkspace(workspace).fork(
            "ryecore.cli", *arguments, *more, "--project", str(workspace.project),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = ran.communicate()
        for text in (out.decode(), err.decode()):
            assert not set(text) & set("\x1b\x07\x9b\u202e"), text
            assert "Traceback" not in text
            assert len(text) < most
        assert out or err


@pytest.mark.parametrize("what", ["problem", "error", "data"])
def test_no_text_of_a_node_steers_a_terminal(
    workspace: Workspace, node: LyingNode, what: str
) -> None:
    key = node.served.identity.key

    def refuse(answer: Answer) -> None:
        problem = {
            "type": "forbidden", "title": ESCAPES, "status": 403, "detail": ESCAPES * 500,
            "next_step": ESCAPES,
        }  # fmt: skip
        answer.send(json.dumps(problem).encode(), 403)

    def lie(state: Any) -> Any:
        failed = {"status": "error", "error": ESCAPES, "item_id": "tool:acme/hi"}
        failed |= {"error_type": "process", "next_step": ESCAPES}
        done = {"status": "success", "item_id": ESCAPES, "data": {"said": ESCAPES}}
        result = failed if what == "error" else done
        status = "error" if what == "error" else "completed"
        report = sign_again(state["report"], key, result=result, status=status)
        return state | {"report": report, "status": status}

    if what == "problem":
        node.answer("POST /execute", refuse)
    else:
        node.change("POST /execute", lie)
    _prints_plain_text(workspace, 20_000, "execute", "tool:acme/hi", "--target", "remote:gpu")


@pytest.mark.parametrize("command", ["add", "check"])
def test_what_a_node_says_of_itself_steers_no_terminal(
    workspace: Workspace, node: LyingNode, command: str
) -> None:
    key = node.served.identity.key

    def identity(answer: Answer) -> None:
        document = {
            "node_key": key.public.pem.decode() + ESCAPES, "box_key": ESCAPES, "protocol": 1,
            "ryecore": ESCAPES * 100, "more": ESCAPES,
        }  # fmt: skip
        answer.send(json.dumps(document).encode())

    many = {"running", "max_running", "stored_bytes", "max_stored_bytes", "spent_microcents"}
    node.change("GET /status", lambda status: {
        name: ESCAPES if name == "ryecore" else 10**300 if name in many else value
        for name, value in status.items()
    })  # fmt: skip
    node.answer("GET /identity", identity)
    arguments = {"add": ["evil", node.url, "--key", key.public.fingerprint], "check": ["gpu"]}
    _prints_plain_text(workspace, 5000, "remote", command, *arguments[command])


# Directives


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def models(planned: PlannedWorkspace) -> Iterator[LyingNode]:
    """A node with scripted models."""
    folder = planned.root / "node"
    settings = "port: 0\nmin_free_bytes: 0\n"
    arguments = ["--deps", FACTORY]
    with (
        served_node(folder, *arguments, environ=planned.environ, settings=settings) as served,
        lying_node(served) as lying,
    ):
        served.allow(planned.workspace.key)
        name_remote(planned.workspace, lying.url, served.identity.key.public, more={"timeout_s": 2})
        yield lying


async def _directive(planned: PlannedWorkspace) -> tuple[Any, Any]:
    """Run a directive on the node, and return its result and its account."""
    ref = planned.write("work", ["mark", {"text": "there"}])
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", target="remote:gpu")
        thread_id = done.thread_id
        return done, await rye.threads.account(thread_id)


def _lie_in_reports(node: LyingNode, **changes: Any) -> None:
    key = node.served.identity.key

    def change(state: Any) -> Any:
        if state.get("report") is None:
            return state
        return state | {"report": sign_again(state["report"], key, **changes)}

    for line in ("POST /execute", "GET /runs/*wait_s=*"):
        node.change(line, change)


async def test_costs_beyond_what_was_held_are_charged_once_and_said(
    planned: PlannedWorkspace, models: LyingNode
) -> None:
    _lie_in_reports(
        models,
        cost={"turns": 2, "input_tokens": 1, "output_tokens": 1, "spend": 1e6},
    )
    done, account = await _directive(planned)
    assert done.cost.spend_usd == 10**6
    assert (done.total.tokens, done.total.spend_microcents) == (2, 10**14)
    assert account.own.spend_microcents == 10**14
    assert account.held.spend_microcents == 0
    assert account.stopped  # whatever it is a part of has to notice


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"name": "../../../escaped"}, "error"),
        ({"sha256": "../../key.pem"}, "error"),
        ({}, "success"),
        ({"size_bytes": 10**15}, "success"),
    ],
    ids=["name", "hash", "content", "size"],
)
async def test_files_that_lie_do_not_come_home(
    planned: PlannedWorkspace, models: LyingNode, changes: dict[str, Any], status: str
) -> None:
    listed = {"name": "transcript.jsonl", "sha256": "ab" * 32, "size_bytes": 5} | changes
    _lie_in_reports(models, files=[listed])
    models.answer("GET /objects/*", lambda answer: answer.send(b"wrong", stream=True))

    done, account = await _directive(planned)

    assert done.status == status
    assert account.held.spend_microcents == 0
    if status == "success":
        async with planned.workspace.open() as rye:
            verified = await rye.threads.verify(done.thread_id)
        assert not verified.ok
        assert "transcript.jsonl is missing; the node reported it" in verified.problems[0]
    came = [one for one in planned.root.rglob("*") if "state" in one.parts and one.is_file()]
    assert came
    assert not [one for one in came if "escaped" in one.name or one.read_bytes() == b"wrong"]


@pytest.mark.parametrize(
    "events",
    [
        b"id: 1\nevent: tree\ndata: " + b'{"a":' * 400 + b"1" + b"}" * 400 + b"\n\n",
        b'id: 1\nevent: tree\ndata: {"thread_id": 5, "children": 7}\n\n',
        b'id: 1\nevent: tree\ndata: {"children": [{"item_id": "\\u001b[2J"}]}\n\n',
        b"id: 1\nevent: run\ndata: []\n\n",
        b"id: 1\nevent: sideways\ndata: {}\n\nid: 0\nevent: run\ndata: {}\n\n",
        b"id: " + b"9" * 5000 + b"\nevent: run\ndata: {}\n\n",
        b"data: {}\n\n",
        b"\x00\xff\n\n" * 1000,
        b"id: 7\nevent: run\ndata: " + b"x" * 3_000_000,
    ],
)
async def test_events_that_lie_change_nothing_of_the_result(
    planned: PlannedWorkspace, models: LyingNode, events: bytes
) -> None:
    def write(answer: Answer) -> None:
        answer.send(events, stream=True, Content_Type="text/event-stream")

    models.answer("GET /runs/*/events", write)
    with anyio.fail_after(30):
        done, _ = await _directive(planned)
    assert (done.status, done.error) == ("success", None)
