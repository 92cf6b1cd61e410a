"""rye.graphs: what callers give it, and what they are told once its Rye is closed."""

from typing import Any

import anyio
import pytest

from ryecore.errors import InputError, InvalidItemId, RyeClosed, ToolFailed
from tests.graphs import graph
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

NOTHING = {"done": {"type": "return"}}


@pytest.mark.parametrize("given", [[1], "x", 5, [("x", 1)], {1: 2}])
async def test_what_is_no_mapping_is_refused_by_its_name(workspace: Workspace, given: Any) -> None:
    ref = graph(workspace, NOTHING)
    async with workspace.open() as rye:
        ended = await rye.graphs.run(ref)
        with pytest.raises(InputError, match=r"Inputs must (be a mapping|have text keys), not"):
            await rye.graphs.run(ref, given)
        with pytest.raises(InputError, match="Inputs must"):
            await rye.graphs.start(ref, given)
        with pytest.raises(InputError, match="Limits must"):
            await rye.graphs.run(ref, limits=given)
        with pytest.raises(InputError, match="Values of the state must"):
            await rye.graphs.step(ref, "done", state=given)
        with pytest.raises(InputError, match="Values of the state must"):
            await rye.graphs.resume(ended.run_id, at=0, state=given)
        assert len(await rye.graphs.list()) == 1


async def test_a_failed_runs_exception_names_the_graph_and_the_next_step(
    workspace: Workspace,
) -> None:
    workspace.shell("acme/fail", "exit 3")
    async with workspace.open() as rye:
        ref = graph(workspace, {"fail": {"action": {"item_id": "tool:acme/fail"}}})
        done = await rye.graphs.run(ref)
        with pytest.raises(ToolFailed, match=f"^{ref} failed: fail: ") as failure:
            done.raise_for_status()
    assert failure.value.next_step.endswith(f": rye graph show {done.run_id}")
    assert failure.value.data == done.data


async def test_a_run_has_the_labels_that_it_is_given(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        ref = graph(workspace, NOTHING)
        await rye.graphs.run(ref, labels={"tenant": "acme"})
        started = await rye.graphs.start(ref, labels={"tenant": "acme", "day": "monday"})
        await started.result()
        runs = await rye.graphs.list()
        with pytest.raises(InputError, match=r"[Ll]abel"):
            await rye.graphs.run(ref, labels={"tenant": 7})  # type: ignore[dict-item]
    acme = {"tenant": "acme"}
    assert [dict(one.labels) for one in runs] == [acme | {"day": "monday"}, acme]


@pytest.mark.parametrize("given", [None, 5, "", b"x"])
async def test_what_names_no_graph_is_refused(workspace: Workspace, given: Any) -> None:
    async with workspace.open() as rye:
        with pytest.raises(InvalidItemId, match="A graph is required"):
            await rye.graphs.run(given)


async def test_a_step_of_no_node_runs_none(workspace: Workspace) -> None:
    """It ran the whole graph."""
    nothing: Any = None
    async with workspace.open() as rye:
        with pytest.raises(InputError, match="None is not text"):
            await rye.graphs.step(graph(workspace, NOTHING), nothing)
        with pytest.raises(InputError, match="None is not text"):
            await rye.graphs.start_step(graph(workspace, NOTHING), nothing)
        assert await rye.graphs.list() == ()


async def test_a_misspelt_option_is_refused_and_runs_nothing(workspace: Workspace) -> None:
    wrong: Any = {"limit": {"turns": 1}}
    async with workspace.open() as rye:
        ref = graph(workspace, NOTHING)
        for call in (rye.graphs.run, rye.graphs.start, rye.graphs.resume, rye.graphs.start_resume):
            with pytest.raises(TypeError, match="'limit'"):
                await call(ref, **wrong)
        for step in (rye.graphs.step, rye.graphs.start_step):
            with pytest.raises(TypeError, match="'limit'"):
                await step(ref, "done", **wrong)
        assert await rye.graphs.list() == ()


async def test_who_waits_for_a_run_whose_rye_is_closed_is_told(workspace: Workspace) -> None:
    """And isn't cancelled himself by the cancellation that ended the run."""
    workspace.shell("acme/stay", "sleep 300")
    async with workspace.open() as rye:
        run = await rye.graphs.start(
            graph(workspace, {"stay": {"action": {"item_id": "tool:acme/stay"}}})
        )
    with (
        anyio.fail_after(10),
        pytest.raises(RyeClosed, match="closed while acme/flow/flow-") as told,
    ):
        await run.result()
    assert told.value.next_step == f"Resume it: rye graph resume {run.run_id}"
    async with workspace.open() as rye:
        assert (await rye.graphs.show(run.run_id)).status == "cancelled"
