"""A run's progress as lines."""

from typing import Any

import pytest

from ryecore.graph.live import ProgressLines
from ryecore.state.events import RunEvent

RUN = "acme/flow/flow-1"


def line(*events: tuple[str, dict[str, Any]], nodes: int = 12) -> str | None:
    """The line of the last event, each a second after the one before."""
    lines, said = ProgressLines(nodes), None
    for second, (kind, payload) in enumerate(events):
        said = lines.line(RunEvent(RUN, 100.0 + second, kind, payload))
    return said


def node(**facts: Any) -> tuple[str, dict[str, Any]]:
    told = {"step": 3, "node": "load", "type": "action", "status": "completed", "elapsed_ms": 1234}
    return "node_completed", {**told, **facts}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "step 3/12 load ✓ 1.2s"),
        ({"step": 13}, "step 13 load ✓ 1.2s"),
        ({"cache_hit": True, "elapsed_ms": 0.2}, "step 3/12 load ✓ 0.0s (remembered)"),
        ({"try": 2}, "step 3/12 load ✓ 1.2s (try 2)"),
        ({"status": "failed", "error": "no\nmore"}, "step 3/12 load ✗ 1.2s (no)"),
        ({"status": "failed", "error": "off", "code": "cancelled"}, "step 3/12 load ■ 1.2s (off)"),
    ],
)
def test_a_node_that_has_ended_is_a_line(facts: dict[str, Any], said: str) -> None:
    assert line(node(**facts)) == f"[graph:{RUN}] {said}"


def test_a_foreach_says_how_many_once() -> None:
    many = ("foreach_completed", {"node": "each", "count": 5, "failed": 1})
    assert line(many, node(node="each")) == (
        f"[graph:{RUN}] step 3/12 each ! 1.2s (5 items, 1 failed)"
    )
    one = ("foreach_completed", {"node": "each", "count": 1})
    assert "(1 item)" in str(line(one, node(node="each")))
    assert line(many, node(), node()) == f"[graph:{RUN}] step 3/12 load ✓ 1.2s"


def lines(*events: tuple[str, dict[str, Any]]) -> list[str]:
    told = ProgressLines(12)
    said = [told.line(RunEvent(RUN, 100.0, kind, payload)) for kind, payload in events]
    return [one for one in said if one is not None]


def test_a_long_foreach_says_each_tenth() -> None:
    begun = ("node_started", {"node": "each", "count": 50})
    member = ("item_completed", {"node": "each", "index": 0})
    step = ("state_checkpoint", {"step": 2, "node": "each"})
    said = lines(step, begun, *[member] * 50)
    assert len(said) == 9
    assert said[0] == f"[graph:{RUN}] step 3/12 each … 5/50"
    assert said[-1].endswith("each … 45/50")
    carried = ("item_completed", {"node": "each", "index": 0, "carried": True})
    resumed = lines(step, *[carried] * 30, begun, *[member] * 20)
    assert [one.rpartition(" ")[2] for one in resumed] == ["35/50", "40/50", "45/50"]
    assert lines(("node_started", {"node": "each", "count": 19}), *[member] * 19) == []


def test_the_end_does_not_repeat_what_a_nodes_line_said() -> None:
    failed = node(status="failed", error="the tide is out")
    end = ("run_error", {"status": "error", "steps": 3, "error": "load: the tide is out"})
    assert [one.count("the tide is out") for one in lines(failed, end)] == [1, 0]
    assert [one.count("the tide is out") for one in lines(node(), end)] == [0, 1]


def test_a_node_says_where_it_leads() -> None:
    assert line(node(next="sum")) == f"[graph:{RUN}] step 3/12 load ✓ 1.2s → sum"
    failed = node(status="failed", error="Traceback (most recent call last):\n  x\nOSError: no")
    assert str(line(failed)).endswith("load ✗ 1.2s (OSError: no)")


def test_a_try_that_comes_again_says_why() -> None:
    retry = {"node": "load", "try": 1, "wait_s": 0.25, "error": "the tide is out"}
    assert line(("node_retry", retry)) == (f"[graph:{RUN}] load … (again in 0.2s: the tide is out)")
    member = ("item_retry", {**retry, "index": 7})
    assert str(line(member)).startswith(f"[graph:{RUN}] load[7] …")


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("run_completed", {"status": "completed", "steps": 1}, "✓ completed, 1 step 1.0s"),
        ("run_completed", {"status": "completed_with_errors", "steps": 3},
         "! completed with errors, 3 steps 1.0s"),
        ("run_error", {"status": "error", "steps": 3, "error": "load: no"},
         "✗ error, 3 steps 1.0s (load: no)"),
        ("run_cancelled", {"status": "cancelled", "steps": 3, "error": "The run was cancelled."},
         "■ cancelled, 3 steps 1.0s (The run was cancelled.)"),
        ("run_killed", {"error": "It was killed."}, "✗ killed, 2 steps 1.0s (It was killed.)"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_is_a_line(kind: str, payload: dict[str, Any], said: str) -> None:
    checkpoint = ("state_checkpoint", {"step": 2})
    assert line(checkpoint, ("run_started", {}), (kind, payload)) == f"[graph:{RUN}] {said}"


@pytest.mark.parametrize("kind", ["run_started", "node_started", "state_checkpoint", "cost"])
def test_the_rest_is_no_news(kind: str) -> None:
    assert line((kind, {"node": "load"})) is None


def test_an_error_neither_steers_the_terminal_nor_fills_it() -> None:
    said = str(line(node(status="failed", error="\x1b[2Jgone" + "x" * 999)))
    assert "\x1b" not in said
    assert len(said) < 250
