"""A node over real HTTP: its routes, its signatures and its bounds."""

import hashlib
import os
from pathlib import Path

import anyio
import httpx2
import pytest

from ryecore import SigningKey, __version__
from ryecore.lillux.keys import PublicKey
from ryecore.node.callers import METRICS_SCOPE
from ryecore.remote.protocol.models import Identity, Missing, NodeStatus, read_answer
from ryecore.remote.protocol.pieces import Piece
from ryecore.remote.protocol.signatures import check_response
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile
from tests.node_host import snapshot_of
from tests.served_node import ServedNode, client_of
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn's own loop."""
    return "asyncio"


def _snapshot(*contents: bytes) -> Snapshot:
    return Snapshot(
        tuple(
            SnapshotFile("project", f"{at}.txt", hashlib.sha256(one).hexdigest(), len(one))
            for at, one in enumerate(contents)
        )
    )


async def test_anybody_may_ask_for_health_and_identity(node: ServedNode) -> None:
    async with httpx2.AsyncClient(base_url=node.url) as web:
        health = await web.get("/health")
        answer = await web.get("/identity")

    assert health.json() == {"status": "ok"}
    identity = read_answer(answer.json(), Identity)
    assert PublicKey.from_pem(identity.node_key) == node.identity.key.public
    assert (identity.protocol, identity.ryecore) == (1, __version__)
    headers = {name.lower(): value for name, value in answer.headers.items()}
    check_response(
        node.identity.key.public, status=200, headers=headers, body=answer.content, request=None
    )


async def test_a_snapshot_is_pushed_once_and_read_back(node: ServedNode) -> None:
    key, contents = SigningKey.generate(), (b"one" * 1000, b"two")
    node.allow(key, max_runs=3)
    async with client_of(node, key) as client:
        first = await client.push(_snapshot(*contents), *contents)
        again = await client.push(_snapshot(*contents))
        sha256 = hashlib.sha256(contents[0]).hexdigest()
        whole = await client.get(f"/objects/{sha256}")
        part = await client.get(f"/objects/{sha256}", Range="bytes=2998-")
        none = await client.get(f"/objects/{sha256}", Range="bytes=3000-")
        status = read_answer((await client.get("/status")).json(), NodeStatus)

    assert len(first.missing) == 2
    assert (again.snapshot, again.missing) == (first.snapshot, ())
    assert whole.content == contents[0]
    assert (part.status_code, part.content) == (206, b"ne")
    assert part.headers["content-range"] == "bytes 2998-2999/3000"
    assert (none.status_code, none.json()["type"]) == (416, "invalid")
    assert (status.running, status.max_running, status.spent_microcents) == (0, 3, 0)
    assert 3003 < status.stored_bytes < status.max_stored_bytes
    assert status.is_accepting


async def test_a_broken_off_push_resumes(node: ServedNode) -> None:
    key, content = SigningKey.generate(), bytes(range(256)) * 100
    node.allow(key)
    sha256, size = hashlib.sha256(content).hexdigest(), len(content)
    async with client_of(node, key) as client:
        begun = await client.store(Piece(sha256, size, 0, content[:7000]))
        missing = (await client.push(_snapshot(content))).missing
        ended = await client.store(Piece(sha256, size, 7000, content[7000:]))

    assert begun.partial == missing == (Missing(sha256, 7000),)
    assert ended.stored == (sha256,)


async def test_one_caller_never_sees_anothers_objects(node: ServedNode) -> None:
    alice, bob = SigningKey.generate(), SigningKey.generate()
    node.allow(alice)
    node.allow(bob)
    secret = b"what only alice has"
    sha256 = hashlib.sha256(secret).hexdigest()
    async with client_of(node, alice) as client:
        await client.push(_snapshot(secret), secret)
    async with client_of(node, bob) as client:
        read = await client.get(f"/objects/{sha256}")
        missing = (await client.push(_snapshot(secret))).missing

    assert (read.status_code, read.json()["type"]) == (404, "not_found")
    assert missing == (Missing(sha256, 0),)


