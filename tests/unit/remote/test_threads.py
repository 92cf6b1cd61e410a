"""Directives' threads on a node: a real one, over HTTP on loopback."""

import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ryecore.errors import RyeError, ThreadConflict
from ryecore.state.model import RemotePlace
from ryecore.threads.tree_node import TreeNode
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def node(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    """A node with the scripted models, for the author of the workspace."""
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as served:
        connect(planned.workspace, served)
        yield served


async def test_a_directive_runs_on_the_node_with_its_thread_at_home(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.write("work", ["mark", {"text": "there"}])
    async with planned.workspace.open() as rye:  # without models of its own
        done = await rye.execute(ref, thread="fork", target="remote:gpu")
        assert (done.status, done.error) == ("success", None)
        assert done.item_id == ref
        report = await rye.threads.show(done.thread_id)
        assert report.status == "completed"
        assert report.record.place == RemotePlace("gpu", node.identity.fingerprint)
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 2 * COST
        assert account.held.spend_microcents == 0
    assert (planned.root / "marks").read_text() == "there\n"


async def test_a_started_thread_is_stopped_on_the_node(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.write("wait", ["mark", {"text": "there"}], ["gate", {"name": "wait"}])
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target="remote:gpu")
        await planned.begun("wait")
        assert [one.status for one in await rye.threads.list()] == ["running"]
        with anyio.fail_after(10):
            shown = await rye.threads.show(thread.thread_id)
            while shown.on_node is None or not shown.on_node.turns:
                await anyio.sleep(0.05)
                shown = await rye.threads.show(thread.thread_id)
        turns = shown.on_node.turns
        assert f"  used    {turns}/25 turns" in str(shown)
        assert f'"on_node": {{"turns": {turns},' in json.dumps(shown.to_dict())
        await thread.cancel()
        done = await thread.result()
        assert (done.status, done.ended) == ("error", "cancelled")
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_microcents == 2 * COST
        assert account.held.spend_microcents == 0


async def test_who_looks_follows_a_run_whose_follower_was_killed(
    planned: PlannedWorkspace, node: ServedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ryecore.remote.service._LOOK_S", 60.0)  # the node answers before that
    ref = planned.write("long", ["gate", {"name": "long"}], ["mark", {"text": "once"}])
    program = f"""
import sys
import anyio
from ryecore import Rye

async def main():
    async with Rye.open(sys.argv[1], user_space=sys.argv[2], environ={{}}) as rye:
        await rye.execute({ref!r}, thread="fork", target="remote:gpu")

anyio.run(main)
"""
    workspace = planned.workspace
    follower = planned.fork(program, str(workspace.project), str(workspace.user))
    await planned.begun("long")
    follower.kill()
    follower.wait()
    async with workspace.open() as rye:
        with anyio.fail_after(20):
            (left,) = await rye.threads.list()
        assert left.status == "running"
    planned.allow("long")
    async with workspace.open() as rye:
        report = await rye.threads.wait(left.thread_id)
        assert (report.status, report.error) == ("completed", None)
        account = await rye.threads.account(left.thread_id)
        assert account.own.spend_microcents == 3 * COST
        assert account.held.spend_microcents == 0
        assert await rye.threads.list() == ()
    assert (planned.root / "marks").read_text() == "once\n"


async def test_threads_below_it_on_the_node_are_drawn_and_their_cost_is_charged(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    child = planned.write("child", ["gate", {"name": "child"}])
    call = {"item_id": child, "thread": "fork", "parameters": {}}
    ref = planned.write("parent", ["rye_execute", call], limits='depth="3"')
    drawn: list[list[tuple[str, str]]] = []

    def draw(tree: TreeNode) -> None:
        drawn.append([(one.item_id, one.status) for one in tree.walk()])
        if drawn[-1] == [(ref, "running"), (child, "running")]:
            planned.allow("child")

    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target="remote:gpu")
        await rye.threads.watch(thread.thread_id, draw, every_s=0.1)
        done = await thread.result()
        assert done.error is None
        account = await rye.threads.account(thread.thread_id)
    assert drawn[-1] == [(ref, "completed"), (child, "completed")]
    assert account.own.spend_microcents == done.cost.spend_microcents == 4 * COST


def test_the_command_runs_a_directive_on_a_node(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.write("say")
    command = ["ryecore.cli", "execute", ref, "--thread", "fork", "--target", "remote:gpu"]
    command += ["--project", str(planned.workspace.project), "--json"]
    ran = planned.fork(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = ran.communicate()
    assert ran.returncode == 0, err
    document = json.loads(out)
    assert (document["status"], document["state"]) == ("success", "completed")
    assert document["cost"]["spend"] == 2 * COST / 1e8


async def test_what_comes_home_is_proved_by_the_key_of_the_node(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.write("work", ["mark", {"text": "there"}])
    async with planned.workspace.open() as rye:
        done = await rye.execute(ref, thread="fork", target="remote:gpu")
        folder = (await rye.threads.show(done.thread_id)).folder / "node"
        names = {one.name for one in folder.iterdir()}
        assert {"transcript.jsonl", "thread.json", "capabilities.md", "report.json"} <= names
        proved = await rye.threads.verify(done.thread_id)
        assert (proved.ok, proved.problems) == (True, ())
        assert proved.node == RemotePlace("gpu", node.identity.fingerprint)
        assert len(proved.turns) > 1
        assert "signed by the node" in proved.render().plain()
        with pytest.raises(ThreadConflict, match="on the node"):
            await rye.threads.resume(done.thread_id, "Go on.")
        with pytest.raises(ThreadConflict, match="on the node"):
            await rye.threads.replay(done.thread_id)
        transcript = folder / "transcript.jsonl"
        content = transcript.read_bytes()
        transcript.write_bytes(content.replace(b"there", b"Here!"))
        altered = await rye.threads.verify(done.thread_id)
        assert not altered.ok
        assert "isn't the file that the node reported" in str(altered.problems)
        transcript.unlink()
        assert "is missing" in str((await rye.threads.verify(done.thread_id)).problems)
        (folder / "elsewhere").write_bytes(content)
        transcript.symlink_to(folder / "elsewhere")
        assert not (await rye.threads.verify(done.thread_id)).ok


async def test_an_asynchronous_directive_is_followed_by_a_process_of_its_own(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.write("later", ["gate", {"name": "later"}])
    async with planned.workspace.open() as rye:
        options = {"thread": "fork", "target": "remote:gpu", "idempotency_key": "one"}
        started = await rye.execute(ref, async_=True, **options)
        thread_id = started.data["thread_id"]
        await planned.begun("later")
        again = await rye.execute(ref, async_=True, **options)
        assert again.data["thread_id"] == thread_id
        (row,) = await rye.threads.list()
        assert row.place == RemotePlace("gpu", node.identity.fingerprint)
        assert row.pid is not None
        os.kill(row.pid, signal.SIGKILL)
        planned.allow("later")
        done = await (await rye.threads.thread(thread_id)).result()
        assert (done.ended, done.error) == ("completed", None)
        account = await rye.threads.account(thread_id)
        assert account.own.spend_microcents == 2 * COST


async def test_an_asynchronous_tool_outlives_its_follower(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    ref = planned.workspace.shell("acme/read", f"cat {pipe}")
    async with planned.workspace.open() as rye:
        started = await rye.execute(ref, async_=True, target="remote:gpu")
        thread_id = started.data["thread_id"]
        assert uuid.UUID(thread_id).version == 4
        with await anyio.to_thread.run_sync(pipe.open, "w") as written:  # once the tool reads it
            row = (await rye.threads.show(thread_id)).record
            assert row.place == RemotePlace("gpu", node.identity.fingerprint)
            assert row.pid is not None
            os.kill(row.pid, signal.SIGKILL)
            written.write("came through")
        report = await rye.threads.wait(thread_id)
        assert (report.status, report.error) == ("completed", None)
        assert "came through" in str(report.data)
        local = await rye.execute(planned.workspace.shell("acme/b", "echo b"))
        assert isinstance(report.result, dict)
        assert {*local.to_dict()} == {*report.result}
        with pytest.raises(RyeError):
            await rye.execute("tool:acme/missing", async_=True, target="remote:gpu")


async def test_an_asynchronous_tool_is_killed_on_the_node(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    ref = planned.workspace.shell("acme/stay", f"echo $$ > {pipe}; sleep 1000")
    async with planned.workspace.open() as rye:
        started = await rye.execute(ref, async_=True, target="remote:gpu")
        pid = int(await anyio.to_thread.run_sync(pipe.read_text))
        await rye.threads.kill(started.data["thread_id"])
        report = await rye.threads.wait(started.data["thread_id"])
        assert (report.status, report.result["status"]) == ("killed", "error")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_two_projects_of_one_author_run_the_same_directive_at_once(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    """Run ids are made of names and seconds, and only one project's are all different."""
    ref = planned.write("work", ["mark", {"text": "there"}])
    roots = [planned.root / name for name in ("one", "two", "three")]
    for root in roots:
        for part in ("project", "user"):
            shutil.copytree(planned.root / part, root / part)
    results: list[str] = []

    async def run(root: Path) -> None:
        async with Workspace(root, is_new=False).open() as rye:
            done = await rye.execute(ref, thread="fork", target="remote:gpu")
            results.append(done.status)

    async with anyio.create_task_group() as group:
        for root in roots:
            group.start_soon(run, root)
    assert results == ["success"] * 3
    assert (planned.root / "marks").read_text() == "there\n" * 3
