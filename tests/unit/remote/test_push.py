"""The push: what is sent, how it resumes, and what it holds in memory."""

import hashlib
import json
import os
import signal
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest

from ryecore.errors import InputError, RemoteError, RemoteUntrusted
from ryecore.remote.push import PushProgress
from tests.forking import COMMAND, Forked
from tests.lying import lie
from tests.proxy import Fault, Hold, Proxy
from tests.remotes import connect
from tests.served_node import ServedNode
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

MIB = 2**20
INCLUDE = '{include: ["data/**"]}'


@pytest.fixture
def proxy(node: ServedNode) -> Iterator[Proxy]:
    """A proxy in front of the node."""
    with Proxy(urlsplit(node.url).port or 0) as opened:
        yield opened


@pytest.fixture
def data(workspace: Workspace, node: ServedNode, proxy: Proxy) -> Path:
    """A folder of the project whose files travel."""
    connect(workspace, node, url=proxy.url, push=INCLUDE, timeout_s=3)
    folder = workspace.project / "data"
    folder.mkdir()
    return folder


def sent_bytes(proxy: Proxy) -> list[int]:
    return [len(one.body) for one in proxy.requests if one.target == "/objects"]


async def test_a_large_file_goes_in_parts_with_its_progress(
    workspace: Workspace, proxy: Proxy, data: Path
) -> None:
    (data / "large.bin").write_bytes(os.urandom(20 * MIB))
    (data / "empty").write_bytes(b"")
    (data / "same").write_bytes(b"")
    seen: list[PushProgress] = []
    async with workspace.open() as rye:
        done = await rye.remotes.push(progress=seen.append)
    bodies = sent_bytes(proxy)
    assert max(bodies) <= 8 * MIB
    assert len(bodies) == 3
    assert [one.sent_bytes for one in seen] == sorted(one.sent_bytes for one in seen)
    assert seen[-1].sent_bytes == seen[-1].total_bytes == done.total_bytes > 20 * MIB
    assert done.files == 3  # the large one, the empty ones as one, and the trusted key


async def test_an_upload_that_broke_off_goes_on_where_it_ended(
    workspace: Workspace, proxy: Proxy, data: Path
) -> None:
    (data / "large.bin").write_bytes(os.urandom(20 * MIB))
    proxy.fail("POST /objects", Fault())
    proxy.fail("POST /objects", Fault(lose_answer=True), times=1000)
    async with workspace.open() as rye:
        with pytest.raises(RemoteError):
            await rye.remotes.push()
        before = len(sent_bytes(proxy))
    proxy.stop_failing()
    async with workspace.open() as rye:
        done = await rye.remotes.push()
    # The node had two whole bodies of it, although the answer to the second was lost.
    assert sum(sent_bytes(proxy)[before:]) < 5 * MIB
    assert done.total_bytes < 5 * MIB


async def test_a_push_holds_no_whole_file_in_memory(
    workspace: Workspace, node: ServedNode, data: Path
) -> None:
    connect(workspace, node, push=INCLUDE)  # without the proxy, which keeps what it passes on
    block = os.urandom(MIB)
    with (data / "large.bin").open("wb") as file:
        for number in range(96):
            file.write(number.to_bytes(4, "big") + block[4:])
    async with workspace.open() as rye:
        await rye.remotes.plan()
        tracemalloc.start()
        try:
            await rye.remotes.push()
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most_bytes < 40 * MIB


async def test_a_file_that_changes_while_it_is_sent_is_not_sent(
    workspace: Workspace, proxy: Proxy, data: Path
) -> None:
    file = data / "a.bin"
    file.write_bytes(b"public")
    hold = Hold()
    proxy.fail("POST /snapshots", Fault(hold_answer=hold))
    async with workspace.open() as rye, anyio.create_task_group() as group:

        async def change() -> None:
            await anyio.to_thread.run_sync(hold.reached)
            file.write_bytes(b"SECRET")
            hold.release()

        group.start_soon(change)
        with pytest.raises(RemoteError, match="was changed while it was sent"):
            await rye.remotes.push()
    assert not any(b"SECRET" in one.body for one in proxy.requests)


@pytest.mark.parametrize(
    "missing",
    [
        b'[{"sha256":"%s","have_bytes":0}]' % (b"0" * 64),
        b'[{"sha256":"%s","have_bytes":-1}]',
        b'[{"sha256":"%s","have_bytes":9999999}]',
    ],
    ids=["other object", "negative", "too long"],
)
async def test_a_node_that_asks_for_more_than_the_snapshot_gets_nothing(
    workspace: Workspace, proxy: Proxy, data: Path, node: ServedNode, missing: bytes
) -> None:
    (data / "a.bin").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest().encode()
    async with workspace.open() as rye:
        snapshot = (await rye.remotes.plan()).snapshot.id

        listed = missing % digest if b"%s" in missing else missing
        asked = {"snapshot": snapshot, "missing": json.loads(listed)}
        proxy.fail("POST /snapshots", lie(node.identity.key, lambda _: asked))
        with pytest.raises(RemoteUntrusted):
            await rye.remotes.push()
    assert sent_bytes(proxy) == []


TIB = 2**40


def write_sparse(path: Path, size_bytes: int) -> Path:
    """Make a file that takes no room, and days to read."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


async def test_what_the_node_would_not_keep_is_refused_unread(
    workspace: Workspace, node: ServedNode, data: Path
) -> None:
    connect(workspace, node, push=INCLUDE)
    huge = write_sparse(data / "huge.bin", TIB // 2)
    ref = workspace.shell("acme/a", "true")
    async with workspace.open() as rye:
        for call in (rye.remotes.push(), rye.execute(ref, target="remote:gpu")):
            with pytest.raises(InputError, match=f"the node keeps for you at most.*{huge}") as told:
                await call
            assert "push.include" in told.value.next_step
        write_sparse(huge, 5 * TIB)
        with pytest.raises(InputError, match="one push may have at most"):
            await rye.remotes.plan()


def wait_until_read(path: Path, pid: int | str) -> None:
    """Wait until a process reads a file."""
    until_s = time.monotonic() + 20
    while str(path) not in {
        os.path.realpath(one) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()
    }:
        assert time.monotonic() < until_s
        time.sleep(0.01)


async def test_a_call_that_is_cancelled_reads_no_file_to_its_end(
    workspace: Workspace, node: ServedNode, data: Path
) -> None:
    huge = write_sparse(data / "huge.bin", TIB // 2)
    async with workspace.open() as rye:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(rye.remotes.plan)
                await anyio.to_thread.run_sync(wait_until_read, huge, "self")
                group.cancel_scope.cancel()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_that_reads_a_huge_file(
    workspace: Workspace, data: Path, number: int
) -> None:
    huge = write_sparse(data / "huge.bin", TIB // 2)
    command = ["ryecore.cli", "remote", "plan", "gpu", "--project", str(workspace.project)]
    environ = {**workspace.environ, "USER_SPACE": str(workspace.user)}
    process = Forked(command, imported=COMMAND, env=environ, stderr=subprocess.PIPE)
    wait_until_read(huge, process.pid)
    before_s = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert time.monotonic() - before_s < 5
