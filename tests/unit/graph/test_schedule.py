"""Where a run goes next: every kind of edge and error, decided without doing anything."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ryecore.agent.outcome import ERROR_CODES, NodeFailure, NodeOutcome
from ryecore.graph.model import (
    Action,
    ActionForeach,
    ActionVertex,
    Edge,
    GateVertex,
    Graph,
    ReturnVertex,
    VertexOfGraph,
)
from ryecore.graph.schedule import (
    Position,
    after,
    first,
    stopped,
)
from ryecore.items.refs import ItemRef
from ryecore.policy.conditions import read_condition
from ryecore.policy.expressions import read_template

REF = ItemRef.parse("tool:acme/flow")
CALL = Action(ItemRef.parse("tool:acme/do"), read_template({}))
BROKE = NodeFailure("tool_failed", "it broke", node="a")
FAILED = NodeOutcome("failed", failure=BROKE)
DONE = NodeOutcome("completed")


def edge(to: str, path: str = "", op: str = "eq", value: object = None) -> Edge:
    """An edge; with a condition where a path is given."""
    when = read_condition({"path": path, "op": op, "value": value}) if path else None
    return Edge(to, when)


def graph(*nodes: VertexOfGraph, **fields: object) -> Graph:
    """A graph that begins with the first node."""
    named = {node.id: node for node in nodes}
    made = Graph(ref=REF, digest="", path=Path("flow.yaml"), start=nodes[0].id, nodes=named)
    return evolve(made, **fields)


def action(*edges: Edge, node_id: str = "a", **fields: object) -> ActionVertex:
    """A node that calls something."""
    return evolve(ActionVertex(id=node_id, action=CALL, next=edges), **fields)


def moved(drawn: Graph, outcome: NodeOutcome, **fields: object) -> Position:
    """Where a run stands after its first node."""
    return after(drawn, evolve(first(drawn), **fields), {"limit": 3}, outcome)


def failed(drawn: Graph, control: object = None, **fields: object) -> Position:
    """Where a run stands after its first node has failed."""
    at = evolve(first(drawn), **fields)
    return after(drawn, at, {}, FAILED, control)  # type: ignore[arg-type]


END = ReturnVertex(id="end", output=read_template("${state.n}"))
GATE = GateVertex(id="b")


@pytest.mark.parametrize(
    ("value", "to"),
    [({"n": 5}, "b"), ({"n": 2}, "end"), ({}, "end"), (None, "end"), ({"n": "5"}, "end")],
)
def test_the_first_edge_that_holds_is_taken(value: object, to: str) -> None:
    drawn = graph(action(edge("b", "result.n", "gt", 4), edge("end")), GATE, END)
    assert moved(drawn, NodeOutcome("completed", value)).node == to


def test_conditions_see_inputs_the_result_and_the_state_with_what_was_just_assigned() -> None:
    node = action(
        edge("b", "state.n", "eq", 8), edge("end"), assign={"n": read_template("${result}")}
    )
    assert moved(graph(node, GATE, END), NodeOutcome("completed", 8)).node == "b"
    by_input = action(edge("b", "inputs.limit", "eq", 3), edge("end"))
    assert moved(graph(by_input, GATE, END), DONE).node == "b"


def test_a_node_without_a_matching_edge_ends_the_run_well() -> None:
    ended = moved(graph(action(edge("b", "result", "eq", 1)), GATE), NodeOutcome("completed", 2))
    assert ended.ending is not None
    assert (ended.node, ended.ending.status, ended.ending.output) == (None, "completed", None)
    assert moved(graph(action()), NodeOutcome("completed", 2)).ending == ended.ending


def test_a_text_that_is_too_long_for_an_edges_regex_ends_the_run_with_an_error() -> None:
    drawn = graph(action(edge("b", "result", "regex", "(.{1,500}x){1,4}!"), edge("end")), GATE, END)
    ended = moved(drawn, NodeOutcome("completed", "x" * 1_000_000)).ending
    assert ended is not None
    assert ended.error is not None
    assert (ended.status, ended.error.node, ended.error.code) == ("error", "a", "validation")
    assert "too long to be searched" in ended.error.message


def test_a_return_ends_the_run_with_its_output() -> None:
    ended = moved(graph(END), NodeOutcome("completed", {"a": 1}))
    assert ended.ending is not None
    assert (ended.ending.status, ended.ending.output, ended.node) == ("completed", {"a": 1}, None)


def test_all_assignments_see_the_state_before_them() -> None:
    swap = {"x": read_template("${state.y}"), "y": read_template("${state.x}")}
    drawn = graph(action(assign=swap), state={"x": 1, "y": 2})
    assert moved(drawn, DONE).state == {"x": 2, "y": 1}


def test_a_state_is_replaced_and_never_changed() -> None:
    drawn = graph(action(assign={"n": read_template("${result}")}), state={"n": 0})
    before = first(drawn)
    after(drawn, before, {}, NodeOutcome("completed", 1))
    assert before.state == {"n": 0}


def test_what_a_foreach_collects_stands_in_the_state() -> None:
    each = ActionForeach(id="a", over=read_template([]), action=CALL, collect="all", next=())
    errors = [{"index": 1, "error": "no", "code": "tool_failed"}]
    value = {"items": [1, None], "count": 2, "failed": 1, "errors": errors}
    skipped = (NodeFailure("tool_failed", "no", node="a[1]"),)
    at = moved(graph(each), NodeOutcome("completed", value))
    assert at.state["all"] == [1, None]
    assert at.ending is not None
    assert (at.ending.status, at.suppressed, at.errors) == ("completed_with_errors", 1, skipped)


# Errors: the hooks, then the node's own edge, then the policy


def test_an_error_ends_the_run_by_policy_and_leaves_it_at_the_node() -> None:
    at = failed(graph(action(edge("b")), GATE))
    assert at.ending is not None
    assert (at.ending.status, at.ending.error, at.node) == ("error", BROKE, "a")


def test_an_error_goes_by_the_nodes_own_edge_first() -> None:
    at = failed(graph(action(edge("end"), on_error="b"), GATE, END, on_error="continue"))
    assert (at.node, at.ending, at.suppressed) == ("b", None, 0)
    assert at.state["_last_error"] == {"node": "a", "error": "it broke", "code": "tool_failed"}


def test_the_policy_continue_passes_over_and_counts() -> None:
    node = action(edge("b"), assign={"n": read_template("${result}")})
    at = failed(graph(node, GATE, on_error="continue", state={"n": 1}))
    assert (at.node, at.suppressed, at.errors, at.state["n"]) == ("b", 1, (BROKE,), 1)


@pytest.mark.parametrize("control", ["fail", "abort", "handoff"])
def test_a_hook_can_end_what_the_node_would_route(control: str) -> None:
    at = failed(graph(action(on_error="b"), GATE), control)
    assert at.ending is not None
    assert at.ending.status == "error"


@pytest.mark.parametrize("control", ["continue", "skip"])
def test_a_hook_can_pass_over_what_the_policy_would_fail(control: str) -> None:
    at = failed(graph(action(edge("b"), on_error="end"), GATE, END), control)
    assert (at.node, at.suppressed) == ("b", 1)


def test_a_hook_can_have_a_node_run_again_three_times() -> None:
    drawn, at = graph(action()), Position("a")
    for count in (1, 2, 3):
        at = after(drawn, at, {}, FAILED, "retry")
        assert (at.node, at.hook_retries, at.ending) == ("a", {"a": count}, None)
    at = after(drawn, at, {}, FAILED, "retry")
    assert at.ending is not None
    assert at.ending.error == BROKE


def test_a_cancelled_node_is_no_error_that_could_be_routed() -> None:
    drawn = graph(action(on_error="b"), GATE, on_error="continue")
    at = after(drawn, first(drawn), {}, NodeOutcome.failed("cancelled", "no"))
    assert at.ending is not None
    assert (at.ending.status, at.node) == ("cancelled", "a")


def test_the_errors_that_are_kept_are_bounded_and_all_are_counted() -> None:
    drawn = graph(action(edge("a")), on_error="continue", max_steps=1_000)
    at = first(drawn)
    for _ in range(300):
        at = after(drawn, at, {}, FAILED)
    assert (len(at.errors), at.suppressed) == (100, 300)


# Bounds


def test_the_steps_of_a_run_are_bounded() -> None:
    drawn = graph(GateVertex(id="a", next=(edge("a"),)), max_steps=3)
    at = first(drawn)
    for _ in range(3):
        assert at.ending is None
        at = after(drawn, at, {}, DONE)
    assert at.ending is not None
    assert at.ending.error is not None
    assert (at.step, at.ending.error.code) == (3, "turn_limit")
    assert "max_steps (3) is used up" in at.ending.error.message


def test_the_last_step_may_be_the_one_that_ends() -> None:
    drawn = graph(END, max_steps=1)
    assert moved(drawn, NodeOutcome("completed", 7)).ending is not None
    ending = moved(drawn, NodeOutcome("completed", 7)).ending
    assert ending is not None
    assert (ending.status, ending.output) == ("completed", 7)


def test_who_stops_a_run_leaves_it_where_it_stands() -> None:
    at = stopped(Position("b", step=4), "why")
    assert at.ending is not None
    assert (at.node, at.step, at.ending.status) == ("b", 4, "cancelled")


def test_the_time_stands_in_the_state_where_it_is_asked_for() -> None:
    asks = action(assign={"at": read_template("${state._now}")})
    drawn = graph(asks, uses_time=True)
    at = after(drawn, first(drawn), {}, DONE, now_ms=1_500)
    assert at.state == {"at": "1970-01-01T00:00:01.500Z"}


# A position and its document

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
ERRORS = st.builds(
    NodeFailure, st.sampled_from(ERROR_CODES), st.text(), st.booleans(), st.booleans(), st.text()
)


@given(st.text(), st.integers(0, 10**6), st.dictionaries(st.text(), JSON), st.lists(ERRORS))
def test_a_position_is_the_same_after_it_was_written(
    node: str, step: int, state: Mapping[str, object], errors: list[NodeFailure]
) -> None:
    at = Position(node, step, state, {"a": 2}, tuple(errors), len(errors))
    for one in (at, stopped(at, "why")):
        document = json.loads(json.dumps(one.to_dict()))
        assert Position.from_dict(document, state) == one


@given(
    st.lists(st.sampled_from(["ok", "fail"]), max_size=30), st.sampled_from(["fail", "continue"])
)
def test_a_run_always_comes_to_an_end_or_to_a_node_that_is_there(
    results: list[str], policy: str
) -> None:
    nodes = (
        action(edge("b", "result", "eq", 1), edge("end"), on_error="b"),
        GateVertex(id="b", next=(edge("a"),)),
        END,
    )
    drawn = graph(*nodes, on_error=policy, max_steps=20)
    at = first(drawn)
    for said in results:
        if at.ending is not None:
            break
        result = NodeOutcome("completed", 1) if said == "ok" else FAILED
        step = at.step
        at = after(drawn, at, {}, result)
        assert at.step == step + 1
        assert at.node in drawn.nodes or at.ending is not None
    assert at.step <= 20
