"""Project files that a run on a node changed: brought home whole, or not at all."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ryecore import Rye
from ryecore.errors import InputError, RyeError, UnsupportedExecution
from tests.graphs import graph
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

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
