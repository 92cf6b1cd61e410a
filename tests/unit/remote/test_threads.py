"""Directives' threads on a node: a real one, over HTTP on loopback."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ryecore import SigningKey
from ryecore.errors import RyeError, ThreadConflict
from ryecore.policy import CallContext
from ryecore.policy.reports import ToolProgress, ToolReport
from ryecore.state.model import RemotePlace
from ryecore.state.store import ThreadStore
from ryecore.threads.tree_node import TreeNode
from tests.remotes import connect, name_remote
from tests.served_node import ServedNode, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def node(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    """A node with the scripted models, for the author of the workspace."""
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as served:
        connect(planned.workspace, served)
        yield served


@contextmanager
def store_there(planned: PlannedWorkspace) -> Iterator[ThreadStore]:
    """The threads of the only space of the node."""
    (space,) = (planned.root / "node").glob("data/*/spaces/*")
    store = ThreadStore.open(space / "project/.ai", space / "user/.ai")
    try:
        yield store
    finally:
        store.close()


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
    await _leave(planned, ref, "long")
    workspace = planned.workspace
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


async def _leave(planned: PlannedWorkspace, ref: str, gate: str) -> None:
    """Run a directive in a process that is killed once it has come to a gate."""
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
    await planned.begun(gate)
    follower.kill()
    follower.wait()


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_run_is_given_up_whose_node_is_gone_for_good(
    planned: PlannedWorkspace, node: ServedNode, how: str
) -> None:
    ref = planned.write("lost", ["gate", {"name": "lost"}])
    await _leave(planned, ref, "lost")
    if how == "removed":
        planned.workspace.write("config/remotes/remotes.yaml", "remotes: {}")
    else:
        name_remote(planned.workspace, node.url, SigningKey.generate().public)
    async with planned.workspace.open() as rye:
        (left,) = await rye.threads.list()
        with pytest.raises(RyeError) as refused:
            await rye.threads.wait(left.thread_id)
        assert refused.value.next_step.endswith(f"rye threads cancel {left.thread_id}")
        await rye.threads.cancel(left.thread_id)
        report = await rye.threads.wait(left.thread_id)
        assert report.status == "cancelled"
        assert "may still run it" in str(report.error)
        assert [one.mark for one in await rye.threads.charges(left.thread_id)] == ["assumed"]
        account = await rye.threads.account(left.thread_id)
        assert account.held.spend_microcents == 0
        assert (await rye.threads.wait(left.thread_id)).status == "cancelled"
    connect(planned.workspace, node)
    async with planned.workspace.open() as rye:
        with anyio.fail_after(30):  # it is stopped there, and says what it has cost
            await rye.threads.wait(left.thread_id)
            while (await rye.threads.account(left.thread_id)).own.spend_microcents != COST:
                async with planned.workspace.open() as other:  # one asks every five seconds
                    await other.threads.wait(left.thread_id)


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


async def test_each_thread_of_a_chain_comes_home_and_is_proved(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.write("long", ["gate", {"name": "long"}], ["mark", {"text": "second"}])
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target="remote:gpu")
        await planned.begun("long")
        with store_there(planned) as there:
            (first,) = await there.registry.list_active()
            await there.hand_off(first.thread_id)
        planned.allow("long")
        done = await thread.result()
        assert (done.ended, done.error) == ("completed", None)
        proved = await rye.threads.verify(thread.thread_id)
        assert (proved.ok, proved.problems, list(proved.earlier)) == (True, (), [first.thread_id])
        assert proved.earlier[first.thread_id].ok
        assert first.thread_id in proved.render().plain()
        folder = (await rye.threads.show(thread.thread_id)).folder / "node"
        names = {one.name for one in (folder / "earlier/1").iterdir()}
        assert names == {"transcript.jsonl", "thread.json", "capabilities.md", "export.md"}
        transcript = folder / "earlier/1/transcript.jsonl"
        transcript.write_bytes(transcript.read_bytes().replace(b"passed", b"missed"))
        altered = await rye.threads.verify(thread.thread_id)
        assert not altered.ok
        assert not altered.earlier[first.thread_id].ok
        assert "isn't the file that the node reported" in str(altered.problems)
    assert (planned.root / "marks").read_text() == "second\n"


async def test_the_progress_of_a_tool_there_is_in_the_tree_and_comes_to_the_caller(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    os.mkfifo(planned.root / "go")
    report = '{"progress": 1, "total": 2, "message": "reading"}'
    script = f"printf '{report}\\n' > \"$RYE_CHANNEL\"\ncat {planned.root}/go"
    tool = planned.workspace.shell("acme/import", script, reports=True)
    child = planned.write("child", ["rye_execute", {"item_id": tool}])
    ref = planned.write("parent", ["rye_execute", {"item_id": child, "thread": "fork"}])
    reports: list[ToolReport] = []
    notes: list[str] = []
    opened: list[int] = []

    def draw(tree: TreeNode) -> None:
        notes.extend(one.note for one in tree.walk() if "50%" in one.note)
        if reports and notes and not opened:
            opened.append((planned.root / "go").write_text("on"))

    async with planned.workspace.open() as rye:
        thread = await rye.start(
            ref, target="remote:gpu", ctx=CallContext(report_sink=reports.append)
        )
        with anyio.fail_after(30):
            await rye.threads.watch(thread.thread_id, draw, every_s=0.1)
        assert (await thread.result()).success
    [report] = reports
    assert isinstance(report, ToolProgress)
    assert (report.item_id, report.progress, report.message) == (tool, 1, "reading")
    assert {one.split()[0] for one in notes} == {"acme/import"}


async def test_a_transcript_shows_the_node_s_records_once_they_are_home(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    ref = planned.write("long", ["gate", {"name": "long"}], ["mark", {"text": "second"}])

    def printed(*options: str) -> tuple[str, str]:
        command = ["ryecore.cli", "threads", "transcript", thread.thread_id, *options]
        command += ["--project", str(planned.workspace.project)]
        ran = planned.fork(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = ran.communicate()
        assert ran.returncode == 0, err
        return out.decode(), err.decode()

    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target="remote:gpu")
        await planned.begun("long")
        out, err = await anyio.to_thread.run_sync(printed)
        assert "mark" not in out
        assert "runs on the node gpu" in err
        assert f"rye threads watch {thread.thread_id}" in err
        with store_there(planned) as there:
            (first,) = await there.registry.list_active()
            await there.hand_off(first.thread_id)
        planned.allow("long")
        await thread.result()
        out, err = await anyio.to_thread.run_sync(printed, "-f")
        told = [out.find(one) for one in ("on the node gpu", "→ gate", "» continued", "→ mark")]
        assert told == sorted(told)
        assert told[0] > 0
        assert (out.count("✓ completed"), err) == (1, "")
        lines, _ = await anyio.to_thread.run_sync(printed, "--json")
        ids = [json.loads(one)["thread_id"] for one in lines.splitlines()]
        assert first.thread_id in ids
        assert set(ids) > {thread.thread_id}  # and the one that it was handed off to there
        assert ids[-1] == thread.thread_id
        folder = planned.workspace.path(f"state/threads/{thread.thread_id}/node")
        (folder / "transcript.jsonl").unlink()
        (folder / ".unfinished").touch()  # as where the network failed before it came
        node.process.kill()
        node.process.wait()
        out, err = await anyio.to_thread.run_sync(printed)
        assert "→ gate" not in out
        assert "No records of it have come from the node gpu" in err


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


async def test_what_continues_a_conversation_is_refused_for_a_run_of_a_node(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    tool = planned.workspace.shell("acme/read", f"cat {pipe}")
    directive = planned.write("long", ["gate", {"name": "long"}])
    async with planned.workspace.open() as rye:
        reads = str((await rye.execute(tool, async_=True, target="remote:gpu")).data["thread_id"])
        works = (await rye.start(directive, target="remote:gpu")).thread_id
        await planned.begun("long")
        with await anyio.to_thread.run_sync(pipe.open, "w"):  # once the tool reads it
            for thread_id, why, next_step in (
                (reads, f"a run of {tool} on the node gpu, has no", f"rye threads show {reads}"),
                (works, f"{works} runs on the node of gpu", f"rye threads cancel {works}"),
            ):
                for call in (
                    rye.threads.replay,
                    rye.threads.hand_off,
                    rye.threads.resume,
                    partial(rye.threads.fork, at=1),
                ):
                    with pytest.raises(ThreadConflict, match=why) as refused:
                        await call(thread_id)
                    assert next_step in refused.value.next_step
        planned.allow("long")
        for thread_id in (reads, works):
            assert (await rye.threads.wait(thread_id)).status == "completed"


async def test_a_run_that_met_a_limit_there_says_how_to_start_it_anew(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    inputs = '<input name="who" type="string" required="true">Who.</input>'
    ref = planned.write("work", ["mark", {"text": "there"}], inputs=inputs)
    async with planned.workspace.open() as rye:
        done = await rye.execute(
            ref, {"who": "a b's"}, thread="fork", target="remote:gpu", limits={"turns": 1}
        )
        assert done.status == "error"
        with pytest.raises(ThreadConflict, match="keeps no conversation") as refused:
            await rye.threads.resume(done.thread_id, limits={"turns": 9})
        folder = (await rye.threads.show(done.thread_id)).folder / "node"
    said = refused.value.next_step
    assert f"What it did is in {folder}" in said
    command = said.removeprefix("Start it anew there: ").partition(". What it did")[0]
    assert command.endswith("--limit turns=N")
    words = shlex.split(command.replace("turns=N", "turns=9"))[1:]
    ran = planned.fork(
        "ryecore.cli", *words, "--project", str(planned.workspace.project), "--json",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = ran.communicate()
    assert ran.returncode == 0, err
    assert json.loads(out)["status"] == "success"


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
