"""How far the tool of a running thread or graph is, in its events and in its tree."""

import os

import anyio
import pytest

from ryecore.policy import CallContext
from ryecore.policy.reports import ToolReport
from ryecore.threads.tree_node import TreeNode
from tests.graphs import graph
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


def importer(planned: PlannedWorkspace) -> str:
    """A tool that is halfway, until its pipe `go` is written to."""
    os.mkfifo(planned.root / "go")
    report = '{"progress": 1, "total": 2, "message": "reading"}'
    script = f"printf '{report}\\n' > \"$RYE_CHANNEL\"\ncat {planned.root}/go"
    return planned.workspace.shell("acme/import", script, reports=True)


async def test_a_tree_shows_how_far_the_tool_of_a_thread_is_until_it_has_ended(
    planned: PlannedWorkspace,
) -> None:
    planned.write("child", ["rye_execute", {"item_id": importer(planned)}])
    started = {"item_id": "directive:acme/child", "thread": "fork"}
    ref = planned.write("parent", ["rye_execute", started])
    reports: list[ToolReport] = []
    trees: list[TreeNode] = []

    def draw(tree: TreeNode) -> None:
        if not trees and any(one.note for one in tree.walk()):
            trees.append(tree)
            (planned.root / "go").write_text("on")

    async with planned.open() as rye:
        thread = await rye.start(ref, ctx=CallContext(report_sink=reports.append))
        with anyio.fail_after(30):
            last = await rye.threads.watch(thread.thread_id, draw, every_s=0.1)
        assert (await thread.result()).success
    [tree] = trees
    notes = {one.item_id: one.note for one in tree.walk()}
    assert notes["directive:acme/parent"] == ""  # whose own tool reports nothing
    said = notes["directive:acme/child"]
    assert said.startswith("acme/import  █████        50%")
    assert said.endswith("reading")
    assert "50%" in str(tree)
    assert "50%" in tree._repr_html_()
    assert [one.note for one in last.walk()] == ["", ""]
    assert len(reports) == 1  # the caller's own sink gets it once


async def test_the_events_and_the_tree_of_a_graph_have_the_progress_of_its_tools(
    planned: PlannedWorkspace,
) -> None:
    nodes = {"read": {"action": {"item_id": importer(planned)}}}
    ref = graph(planned.workspace, nodes, permissions=("rye.execute.*",))
    async with planned.open() as rye:
        run = await rye.graphs.start(ref)
        with anyio.fail_after(30):
            async for event in run.events():
                if event.type == "tool_progress":
                    assert event.payload["progress"] == 1
                    assert event.payload["item_id"] == "tool:acme/import"
                    assert "50%" in (await rye.threads.tree(run.run_id)).note
                    (planned.root / "go").write_text("on")
        assert (await run.result()).success
