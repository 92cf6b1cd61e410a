"""What must hold before a run begins: the runtime that is ours, the variables that it needs."""

import pytest

from ryecore.errors import ConfigError, InputError, StateError
from ryecore.graph.model import GRAPH_RUNTIME
from tests.graphs import graph
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

ENDS = {"done": {"type": "return", "output": "well"}}


async def test_a_runtime_that_stands_in_for_ours_is_not_walked_by_ours(
    workspace: Workspace,
) -> None:
    ref = graph(workspace, ENDS)
    config = {"command": "/bin/echo", "args": ['{"by": "another"}']}
    workspace.yaml(GRAPH_RUNTIME, tool_type="runtime", version="1.0.0", config=config)
    async with workspace.open() as rye:
        for refused in (rye.graphs.run, rye.graphs.load, rye.graphs.validate):
            with pytest.raises(InputError, match="a runtime of the project space") as caught:
                await refused(ref)
            assert "rye execute" in str(caught.value.next_step)
        assert (await rye.execute(ref)).data == {"by": "another"}
        assert (await rye.execute(ref, dry_run=True)).status == "validation_passed"


@pytest.mark.parametrize("of", ["graph", "node"])
async def test_a_projects_env_file_counts_as_it_does_for_tools(
    workspace: Workspace, of: str
) -> None:
    workspace.shell("acme/echo", "cat")
    called = {"item_id": "tool:acme/echo"}
    node = {"action": called, "next": "done", "env_requires": ["ACME_HOME"]}
    nodes = ENDS if of == "graph" else {"first": node, **ENDS}
    ref = graph(workspace, nodes, env_requires=("ACME_HOME",) if of == "graph" else ())
    async with workspace.open() as rye:
        with pytest.raises(ConfigError, match="requires ACME_HOME"):
            await rye.graphs.run(ref)
        (workspace.project / ".env").write_text("ACME_HOME=/srv/acme\n")
        assert (await rye.graphs.run(ref)).output == "well"
        assert (await rye.execute(ref)).success


@pytest.mark.parametrize("place", ["objects", "objects/3f", "graphs", "threads"])
async def test_a_link_in_the_place_of_a_state_folder_is_refused_before_a_run_is_registered(
    workspace: Workspace, place: str
) -> None:
    workspace.shell("acme/echo", "cat")
    remembered = {"action": {"item_id": "tool:acme/echo"}, "cache_result": True, "next": "done"}
    ref = graph(workspace, {"first": remembered, **ENDS})
    (workspace.root / "outside").mkdir()
    link = workspace.path(f"state/{place}")
    link.parent.mkdir(parents=True)
    link.symlink_to(workspace.root / "outside")
    async with workspace.open() as rye:
        for start in (
            lambda: rye.graphs.run(ref),
            lambda: rye.graphs.step(ref, "done"),
            lambda: rye.execute(ref),
            lambda: rye.execute(ref, async_=True),
        ):
            with pytest.raises(StateError, match="is a link") as refused:
                await start()
            assert str(link) in refused.value.message
        assert list((workspace.root / "outside").iterdir()) == []
        link.unlink()
        assert await rye.graphs.list() == ()
        assert (await rye.graphs.run(ref)).output == "well"


async def test_a_variable_that_no_env_file_may_set_is_still_missing(workspace: Workspace) -> None:
    ref = graph(workspace, ENDS, env_requires=("RYE_ACME",))
    (workspace.project / ".env").write_text("RYE_ACME=1\n")
    async with workspace.open() as rye:
        with pytest.raises(ConfigError, match="requires RYE_ACME"):
            await rye.graphs.run(ref)
    async with workspace.open(environ={**workspace.environ, "RYE_ACME": "1"}) as rye:
        assert (await rye.graphs.run(ref)).output == "well"
