"""rye.graphs.show and list, the graphs of a SyncRye, and how runs look in a notebook."""

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import anyio.to_thread
import pytest

from ryecore import CallContext, IntegrityError, SyncRye
from ryecore.errors import InputError, ThreadNotFound
from tests.graphs import graph
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

NODES = {
    "first": {"action": {"item_id": "tool:acme/work"}, "assign": {"n": 1}, "next": "second"},
    "second": {"action": {"item_id": "tool:acme/stop"}, "next": "done"},
    "done": {"type": "return", "output": "${state.n}"},
}


@pytest.fixture
def failing(workspace: Workspace) -> str:
    workspace.shell("acme/work", "true")
    workspace.shell("acme/stop", "echo low >&2; false")
    return graph(workspace, NODES, inputs={"n": {"type": "integer"}}, state={"n": 0})


@pytest.fixture
def rye(workspace: Workspace) -> Iterator[SyncRye]:
    with workspace.sync() as opened:
        yield opened


def svg_of(html: str) -> str:
    begin, end = html.index("<svg"), html.index("</svg>") + len("</svg>")
    ET.fromstring(html[begin:end])
    return html[begin:end]


async def test_a_run_is_shown_with_all_that_resuming_it_needs(
    workspace: Workspace, failing: str
) -> None:
    async with workspace.open() as rye:
        done = await rye.graphs.run(failing, {"n": 3})
        view = await rye.graphs.show(done.run_id)
        (row,) = await rye.graphs.list()
        assert await rye.graphs.list(running=True) == ()
    assert row.thread_id == view.run_id == done.run_id
    assert (view.status, view.node, view.steps, view.ended) == ("error", "second", 2, True)
    assert view.error == done.error
    assert (view.inputs, view.state) == ({"n": 3}, {"n": 1})
    assert [(one.step, one.node) for one in view.checkpoints] == [
        (0, "first"),
        (1, "second"),
        (2, "second"),
    ]
    assert {name: one.status for name, one in view.nodes.items()} == {
        "first": "completed",
        "second": "failed",
    }
    assert view.next_step == f"rye graph resume {done.run_id}"
    assert json.loads(json.dumps(view.to_dict()))["nodes"]["second"]["error"] == "low"
    assert "✗ second" in str(view)
    assert repr(view) == f"RunView({done.run_id!r}, error)"


async def test_resuming_is_offered_only_where_it_can_help(workspace: Workspace) -> None:
    typed = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    workspace.shell("acme/typed", "echo 1", config_schema=typed)
    call = {"item_id": "tool:acme/typed", "params": {"n": "${inputs.n}"}}
    first = {"action": {"item_id": "tool:rye/bash", "params": {"command": "echo 1"}}, "next": "a"}
    permissions = ("rye.execute.tool.*",)
    async with workspace.open() as rye:
        ref = graph(workspace, {"a": {"action": call}}, permissions=permissions)
        at_once = await rye.graphs.show((await rye.graphs.run(ref, {"n": "x"})).run_id)
        ref = graph(workspace, {"first": first, "a": {"action": call}}, permissions=permissions)
        changed = await rye.graphs.show(at_once.run_id)
        later = await rye.graphs.show((await rye.graphs.run(ref, {"n": "x"})).run_id)
        assert (await rye.graphs.run(ref, {"n": 1})).success
    assert at_once.next_step == f"rye graph run {ref} KEY=VALUE"
    assert changed.next_step == f"rye graph resume {at_once.run_id} --changed"
    assert later.next_step == f"rye graph resume {later.run_id} --set KEY=VALUE"


async def test_what_follows_a_run_is_said_by_both(workspace: Workspace, failing: str) -> None:
    async with workspace.open() as rye:
        first = await rye.graphs.run(failing)
        workspace.shell("acme/stop", "true")
        second = await rye.graphs.resume(first.run_id)
        before = await rye.graphs.show(first.run_id)
        after = await rye.graphs.show(second.run_id)
    assert second.output == 1
    assert before.followed_by == second.run_id
    assert before.next_step == f"rye graph show {second.run_id}"
    assert f"by {second.run_id}" in str(before)
    assert after.record.continuation_of == first.run_id
    assert (after.status, after.next_step, after.node) == ("completed", "", None)


async def test_a_run_is_shown_though_its_graph_has_changed_or_gone(
    workspace: Workspace, failing: str
) -> None:
    async with workspace.open() as rye:
        run_id = (await rye.graphs.run(failing)).run_id
        graph(workspace, NODES, inputs={"n": {"type": "integer"}}, state={"n": 7})
        changed = await rye.graphs.show(run_id)
        workspace.path("tools/acme/flow.yaml").write_text("x: 1\n")
        gone = await rye.graphs.show(run_id)
    assert changed.is_changed
    assert changed.next_step == f"rye graph resume {run_id} --changed"
    assert gone.graph is None
    assert gone.nodes.keys() == {"first", "second"}
    assert "✗ second" in str(gone)
    assert "<svg" not in gone._repr_html_()


