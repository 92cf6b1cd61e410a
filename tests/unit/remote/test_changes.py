"""Project files that a run on a node changed: brought home whole, or not at all."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ryecore import Rye
from ryecore.errors import InputError, RemoteUntrusted, RyeError, StateError, UnsupportedExecution
from tests.graphs import graph
from tests.proxy import Fault, Proxy
from tests.remotes import connect, name_remote
from tests.served_node import ServedNode, served_node
from tests.small_disk import mount_small_disk
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

_WRITE = """
import pathlib

def execute(params, project_path):
    project = pathlib.Path(project_path)
    for name, text in params.items():
        path = project / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return {}
"""


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def node(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as served:
        connect(planned.workspace, served, push='{include: ["data/**", "*.txt"]}')
        yield served


def files_of(project: Path) -> dict[str, str]:
    """The project's files outside `.ai`."""
    return {
        path.relative_to(project).as_posix(): path.read_text()
        for path in sorted(project.rglob("*"))
        if path.is_file() and ".ai" not in path.parts[len(project.parts) :]
    }


async def changed_on_node(rye: Rye, ref: str, changes: Mapping[str, str | None]) -> str:
    """Change files on the node; the run's id."""
    done = await rye.execute(ref, changes, target="remote:gpu", pull=True)
    assert done.success, done.error
    return str(done.to_dict()["thread_id"])


