"""What a type checker sees of graphs. Checked by mypy and pyright, never run."""

from pathlib import Path
from typing import assert_type

from ryecore import Rye, SyncRye
from ryecore.results import (
    Graph,
    GraphReport,
    GraphResult,
    GraphRun,
    NodeStatus,
    RunCheckpoint,
    RunEvent,
    RunView,
    SyncGraphRun,
    ThreadRecords,
)


async def asynchronous() -> None:
    async with Rye.open(".") as rye:
        assert_type(await rye.graphs.load("tool:acme/flow"), Graph)
        assert_type(await rye.graphs.validate("tool:acme/flow"), GraphReport)
        done = await rye.graphs.run("tool:acme/flow", {"n": 1}, limits={"spend": 0.5})
        assert_type(done, GraphResult)
        assert_type(done.output, object)
        run = await rye.graphs.start("tool:acme/flow")
        assert_type(run, GraphRun)
        async for event in run.events():
            assert_type(event, RunEvent)
        assert_type(await run.result(), GraphResult)
        assert_type(await rye.graphs.step("tool:acme/flow", "load", state={"n": 1}), GraphResult)
        assert_type(await rye.graphs.resume(run.run_id, at=1, rerun=True), GraphResult)
        view = await rye.graphs.show(run.run_id)
        assert_type(view, RunView)
        assert_type(view.nodes["load"], NodeStatus)
        assert_type(view.checkpoints, tuple[RunCheckpoint, ...])
        assert_type(await rye.graphs.list(running=True), ThreadRecords)


def blocking() -> None:
    with SyncRye.open(Path()) as rye:
        assert_type(rye.graphs.load("tool:acme/flow"), Graph)
        assert_type(rye.graphs.validate("tool:acme/flow"), GraphReport)
        assert_type(rye.graphs.run("tool:acme/flow", {"n": 1}), GraphResult)
        run = rye.graphs.start("tool:acme/flow")
        assert_type(run, SyncGraphRun)
        for event in run.events():
            assert_type(event, RunEvent)
        assert_type(run.result(), GraphResult)
        assert_type(rye.graphs.show(run.run_id), RunView)
        assert_type(rye.graphs.list(), ThreadRecords)
