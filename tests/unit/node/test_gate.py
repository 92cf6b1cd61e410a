"""The gate: who is admitted, once, and what the others learn."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import asdict, evolve

from ryecore.lillux.keys import SigningKey
from ryecore.node.callers import Caller, Callers
from ryecore.node.database import open_node_database
from ryecore.node.gate import CLOCK_TOLERANCE_S, Gate, RequestHead, read_head
from ryecore.node.problems import NodeProblem
from ryecore.node.run_table import RunRow, RunTable
from ryecore.remote.protocol.models import ExecuteBody
from ryecore.remote.protocol.signatures import SignatureInvalid, combine_headers, sign_request
from ryecore.state.database import Database

pytestmark = pytest.mark.anyio

NOW_S = 1_900_000_000
BODY = b'{"item_id": "tool:greet"}'
NODE, CALLER, STRANGER = (SigningKey(bytes([one]) * 32) for one in (1, 2, 3))


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = float(NOW_S)

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def callers(tmp_path: Path) -> Callers:
    found = Callers(tmp_path, NODE)
    found.allow(Caller(CALLER.public, "laptop"))
    return found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_node_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def gate(database: Database, callers: Callers, clock: Clock) -> Gate:
    return Gate(database, callers, NODE.public.fingerprint, clock=clock)


def make_head(
    *,
    key: SigningKey = CALLER,
    node: SigningKey = NODE,
    now_s: int = NOW_S,
    expires_in_s: int = 60,
    body: bytes = BODY,
) -> RequestHead:
    headers = sign_request(
        key,
        method="POST",
        authority="gpu.example",
        path="/execute",
        query="",
        body=body,
        node=node.public.fingerprint,
        now_s=now_s,
        expires_in_s=expires_in_s,
    )
    pairs = ((name.encode(), value.encode()) for name, value in headers.items())
    return RequestHead("POST", "gpu.example", "/execute", "", combine_headers(pairs))


async def admit(gate: Gate, head: RequestHead) -> Caller:
    async with await gate.admit(head) as admission:
        return admission.caller


async def refused(gate: Gate, head: RequestHead) -> NodeProblem:
    with pytest.raises(NodeProblem) as caught:
        await admit(gate, head)
    return caught.value


async def test_a_caller_is_admitted_with_its_scopes(gate: Gate, callers: Callers) -> None:
    head = make_head()
    caller = await admit(gate, head)
    assert (caller.key, caller.label) == (CALLER.public, "laptop")
    gate.check_body(head, BODY)
    callers.allow(Caller(CALLER.public, "laptop", scopes=("rye.execute.tool.greet",)))
    assert (await admit(gate, make_head())).scopes == ("rye.execute.tool.greet",)


def tampered(head: RequestHead) -> RequestHead:
    return evolve(head, path="/snapshots")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (lambda: evolve(make_head(), headers={}), "missing"),
        (lambda: tampered(make_head()), "didn't make it"),
        (lambda: evolve(make_head(), authority="other.example"), "didn't make it"),
        (lambda: evolve(make_head(), query="kill=true"), "didn't make it"),
        (lambda: make_head(key=STRANGER), "no caller has the key"),
        (lambda: make_head(node=STRANGER), "for another node"),
        (lambda: tampered(make_head(now_s=NOW_S - 1000)), "didn't make it"),
    ],
)
async def test_whoever_is_not_admitted_never_learns_why(
    gate: Gate, head: Callable[[], RequestHead], reason: str
) -> None:
    problem = await refused(gate, head())
    other = await refused(gate, evolve(make_head(), headers={}))
    assert problem.problem == other.problem
    assert (problem.problem.type, problem.problem.status) == ("unauthorized", 401)
    assert isinstance(problem.__cause__, SignatureInvalid)
    assert reason in problem.__cause__.reason


async def test_a_revoked_an_expired_and_a_forged_caller_are_refused(
    gate: Gate, callers: Callers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admit(gate, make_head())
    callers.revoke(CALLER.public.fingerprint)
    assert (await refused(gate, make_head())).problem.type == "unauthorized"

    path = callers.allow(Caller(CALLER.public, not_after="2099-01-01T00:00:00Z"))
    await admit(gate, make_head())
    monkeypatch.setattr("ryecore.items.trust.utc_now", lambda: "2099-01-01T00:00:01Z")
    assert "is over" in str((await refused(gate, make_head())).__cause__)
    monkeypatch.undo()

    forged = json.loads(path.read_text()) | {"scopes": ["rye.*"]}
    path.write_text(json.dumps(forged))
    assert (await refused(gate, make_head())).problem.type == "unauthorized"
    Callers(tmp_path, STRANGER).allow(Caller(CALLER.public))
    assert (await refused(gate, make_head())).problem.type == "unauthorized"


@pytest.mark.parametrize(
    ("made_s", "expires_in_s", "is_right"),
    [
        (-1 - CLOCK_TOLERANCE_S, 1, True),
        (-2 - CLOCK_TOLERANCE_S, 1, False),
        (CLOCK_TOLERANCE_S, 1, True),
        (CLOCK_TOLERANCE_S + 1, 300, False),
        (-300 - CLOCK_TOLERANCE_S, 300, True),
        (-301 - CLOCK_TOLERANCE_S, 300, False),
    ],
)
async def test_clocks_may_differ_by_a_minute(
    gate: Gate, made_s: int, expires_in_s: int, is_right: bool
) -> None:
    head = make_head(now_s=NOW_S + made_s, expires_in_s=expires_in_s)
    if is_right:
        await admit(gate, head)
    else:
        problem = (await refused(gate, head)).problem
        assert (problem.type, problem.status) == ("clock", 401)
        assert f"{made_s:+,} s" in problem.detail


async def test_a_time_beyond_all_calendars_is_refused(gate: Gate) -> None:
    assert (await refused(gate, make_head(now_s=10**14 - 1))).problem.type == "clock"


async def test_a_request_is_admitted_once_over_a_restart_until_its_time_is_over(
    gate: Gate, database: Database, callers: Callers, clock: Clock, tmp_path: Path
) -> None:
    heads = [make_head(), make_head(now_s=NOW_S + 50)]
    for head in heads:
        await admit(gate, head)
        assert (await refused(gate, head)).problem.type == "replayed"
    database.close()

    again = open_node_database(tmp_path)
    try:
        second = Gate(again, callers, NODE.public.fingerprint, clock=clock)
        for later_s in (0, 60, 60 + CLOCK_TOLERANCE_S):
            clock.now_s = NOW_S + later_s
            for head in heads:
                assert (await refused(second, head)).problem.type == "replayed"
        clock.now_s += 1
        assert (await refused(second, heads[0])).problem.type == "clock"
        assert (await refused(second, heads[1])).problem.type == "replayed"
        clock.now_s += 300
        await admit(second, make_head(now_s=int(clock.now_s)))
        assert again.read("SELECT count(*) FROM nonces")[0][0] == 1
    finally:
        again.close()


async def test_a_request_comes_once_while_it_is_handled_and_after_it_has_failed(
    gate: Gate, database: Database, callers: Callers, clock: Clock, tmp_path: Path
) -> None:
    head = make_head()

    async def fail() -> None:
        async with await gate.admit(head):
            assert (await refused(gate, head)).problem.type == "replayed"
            assert not database.read("SELECT 1 FROM nonces")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    again = open_node_database(tmp_path)
    try:
        second = Gate(again, callers, NODE.public.fingerprint, clock=clock)
        assert (await refused(second, head)).problem.type == "replayed"
    finally:
        again.close()


async def test_a_nonce_is_written_with_the_run_of_its_request_or_not_at_all(
    gate: Gate, database: Database, callers: Callers, clock: Clock, tmp_path: Path
) -> None:
    table, head = RunTable(database), make_head()
    body = ExecuteBody("t-1", "tool:greet", {}, "inline", "0" * 64, "1.0")
    row = RunRow.of(CALLER.public.fingerprint, body, "0" * 64)
    other = open_node_database(tmp_path)
    second = Gate(other, callers, NODE.public.fingerprint, clock=clock)
    try:
        async with await gate.admit(head) as admission:
            assert await table.insert(row, "{}", admission)
            # What a process leaves that is killed now.
            assert (await refused(second, head)).problem.type == "replayed"
        head = make_head()
        async with await gate.admit(head) as admission:
            await admit(second, head)  # by another process, meanwhile
            with pytest.raises(NodeProblem, match="made before"):
                await table.insert(evolve(row, thread_id="t-2"), "{}", admission)
            assert await table.find(row.caller, "t-2") is None
            admission.confirm()
    finally:
        other.close()


async def test_one_nonce_is_not_taken_from_another_caller(gate: Gate, callers: Callers) -> None:
    """A caller who sees another's nonce can't use it up."""
    callers.allow(Caller(STRANGER.public))
    head = make_head()
    assert (await admit(gate, make_head(key=STRANGER))).key == STRANGER.public
    assert (await admit(gate, head)).key == CALLER.public


async def test_a_request_refused_for_its_signature_uses_no_nonce(gate: Gate) -> None:
    head = make_head()
    for wrong in (tampered(head), evolve(head, authority="other.example")):
        await refused(gate, wrong)
    assert (await admit(gate, head)).key == CALLER.public


def test_another_body_is_refused(gate: Gate) -> None:
    head = make_head()
    for body in (b"", BODY + b" ", BODY.upper()):
        with pytest.raises(NodeProblem) as caught:
            gate.check_body(head, body)
        assert caught.value.problem.type == "unauthorized"


ADMIT = """
import asyncio, json, sys
from pathlib import Path
from ryecore.lillux.keys import SigningKey
from ryecore.node.callers import Callers
from ryecore.node.database import open_node_database
from ryecore.node.gate import Gate, RequestHead
from ryecore.node.problems import NodeProblem