async def test_a_file_whose_transfer_breaks_off_goes_on_where_it_was(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    write = "open(project_path + '/big', 'wb').write(params['part'].encode() * 40_000)"
    ref = planned.workspace.python("acme/big", f"def execute(params, project_path):\n    {write}\n")
    content = b"0123456789abcdef" * 40_000
    with Proxy(urlsplit(node.url).port or 0) as proxy:
        name_remote(planned.workspace, proxy.url, node.identity.key.public)
        async with planned.workspace.open() as rye:
            parameters = {"part": content[:16].decode()}
            done = await rye.execute(ref, parameters, target="remote:gpu", pull=True)
            proxy.fail("GET /objects/", Fault(cut_answer_bytes=300_000), times=2)
            assert (await rye.threads.pull(str(done.to_dict()["thread_id"]))).applied
            heads = [one.head.lower() for one in proxy.requests if "/objects/" in one.target]
    assert (planned.workspace.project / "big").read_bytes() == content
    ranges = [re.findall(rb"range: bytes=(\d+)-", head) for head in heads]
    assert ranges[0] == []
    (first,), (second,) = ranges[1:]
    assert 0 < int(first) < 300_000 < int(second) < len(content)


async def test_a_transfer_that_goes_on_is_checked_whole(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    async with planned.workspace.open() as rye:
        await rye.remotes.push("remote:gpu")
        connected = await rye.remotes._parts.nodes.connect("remote:gpu")
        (one, *_) = (await rye.remotes.plan("remote:gpu")).snapshot.files
        got = planned.root / "got"
        for begun in (b"", b"another beginning", bytes(one.size_bytes), bytes(one.size_bytes + 1)):
            got.write_bytes(begun)
            if begun:
                with pytest.raises(RemoteUntrusted, match="another object"):
                    await connected.read_object(one.sha256, one.size_bytes, got)
                assert not got.exists()
            await connected.read_object(one.sha256, one.size_bytes, got)
            content = got.read_bytes()
            assert hashlib.sha256(content).hexdigest() == one.sha256
            got.write_bytes(content[: one.size_bytes // 2])
            await connected.read_object(one.sha256, one.size_bytes, got)
            assert got.read_bytes() == content


@pytest.fixture
def ref(workspace: Workspace) -> str:
    (workspace.project / "data").mkdir()
    (workspace.project / "data/a").write_text("a")
    (workspace.project / "data/b").write_text("b")
    (workspace.project / "run.txt").write_text("run")
    (workspace.project / "run.txt").chmod(0o755)
    (workspace.project / "other").write_text("not pushed")
    return workspace.python("acme/write", _WRITE)


async def test_changes_come_home_when_asked(
    workspace: Workspace, node: ServedNode, ref: str
) -> None:
    before = files_of(workspace.project)
    async with workspace.open() as rye:
        wanted = {"data/a": "A", "data/b": None, "out/new/c": "c", "run.txt": "ran"}
        thread_id = await changed_on_node(
            rye, ref, {**wanted, ".ai/tools/evil.sh": "x", ".env": "SECRET=1"}
        )
        assert files_of(workspace.project) == before
        report = await rye.threads.pull(thread_id)
        assert report.applied
        assert {*report.left_out} <= {".ai/tools/evil.sh", ".env"}
        assert report.added == ("out/new/c",)
        lines = str(report).splitlines()
        assert lines[:5] == [
            "4 files of the project changed",
            "  new      out/new/c",
            "  changed  data/a",
            "  changed  run.txt",
            "  removed  data/b",
        ]
        now = {"data/a": "A", "out/new/c": "c", "run.txt": "ran", "other": "not pushed"}
        assert files_of(workspace.project) == now
        assert os.access(workspace.project / "run.txt", os.X_OK)
        assert not workspace.path("tools/evil.sh").exists()
        again = await rye.threads.pull(thread_id)
        assert again.applied
        assert files_of(workspace.project) == now


async def test_a_conflict_changes_nothing_and_keeps_both(
    workspace: Workspace, node: ServedNode, ref: str
) -> None:
    async with workspace.open() as rye:
        thread_id = await changed_on_node(rye, ref, {"data/a": "there", "data/b": "there"})
        (workspace.project / "data/a").write_text("here")
        before = files_of(workspace.project)
        report = await rye.threads.pull(thread_id)
        assert (report.applied, report.conflicts) == (False, ("data/a",))
        assert str(report).splitlines()[1:] == ["  conflict data/a"]
        assert files_of(workspace.project) == before
        assert (report.folder / "data/a").read_text() == "there"
        (workspace.project / "data/a").write_text("there")  # resolved
        assert (await rye.threads.pull(thread_id)).applied
        assert (workspace.project / "data/b").read_text() == "there"


async def test_no_change_follows_a_link(
    workspace: Workspace, node: ServedNode, ref: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    async with workspace.open() as rye:
        thread_id = await changed_on_node(rye, ref, {"data/a": "there", "out/new": "there"})
        (workspace.project / "out").symlink_to(outside)
        with_link = await rye.threads.pull(thread_id)
        assert (with_link.applied, with_link.conflicts) == (False, ("out/new",))
        assert list(outside.iterdir()) == []
        assert (workspace.project / "data/a").read_text() == "a"


async def test_what_cant_be_written_changes_nothing(
    workspace: Workspace, node: ServedNode, ref: str
) -> None:
    async with workspace.open() as rye:
        thread_id = await changed_on_node(rye, ref, {"data/a": "there", "out": "there"})
        (workspace.project / "out").mkdir()
        before = files_of(workspace.project)
        report = await rye.threads.pull(thread_id)
        assert (report.applied, report.conflicts) == (False, ("out",))
        assert files_of(workspace.project) == before


def test_a_full_disk_at_home_is_said_and_the_files_come_later(
    planned: PlannedWorkspace, node: ServedNode, ref: str
) -> None:
    project = planned.workspace.project

    def rye_command(*arguments: str) -> tuple[int, str]:
        ran = planned.fork(
            "ryecore.cli", *arguments, "--project", str(project),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = ran.communicate()
        return ran.returncode, out.decode()

    write = "open(project_path + '/data/a', 'w').write('x' * 2_000_000)"
    ref = planned.workspace.python("acme/big", f"def execute(params, project_path):\n    {write}\n")
    state = project / ".ai/state"
    state.mkdir(parents=True, exist_ok=True)
    with mount_small_disk(state, "3m"):
        (state / "filling").write_bytes(bytes(1_500_000))
        status, out = rye_command("execute", ref, "--target", "remote:gpu", "--pull")
        assert status == 2
        assert "can't be written: No space left on device." in out
        thread_id = out.rpartition("rye threads pull ")[2].strip()
        (state / "filling").unlink()
        assert rye_command("threads", "pull", thread_id)[0] == 0
        assert (project / "data/a").stat().st_size == 2_000_000


async def test_only_what_was_collected_on_a_node_is_pulled(
    workspace: Workspace, node: ServedNode, ref: str
) -> None:
    async with workspace.open() as rye:
        started = await rye.execute(ref, {}, target="remote:gpu", async_=True)
        await rye.threads.wait(started.data["thread_id"])
        with pytest.raises(InputError, match="--pull"):
            await rye.threads.pull(started.data["thread_id"])
        with pytest.raises(UnsupportedExecution):
            await rye.execute(ref, {}, pull=True)
        with pytest.raises(RyeError):
            await rye.threads.pull("missing")


def test_the_command_pulls(planned: PlannedWorkspace, node: ServedNode, ref: str) -> None:
    project = planned.workspace.project
    command = ["ryecore.cli", "execute", ref, "data/a=there", "--target", "remote:gpu", "--pull"]
    ran = planned.fork(
        *command,
        "--project",
        str(project),
        "--json",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = ran.communicate()
    assert ran.returncode == 0, err
    assert json.loads(out)["metadata"]["pull"]["changed"] == ["data/a"]
    assert (project / "data/a").read_text() == "there"


async def test_a_graph_on_a_node_is_a_run_at_home_with_its_budget(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    child = planned.write("child")
    nodes = {"one": {"action": {"item_id": child, "thread": "fork"}}}
    flow = graph(planned.workspace, nodes, permissions=("rye.execute.directive.*",))
    async with planned.workspace.open() as rye:
        done = await rye.execute(flow, target="remote:gpu")
        assert done.error is None
        assert isinstance(done.data, dict)
        thread_id = str(done.data["graph_run_id"])
        account = await rye.threads.account(thread_id)
        assert account.own.spend_microcents > 0
        assert (await rye.threads.verify(thread_id)).problems == ()


async def test_a_run_that_removes_its_own_records_keeps_its_result_and_its_changes(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    # The node may write a record meanwhile, so that a folder isn't empty as rm gets to it.
    clean = "while [ -e .ai/state ]; do rm -rf .ai/state; done"
    tool = planned.workspace.shell("acme/clean", f"echo made > made.txt; {clean}; echo done")
    ref = planned.write("work", ["rye_execute", {"item_id": tool, "parameters": {}}])
    flow = graph(planned.workspace, {"one": {"action": {"item_id": tool}}})
    async with planned.open() as rye:
        done = await (await rye.start(ref, target="remote:gpu", pull=True)).result()
        assert (done.status, "done" in done.text) == ("success", True)
        assert [one.mark for one in await rye.threads.charges(done.thread_id)] == ["assumed"]
        assert (await rye.threads.pull(done.thread_id)).added == ("made.txt",)
        with pytest.raises(StateError, match=r"On gpu: The run removed .* its result is lost"):
            await rye.execute(flow, target="remote:gpu", pull=True)


async def test_odd_names_come_home_exactly_or_not_at_all(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    plain = {"x.txt": "1", "X.txt": "2", "e\u0301": "3", "\u00e9": "4", "a b $(c) 'd'": "5"}
    odd = ("a\nb", "esc\x1b[31m", "rtl\u202e.txt", "back\\slash", "bad\udcff")
    lines = (f"open({name!r}, 'w').write({text!r})" for name, text in plain.items())
    more = (f"open({name!r}, 'w').close()" for name in odd)
    body = "\n".join(("def execute(params, project_path):", *(f"    {x}" for x in (*lines, *more))))
    tool = planned.workspace.python("acme/odd", body)
    async with planned.open() as rye:
        done = await rye.execute(tool, target="remote:gpu", pull=True)
        report = await rye.threads.pull(str(done.to_dict()["thread_id"]))
    assert set(report.added) == set(plain)
    assert set(report.left_out) == set(odd)
    assert files_of(planned.workspace.project) == dict(sorted(plain.items()))
    shown = str(report)
    assert not set(shown) & {"\x1b", "\u202e", "\udcff"}
    assert "  left out a\\nb  has a backslash or an unprintable character in its name" in shown
    assert "  left out bad\\udcff  has a name that isn't Unicode" in shown


async def test_errors_of_threads_and_graphs_on_a_node_name_the_files_at_home(
    planned: PlannedWorkspace, node: ServedNode
) -> None:
    workspace = planned.workspace
    workspace.write("tools/acme/unsigned.sh", "true", sign=False)
    flow = graph(workspace, {"one": {"action": {"item_id": "tool:acme/unsigned"}}})
    ref = planned.write("work")
    async with planned.open() as rye:
        failed = await rye.execute(flow, target="remote:gpu")
        node.allow(workspace.key, trust="operator")
        refused = await rye.execute(ref, thread="fork", target="remote:gpu")
    why = f"one: {workspace.path('tools/acme/unsigned.sh')} is not signed."
    assert why in str(failed.error)
    assert why in failed.data["error"]
    assert f"On gpu: {workspace.path('directives/acme/work.md')} was signed" in str(refused.error)
    assert refused.to_dict()["error_code"] == "integrity"
    assert str(node.identity.folder) not in str([failed.to_dict(), refused.to_dict()])