async def test_a_journal_that_can_not_be_read_is_said(workspace: Workspace, failing: str) -> None:
    async with workspace.open() as rye:
        run_id = (await rye.graphs.run(failing)).run_id
        path = workspace.path(f"state/threads/{run_id}/transcript.jsonl")
        path.unlink()
        path.mkdir()
        view = await rye.graphs.show(run_id)
    assert view.problem
    assert (view.status, view.state) == ("error", None)
    assert "unread" in str(view)


async def test_what_is_no_run_is_refused(workspace: Workspace, failing: str) -> None:
    async with workspace.open() as rye:
        with pytest.raises(ThreadNotFound):
            await rye.graphs.show("acme/flow/flow-1")
        launched = await rye.execute("tool:acme/work", async_=True)
        thread_id = str(launched.to_dict()["thread_id"])
        await rye.threads.wait(thread_id)
        with pytest.raises(InputError, match="a run of a graph"):
            await rye.graphs.show(thread_id)
        assert await rye.graphs.list() == ()
        with pytest.raises(InputError):
            await rye.graphs.list(limit=1001)


async def test_a_graph_whose_file_was_altered_is_not_examined(
    workspace: Workspace, failing: str
) -> None:
    path = workspace.path("tools/acme/flow.yaml")
    path.write_text(path.read_text().replace("second", "secund"))
    async with workspace.open() as rye:
        with pytest.raises(IntegrityError):
            await rye.graphs.validate(failing)


async def test_only_who_may_execute_a_graph_examines_it(workspace: Workspace, failing: str) -> None:
    weak = CallContext(capabilities=frozenset())
    async with workspace.open() as rye:
        assert (await rye.graphs.validate(failing)).is_valid
        with pytest.raises(InputError, match="lacks the capability"):
            await rye.graphs.validate(failing, ctx=weak)


async def test_runs_and_results_draw_themselves(workspace: Workspace, failing: str) -> None:
    workspace.shell("acme/stop", "cat go")
    os.mkfifo(workspace.project / "go")
    async with workspace.open() as rye:
        run = await rye.graphs.start(failing)
        async for event in run.events():
            if event.type == "node_started" and event.payload["node"] == "second":
                break
        live = run._repr_html_()
        assert "running" in svg_of(live)
        assert run.run_id in live
        await anyio.to_thread.run_sync((workspace.project / "go").write_text, "on\n")
        done = await run.result()
        for shown in (run, done, await rye.graphs.show(run.run_id)):
            html = shown._repr_html_()
            assert "completed" in svg_of(html)
            assert "running" not in svg_of(html)
        svg_of((await rye.graphs.load(failing))._repr_html_())
        report = (await rye.graphs.validate(failing))._repr_html_()
        assert re.match(r'<pre style="font-family:[^"]*monospace', report), "columns line up"


async def test_a_run_draws_itself_whatever_became_of_its_journal(
    workspace: Workspace, failing: str
) -> None:
    async with workspace.open() as rye:
        run = await rye.graphs.start(failing)
        await run.result()
        run._result = None
        path = workspace.path(f"state/threads/{run.run_id}/transcript.jsonl")
        path.unlink()
        assert "can&#x27;t be read" in run._repr_html_()


def test_a_sync_rye_has_the_same_verbs(workspace: Workspace, rye: SyncRye, failing: str) -> None:
    assert rye.graphs.load(failing).start == "first"
    assert rye.graphs.validate(failing).is_valid
    done = rye.graphs.run(failing, {"n": 1})
    assert done.ended == "error"
    assert rye.graphs.show(done.run_id).node == "second"
    assert [one.thread_id for one in rye.graphs.list()] == [done.run_id]
    stepped = rye.graphs.step(failing, "done", state={"n": 5})
    assert stepped.success
    workspace.shell("acme/stop", "true")
    assert rye.graphs.resume(done.run_id).output == 1
    assert rye.graphs.forget_results() == 0
    started = rye.graphs.start(failing)
    kinds = [event.type for event in started.events()]
    assert (kinds[0], kinds[-1]) == ("run_started", "checkpoint")
    assert started.result().output == 1
    assert (started.status(), started.item_id) == ("completed", failing)
    assert started.graph.start == "first"
    assert started.cost().tokens == 0
    svg_of(started._repr_html_())


def test_a_sync_run_is_stopped(workspace: Workspace, rye: SyncRye) -> None:
    workspace.shell("acme/hang", "sleep 300")
    nodes = {
        "hang": {"action": {"item_id": "tool:acme/hang"}, "next": "d"},
        "d": {"type": "return"},
    }
    run = rye.graphs.start(graph(workspace, nodes))
    for event in run.events():
        if event.type == "node_started":
            run.cancel()
    assert run.result().ended == "cancelled"
    assert repr(run) == f"SyncGraphRun({run.run_id!r})"
