"""A node on a disk that is full: it refuses what it can't keep, and serves on afterwards."""

import os
from pathlib import Path

import pytest

from ryecore import SigningKey, __version__
from ryecore.remote.protocol.pieces import encode_pieces
from tests.node_host import snapshot_of
from tests.served_node import client_of, served_node, whole
from tests.small_disk import fill_disk
from tests.workspace import Workspace

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.parametrize("small_disk", ["6m"], indirect=True),
]


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn's own loop."""
    return "asyncio"


@pytest.mark.parametrize("min_free_bytes", [0, 2 * 1024 * 1024])
async def test_a_push_beyond_the_disk_is_507_and_works_when_there_is_room(
    small_disk: Path, min_free_bytes: int
) -> None:
    key = SigningKey.generate()
    large = [os.urandom(2_500_000) for _ in range(3)]
    settings = f"port: 0\nmin_free_bytes: {min_free_bytes}\n"
    with served_node(small_disk / "node", settings=settings) as served:
        served.allow(key)
        async with client_of(served, key) as client:
            body = encode_pieces(map(whole, large))
            answers = [await client.send("POST", "/objects", body) for _ in range(2)]
            status = await client.get("/status")
            for path in (small_disk / "node" / "data").rglob("*"):
                if path.is_file():
                    path.unlink()
            after = await client.store(large[2])

    assert [one.status_code for one in answers] == [507, 507]
    assert answers[0].json()["type"] == "no_room"
    assert "Traceback" not in answers[0].text
    assert status.status_code == 200
    assert after.stored == (whole(large[2]).sha256,)


async def test_a_node_whose_database_has_no_room_says_so(
    small_disk: Path, workspace: Workspace
) -> None:
    ref = workspace.shell("acme/greet", "cat")
    snapshot, objects = snapshot_of(workspace)
    with served_node(small_disk / "node", settings="port: 0\nmin_free_bytes: 0\n") as served:
        served.allow(workspace.key)
        async with client_of(served, workspace.key) as client:
            await client.push(snapshot, *objects)
            filler = fill_disk(small_disk)
            document = {
                "thread_id": "one", "item_id": ref, "parameters": {}, "thread": "inline",
                "snapshot": snapshot.id, "ryecore": __version__, "wait_s": 30,
            }  # fmt: skip
            full = [await client.post("/execute", document) for _ in range(3)]
            alive = await client.web.get("/health")
            filler.unlink()
            after = await client.post("/execute", document)
        assert served.process.poll() is None

    assert {one.status_code for one in full} <= {507, 200}, [one.text for one in full]
    assert alive.status_code == 200
    assert after.status_code == 200
