"""A graph as a picture: its nodes and edges, and what happened at each in a run."""

import pytest

from ryecore.display import to_mermaid, to_svg
from ryecore.graph.live import render_live
from ryecore.graph.picture import graph_picture
from ryecore.graph.projection import RunStatus
from ryecore.graph.rendering import render_graph
from ryecore.policy.conditions import describe_condition, read_condition
from ryecore.state.events import RunEvent
from tests.unit.graph.seeing import see_run
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

FLOW = {
    "start": "list",
    "max_steps": 20,
    "state": {"files": [], "score": 0},
    "nodes": {
        "done": {"type": "return", "output": {"score": "${state.score}"}},
        "list": {
            "action": {"item_id": "tool:acme/list"},
            "assign": {"files": "${result.files}"},
            "next": "read",
            "on_error": "sorry",
        },
        "read": {
            "type": "foreach",
            "over": "${state.files}",
            "action": {"item_id": "tool:acme/read", "params": {"file": "${item}"}},
            "parallel": True,
            "max_concurrency": 4,
            "next": "enough",
        },
        "enough": {
            "type": "gate",
            "next": [
                {"to": "list", "when": {"path": "state.score", "op": "lt", "value": 0}},
                {"to": "done"},
            ],
        },
        "sorry": {"type": "return", "output": None},
    },
}


@pytest.fixture
def flow(workspace: Workspace) -> Workspace:
    workspace.python("acme/list", "def execute(params, project): return {'files': ['a', 'b', 'c']}")
    workspace.python("acme/read", "def execute(params, project): return {'size': 1}")
    workspace.yaml(
        "acme/flow",
        executor_id="rye/core/runtimes/state-graph/runtime",
        permissions=["rye.execute.tool.acme.*"],
        config=FLOW,
    )
    return workspace


def boxes(picture):
    return {box.id: box for box in picture.boxes}


def lines(picture):
    return {(one.start, one.end): one for one in picture.lines}


async def test_a_graph_by_itself_shows_what_each_node_does(flow):
    async with flow.open() as rye:
        graph = await rye.graphs.load("tool:acme/flow")
    picture = graph_picture(graph)
    shown, edges = boxes(picture), lines(picture)
    assert [box.id for box in picture.boxes][:2] == ["", "list"]  # what begins stands at the top
    assert {box.shape for box in picture.boxes} == {"box", "diamond", "stack", "round"}
    assert {box.status for box in picture.boxes} == {""}
    assert shown["list"].details == ("tool:acme/list",)
    assert "for each of ${state.files}, 4 at a time" in shown["read"].details
    assert edges["enough", "list"].label == "state.score < 0"
    assert edges["enough", "done"].label == "else"
    assert (edges["list", "sorry"].label, edges["list", "sorry"].kind) == ("on error", "dashed")
    assert edges["", "list"].label == ""
    html = graph._repr_html_()
    assert html.count("<svg ") == 1
    assert "flowchart TD" in to_mermaid(picture)


async def test_a_run_shows_where_it_went(flow):
    async with flow.open() as rye:
        graph = await rye.graphs.load("tool:acme/flow")
        run = await rye.graphs.start("tool:acme/flow")
        done = await run.result()
        events = [event async for event in run.events()]
    assert done.success, done
    seen = see_run(events)
    assert seen.ended == "completed"
    picture = graph_picture(graph, seen)
    shown, edges = boxes(picture), lines(picture)
    for node in ("list", "read", "enough", "done"):
        assert shown[node].status == "completed", shown[node]
    assert shown["sorry"].status == "skipped"
    assert "3 of 3 done" in shown["read"].details
    for way in (("", "list"), ("list", "read"), ("read", "enough"), ("enough", "done")):
        assert edges[way].is_taken, way
    assert not edges["enough", "list"].is_taken
    assert not edges["list", "sorry"].is_taken


