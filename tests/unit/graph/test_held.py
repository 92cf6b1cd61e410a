"""A run may do no more than its caller, its parent, and the run that it goes on with."""

from pathlib import Path

import pytest

from ryecore.policy import CallContext
from tests.graphs import graph
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

FLOW, SECRET = "rye.execute.tool.acme.flow", "rye.execute.tool.acme.secret"


@pytest.fixture
def anyio_backend() -> str:
    """What is granted is no matter of the loop."""
    return "asyncio"


@pytest.fixture
def done(workspace: Workspace, tmp_path: Path) -> Path:
    """What the secret tool leaves where it ran."""
    mark = tmp_path / "done"
    workspace.shell("acme/secret", f'touch "{mark}"; echo {{}}')
    graph(workspace, {"a": {"action": {"item_id": "tool:acme/secret"}}}, permissions=(SECRET,))
    return mark


async def test_who_goes_on_with_a_weak_callers_run_lends_it_nothing(
    workspace: Workspace, done: Path
) -> None:
    weak = CallContext(capabilities=frozenset({FLOW}))
    async with workspace.open() as rye:
        denied = await rye.graphs.run("acme/flow", ctx=weak)
        assert denied.failed is not None
        assert denied.failed.code == "tool_denied"
        again = await rye.graphs.resume(denied.run_id)
        assert again.failed is not None
        assert again.failed.code == "tool_denied"
        third = await rye.graphs.resume(again.run_id)
        assert third.status == "error"
        assert not done.exists()
        assert (await rye.graphs.run("acme/flow")).status == "success"
    assert done.exists()


async def test_a_parent_bounds_a_run_whoever_starts_it(workspace: Workspace, done: Path) -> None:
    workspace.shell("acme/slow", "exec sleep 60")
    slow = "rye.execute.tool.acme.slow"
    nodes = {"a": {"action": {"item_id": "tool:acme/slow"}}}
    graph(workspace, nodes, "acme/parent", permissions=(slow,))
    async with workspace.open() as rye:
        parent = await rye.graphs.start("acme/parent")
        child = await rye.graphs.run("acme/flow", ctx=CallContext(budget_account=parent.run_id))
        await parent.cancel()
        await parent.result()
    assert child.failed is not None
    assert child.failed.code == "tool_denied"
    assert not done.exists()
