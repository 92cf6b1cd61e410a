"""What is seen of a run, event by event; and how that is drawn while it goes on."""

from collections.abc import Mapping

import pytest

from ryecore.chain.primitives import EFFECT_UNKNOWN
from ryecore.display.text import brief, count_columns, main_line
from ryecore.graph.live import render_live
from ryecore.graph.model import Graph
from ryecore.graph.projection import RunStatus
from ryecore.graph.rendering import bar, render_graph
from ryecore.policy.budget import Amount
from ryecore.state.events import RunEvent
from tests.graphs import graph as written
from tests.unit.graph.seeing import see_run
from tests.workspace import Workspace

RUN = "acme/flow/flow-1"
Told = tuple[str, Mapping[str, object]]


def seen(*events: Told) -> RunStatus:
    """What is seen after these events, each a second after the one before."""
    return see_run(
        RunEvent(RUN, 100.0 + second, kind, payload)
        for second, (kind, payload) in enumerate(events)
    )


def over(node: str, **facts: object) -> Told:
    told = {"node": node, "status": "completed", "elapsed_ms": 1500.0, "next": "done"}
    return "node_completed", {**told, **facts}


@pytest.fixture
def flow(workspace: Workspace) -> Graph:
    workspace.shell("acme/work", "true")
    nodes = {
        "load": {
            "action": {"item_id": "tool:acme/work"},
            "on_error": "sorry",
            "next": [
                {"to": "each", "when": {"path": "result", "op": "exists"}},
                {"to": "done"},
            ],
        },
        "each": {
            "type": "foreach",
            "over": "${state.all}",
            "action": {"item_id": "tool:acme/work"},
            "next": "done",
        },
        "sorry": {"type": "return", "output": "sorry"},
        "done": {"type": "return"},
    }
    with workspace.sync() as rye:
        return rye.graphs.load(written(workspace, nodes, state={"all": [1]}))


def test_a_node_that_runs_is_known_with_its_beginning() -> None:
    run = seen(("run_started", {}), ("node_started", {"node": "load", "try": 1}))
    assert run.nodes["load"].status == "running"
    assert run.nodes["load"].started_at == 101.0
    assert (run.started_at, run.ended, run.steps) == (100.0, "", 0)


def test_tries_errors_and_ways_are_kept() -> None:
    run = seen(
        ("node_started", {"node": "load", "try": 1}),
        ("node_retry", {"node": "load", "try": 1, "error": "ebb"}),
        ("node_started", {"node": "load", "try": 2}),
        over("load", **{"try": 2, "status": "failed", "error": "low", "next": "sorry"}),
        ("state_checkpoint", {"step": 1, "node": "sorry"}),
    )
    assert (run.nodes["load"].status, run.nodes["load"].tries) == ("failed", 2)
    assert run.nodes["load"].error == "low"
    assert run.taken == {("load", "sorry", True)}
    assert (run.steps, run.node) == (1, "sorry")


def test_members_are_counted_also_those_that_a_resumed_run_knows() -> None:
    item = {"node": "each", "index": 0}
    run = seen(
        ("item_completed", {**item, "carried": True}),
        ("node_started", {"node": "each", "count": 4}),
        ("item_completed", {**item, "index": 1, "error": "no"}),
    )
    each = run.nodes["each"]
    assert (each.members, each.done, each.failed, each.status) == (4, 2, 1, "running")


def test_a_second_visit_counts_anew() -> None:
    visit = (
        ("node_started", {"node": "each", "count": 1}),
        ("item_completed", {"node": "each", "index": 0}),
        over("each", count=1, done=1, failed=0),
    )
    run = seen(*visit, *visit[:1])
    assert (run.nodes["each"].done, run.nodes["each"].times) == (0, 1)
    assert seen(*visit, *visit).nodes["each"].elapsed_ms == 3000.0


@pytest.mark.parametrize(
    ("ended", "status"), [("run_error", "failed"), ("run_cancelled", "cancelled")]
)
def test_what_ran_when_the_run_ended_has_ended_with_it(ended: str, status: str) -> None:
    run = seen(("node_started", {"node": "load"}), (ended, {"status": ended[4:], "error": "x"}))
    assert run.nodes["load"].status == status
    assert (run.error, run.ended_at) == ("x", 101.0)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("rows", [1, 2, 50])
def test_a_live_view_fits_its_terminal(flow: Graph, width: int, rows: int) -> None:
    run = seen(
        ("run_started", {}),
        over("load", next="each"),
        ("state_checkpoint", {"step": 1, "node": "each"}),
        ("node_started", {"node": "each", "count": 5000}),
        *[("item_completed", {"node": "each", "index": 1, "error": "x" * 200})] * 120,
    )
    cost = Amount(123_000_000, 4567)
    text = render_live(flow, run, width=width, rows=rows, now=200.0, cost=cost).plain()
    lines = text.splitlines()
    assert max(map(count_columns, lines)) <= width
    assert len(lines) == 1 + min(rows, 4) + (rows < 4)
    assert any(line.lstrip().startswith("▸ each") for line in lines[1:])
    if width >= 80:
        assert "120/5,000" in text
        assert "120 failed" in text
        assert "4.6k tokens" in lines[0]
        assert "$1.23" in lines[0]


def test_a_bar_is_full_only_where_all_is_done() -> None:
    assert bar(0, 10) == ("", "─" * 10)
    assert bar(0.999, 10)[0] != "━" * 10
    assert bar(1, 10) == ("━" * 10, "")
    assert bar(7, 10) == ("━" * 10, "")


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_a_graph_as_text_fits_and_says_where_it_leads(flow: Graph, width: int) -> None:
    run = seen(over("load", next="each"), over("each", count=3, done=3, failed=1))
    for text in (render_graph(flow, width=width), render_graph(flow, run, width=width)):
        lines = text.plain().splitlines()
        assert max(map(count_columns, lines[4:])) <= width
        assert any("→ sorry  on error" in line for line in lines)
        assert any("→ each  result is there" in line for line in lines)


def test_the_taken_ways_stand_out(flow: Graph) -> None:
    ways = {
        span: style
        for line in render_graph(flow, seen(over("load", next="each")), width=100).lines
        for span, style in line
        if span.startswith("→")
    }
    assert (ways["→ each"], ways["→ done"], ways["→ sorry"]) == ("good", "dim", "dim")


def test_the_line_of_an_error_that_says_most() -> None:
    traceback = 'b: Traceback (most recent call last):\n  File "x"\nValueError: No tide.\n'
    assert main_line(traceback) == "ValueError: No tide."
    assert main_line(f"{traceback}{EFFECT_UNKNOWN}") == "ValueError: No tide."
    longer = traceback.replace("No tide.", "No tide:\n  none\nat all.")
    assert main_line(longer) == "ValueError: No tide:"
    assert main_line("no\nmore") == "no"
    assert main_line("") == ""
    assert count_columns(brief({"a": "x" * 9999})) == 400