async def test_what_failed_says_why_and_where_it_led(flow):
    flow.python("acme/list", "def execute(params, project): raise ValueError('<b>no</b> files')")
    async with flow.open() as rye:
        graph = await rye.graphs.load("tool:acme/flow")
        run = await rye.graphs.start("tool:acme/flow")
        await run.result()
        seen = see_run([event async for event in run.events()])
    picture = graph_picture(graph, seen)
    shown, edges = boxes(picture), lines(picture)
    assert shown["list"].status == "failed"
    assert shown["list"].details[-1] == "ValueError: <b>no</b> files"
    assert edges["list", "sorry"].is_taken
    assert not edges["list", "read"].is_taken
    assert shown["read"].status == "skipped"
    assert "<b>" not in to_svg(picture)


def told(*events: tuple[str, dict[str, object]]) -> RunStatus:
    return see_run(RunEvent("acme/flow-1", 0.0, kind, payload) for kind, payload in events)


def test_while_it_runs_the_next_is_pending_and_a_retry_is_told():
    started = ("node_started", {"node": "list"})
    assert told(started).nodes["list"].status == "running"
    retry = ("node_retry", {"node": "list", "error": "busy", "wait_s": 0.1})
    assert told(started, retry).nodes["list"].status == "retrying"
    assert told(started, retry, started).nodes["list"].status == "running"


@pytest.mark.parametrize(
    ("end", "status"),
    [("run_killed", "cancelled"), ("run_cancelled", "cancelled"), ("run_error", "failed")],
)
def test_what_was_in_flight_when_it_ended_does_not_run_any_more(end, status):
    seen = told(("node_started", {"node": "list"}), (end, {}))
    assert seen.nodes["list"].status == status


def test_a_foreach_counts_its_members_as_they_end():
    seen = told(
        ("node_started", {"node": "read", "count": 3}),
        ("item_completed", {"node": "read", "index": 0, "result": 1}),
        ("item_completed", {"node": "read", "index": 2, "error": "no"}),
    ).nodes["read"]
    assert (seen.members, seen.done, seen.failed) == (3, 2, 1)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"path": "state.n", "op": "gte", "value": 2}, "state.n ≥ 2"),
        ({"path": "state.n", "value": "a"}, 'state.n = "a"'),
        ({"path": "state.n", "op": "exists"}, "state.n is there"),
        ({"path": "state.n", "op": "exists", "value": False}, "state.n is absent"),
        ({"path": "state.n", "op": "in", "value": ["é"]}, 'state.n in ["é"]'),
        ({"path": "state.n", "op": "regex", "value": "^a"}, 'state.n matches "^a"'),
        (
            {"all": [{"path": "a", "value": 1}, {"any": [{"path": "b"}, {"not": {"path": "c"}}]}]},
            "a = 1 and (b = null or not c = null)",
        ),
        ({"all": []}, "always"),
        ({"any": []}, "never"),
    ],
)
def test_a_condition_in_words(condition, said):
    assert describe_condition(read_condition(condition)) == said


async def test_a_foreach_with_failed_members_is_not_drawn_as_all_well(flow):
    async with flow.open() as rye:
        graph = await rye.graphs.load("tool:acme/flow")
    run = told(
        ("node_started", {"node": "read", "count": 3}),
        ("node_completed", {"node": "read", "status": "completed", "count": 3, "failed": 1}),
        ("run_completed", {"status": "completed_with_errors"}),
    )
    picture = graph_picture(graph, run)
    assert boxes(picture)["read"].status == "completed_with_errors"
    assert "completed with errors" in to_svg(picture)
    assert "class n" in to_mermaid(picture)
    text = render_graph(graph, run).html()
    assert '<span style="color:#bf8700">! </span><span style="font-weight:600">read' in text
    live = render_live(graph, run, width=80, rows=9, now=200.0).plain()
    assert "! read" in live


async def test_a_graph_prints_as_the_command_line_shows_it(flow):
    async with flow.open() as rye:
        graph = await rye.graphs.load("tool:acme/flow")
    assert str(graph) == render_graph(graph).plain()
    assert "for each of ${state.files}" in str(graph)