async def test_an_unknown_caller_learns_nothing(node: ServedNode) -> None:
    known, unknown = SigningKey.generate(), SigningKey.generate()
    node.allow(known)
    answers = []
    async with client_of(node, unknown) as client:
        answers.append(await client.get("/status"))
        answers.append(await client.get("/objects/" + "ab" * 32))
        answers.append(await client.web.get("/status"))
    async with client_of(node, known) as client:
        signed = client.sign("GET", "/status", now_s=1)  # long ago, and altered below
        other_path = {**client.sign("GET", "/health")}
        answers.append(await client.web.get("/status", headers=other_path))
        late = await client.web.get("/status", headers=signed)

    assert {one.status_code for one in answers} == {401}
    assert len({one.content for one in answers}) == 1
    assert answers[0].headers["content-type"] == "application/problem+json"
    assert answers[0].json()["type"] == "unauthorized"
    assert late.json()["type"] == "clock"


async def test_a_request_counts_once_and_with_its_own_body(node: ServedNode) -> None:
    key = SigningKey.generate()
    node.allow(key)
    async with client_of(node, key) as client:
        signed = client.sign("GET", "/status")
        first = await client.web.get("/status", headers=signed)
        again = await client.web.get("/status", headers=signed)
        headers = client.sign("POST", "/snapshots", b'{"files": []}')
        altered = await client.web.post("/snapshots", content=b'{"files":  []}', headers=headers)

    assert (first.status_code, again.json()["type"]) == (200, "replayed")
    assert (altered.status_code, altered.json()["type"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("target", "body", "status", "problem"),
    [
        ("/snapshots", b"{", 422, "invalid"),
        ("/snapshots", b'{"files": [], "more": 1}', 422, "invalid"),
        ("/snapshots", b"\xff", 422, "invalid"),
        ("/snapshots", b"[" * 60_000, 422, "invalid"),
        ("/objects", b"pieces", 422, "invalid"),
        ("/objects", b"x" * (8 * 1024 * 1024 + 1), 413, "too_large"),
        ("/snapshots", b" " * (16 * 1024 * 1024 + 1), 413, "too_large"),
        ("/execute", b"{}", 422, "invalid"),
        ("/elsewhere", b"", 404, "not_found"),
    ],
)
async def test_a_body_that_is_not_of_the_protocol_is_refused(
    node: ServedNode, target: str, body: bytes, status: int, problem: str
) -> None:
    key = SigningKey.generate()
    node.allow(key)
    async with client_of(node, key) as client:
        answer = await client.send("POST", target, body)

    assert (answer.status_code, answer.json()["type"]) == (status, problem)
    assert "Traceback" not in answer.text


async def test_a_snapshot_with_a_path_that_escapes_is_refused(node: ServedNode) -> None:
    key = SigningKey.generate()
    node.allow(key)
    escaping = Snapshot((SnapshotFile("project", "../x", "ab" * 32, 1),))
    async with client_of(node, key) as client:
        answer = await client.send("POST", "/snapshots", escaping.to_bytes())

    assert (answer.status_code, answer.json()["type"]) == (422, "invalid")
    assert "../x" in answer.json()["detail"]


async def test_a_body_without_a_length_is_bounded_as_it_comes(node: ServedNode) -> None:
    key = SigningKey.generate()
    node.allow(key)
    sent = 0

    async def stream():
        nonlocal sent
        for _ in range(400):
            sent += 1
            yield b"x" * 100_000

    async with client_of(node, key) as client:
        headers = client.sign("POST", "/objects", b"")
        try:
            answer = await client.web.post("/objects", content=stream(), headers=headers)
            assert answer.json()["type"] == "too_large"
        except httpx2.TransportError:  # it hung up on what would never end
            assert sent < 400


async def test_a_full_quota_is_507(node: ServedNode) -> None:
    key = SigningKey.generate()
    node.allow(key, max_bytes=1000)
    async with client_of(node, key) as client:
        answer = await client.send("POST", "/snapshots", _snapshot(b"x" * 2000).to_bytes())

    assert (answer.status_code, answer.json()["type"]) == (507, "no_room")


async def test_a_revoked_caller_is_refused_at_once(node: ServedNode) -> None:
    from ryecore.node.callers import Callers

    key = SigningKey.generate()
    caller = node.allow(key)
    async with client_of(node, key) as client:
        before = await client.get("/status")
        Callers(node.identity.folder, node.identity.key).revoke(caller.fingerprint)
        after = await client.get("/status")

    assert (before.status_code, after.status_code) == (200, 401)


async def test_a_running_tool_is_followed_and_cancelled(
    node: ServedNode, workspace: Workspace, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ref = workspace.shell("acme/wait", f"echo $$ > {fifo}; sleep 600")
    node.allow(workspace.key)
    snapshot, objects = snapshot_of(workspace)
    async with client_of(node, workspace.key) as client:
        await client.push(snapshot, *objects)
        document = {
            "thread_id": "acme/wait/1", "item_id": ref, "parameters": {}, "thread": "inline",
            "snapshot": snapshot.id, "ryecore": __version__,
        }  # fmt: skip
        begun = await client.post("/execute", document)
        again = await client.post("/execute", {**document, "wait_s": 0.01})
        other = await client.post("/execute", {**document, "parameters": {"x": 1}})
        await anyio.to_thread.run_sync(fifo.read_text)
        signed = client.sign("GET", "/runs/acme/wait/1/events")
        url = f"{node.url}/runs/acme/wait/1/events"
        async with client.web.stream("GET", url, headers=signed) as stream:
            client.check(stream, signed)
            cancelled = await client.post("/runs/acme/wait/1/cancel", {"kill": True})
            text = "".join([piece async for piece in stream.aiter_text()])
        ended = await client.get("/runs/acme/wait/1?wait_s=30")
        nothing = [
            await client.get("/runs/acme/wait/2"),
            await client.get("/runs/acme/wait/2/events"),
            await client.post("/runs/acme/wait/2/cancel", {}),
            await client.get("/runs/..%2Fx"),
        ]

    assert (begun.status_code, begun.json()["status"]) == (202, "running")
    assert again.json()["status"] == "running"
    assert (other.status_code, other.json()["type"]) == (409, "other_request")
    assert cancelled.status_code in (200, 202)
    assert (ended.status_code, ended.json()["status"]) == (200, "killed")
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in text.split("\n\n") if block.startswith("id: ")]
    assert events[-1][1] == "event: status"
    assert '"killed"' in events[-1][2]
    assert [one.json()["type"] for one in nothing] == ["not_found"] * 4


async def test_events_resume_behind_an_id(node: ServedNode, workspace: Workspace) -> None:
    ref = workspace.shell("acme/quick", "cat")
    node.allow(workspace.key)
    snapshot, objects = snapshot_of(workspace)
    async with client_of(node, workspace.key) as client:
        await client.push(snapshot, *objects)
        document = {
            "thread_id": "quick", "item_id": ref, "parameters": {}, "thread": "inline",
            "snapshot": snapshot.id, "ryecore": __version__, "wait_s": 30,
        }  # fmt: skip
        done = await client.post("/execute", document)
        all_of_it = (await client.get("/runs/quick/events")).text
        last = [one for one in all_of_it.split("\n") if one.startswith("id: ")][-1]
        rest = (await client.get("/runs/quick/events", Last_Event_ID=last[4:])).text
        wrong = await client.get("/runs/quick/events", Last_Event_ID="-1")

    assert done.json()["status"] == "completed"
    assert '"completed"' in all_of_it
    assert rest == ""
    assert wrong.status_code == 422


async def test_metrics_are_for_keys_with_their_scope(node: ServedNode) -> None:
    scraper, other = SigningKey.generate(), SigningKey.generate()
    node.allow(scraper, scopes=(METRICS_SCOPE,), label='a "scraper"\\')
    caller = node.allow(other)
    async with client_of(node, other) as client:
        refused = await client.get("/metrics")
    async with client_of(node, scraper) as client:
        answer = await client.get("/metrics")
    lines = answer.text.splitlines()

    assert (refused.status_code, refused.json()["type"]) == (403, "forbidden")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE ryecore_node_requests_total counter" in lines
    assert 'ryecore_node_requests_total{route="/metrics",status="403"} 1' in lines
    assert 'ryecore_node_problems_total{type="forbidden"} 1' in lines
    assert 'ryecore_node_request_duration_seconds_count{route="/metrics"} 1' in lines
    assert f'ryecore_node_runs{{caller="{caller.fingerprint}",label=""}} 0' in lines
    assert any(r'label="a \"scraper\"\\"' in line for line in lines)
    assert not [one for one in lines if "secret" in one]
    help_lines = [one.split()[2] for one in lines if one.startswith("# HELP")]
    assert len(set(help_lines)) == len(help_lines)