async def main():
    folder, key = Path(sys.argv[1]), SigningKey(bytes([1]) * 32)
    gate = Gate(open_node_database(folder), Callers(folder, key), key.public.fingerprint)
    print("ready", flush=True)
    admitted = []
    for line in sys.stdin:
        try:
            async with await gate.admit(RequestHead(**json.loads(line))):
                pass
            admitted.append(True)
        except NodeProblem as problem:
            assert problem.problem.type == "replayed", problem.problem
            admitted.append(False)
    print(json.dumps(admitted), flush=True)

asyncio.run(main())
"""


def test_two_processes_of_a_node_admit_a_request_once(callers: Callers, tmp_path: Path) -> None:
    heads = [make_head(now_s=int(time.time()), expires_in_s=300) for _ in range(40)]
    lines = "".join(f"{json.dumps(asdict(head))}\n" for head in heads)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ADMIT, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for one in started:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in started:
        assert one.stdin is not None
        one.stdin.write(lines)
        one.stdin.flush()
    found = [json.loads(one.communicate(timeout=60)[0]) for one in started]
    assert [sum(pair) for pair in zip(*found, strict=True)] == [1] * len(heads)


def test_a_head_is_what_came_over_the_wire() -> None:
    """Percent-encoded, below the prefix of a mounted application, and with repeated headers."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/node/runs/a/b",
        "raw_path": b"/node/runs/a%2Fb",
        "root_path": "/node",
        "query_string": b"wait_s=1&x=%C3%A9",
        "headers": [(b"host", b"GPU.example:1"), (b"X-Name", b"\xe9"), (b"x-name", b"b")],
    }
    assert read_head(scope) == RequestHead(
        "GET",
        "GPU.example:1",
        "/node/runs/a%2Fb",
        "wait_s=1&x=%C3%A9",
        {"host": "GPU.example:1", "x-name": "é, b"},
    )
    del scope["raw_path"]
    assert read_head(scope).path == "/node/runs/a/b"
