"""A tree of threads as a picture: each with its status and cost, leading to what it started."""

from hypothesis import given
from hypothesis import strategies as st

from ryecore.display import to_svg
from ryecore.policy.budget import Amount
from ryecore.policy.limits import Limits
from ryecore.state.model import Cost
from ryecore.threads.picture import result_picture, tree_picture
from ryecore.threads.result import ThreadResult
from ryecore.threads.tree_node import TreeNode
from tests.unit.threads.test_rendering import NOW, TREE, USD, thread


def edges(picture):
    labels = {box.id: box.label for box in picture.boxes}
    return [(labels[one.start], labels[one.end]) for one in picture.lines]


def test_each_thread_leads_to_those_that_it_started():
    picture = tree_picture([TREE], now=NOW)
    assert edges(picture) == [
        ("acme/research", "acme/find"),
        ("acme/research", "acme/read"),
        ("acme/read", "acme/sum"),
    ]
    assert [box.status for box in picture.boxes] == ["running", "completed", "running", "failed"]


def test_each_thread_says_what_it_has_used_with_all_below():
    root, _, _, failed = tree_picture([TREE], now=NOW).boxes
    assert root.details == ("6/8 turns, 180k/200k tokens, $0.31/0.5", "1:00")
    assert failed.details[-2:] == ("50 s, error", "The limit of turns is met.")
    assert "acme/research-1" in root.tooltip


def test_one_turn_and_one_token_are_written_in_the_singular():
    (box,) = tree_picture([thread("a/b", turns=1, tokens=1, limits=Limits())], now=NOW).boxes
    assert box.details[0] == "1 turn, 1 token, $0"
    (box,) = tree_picture([thread("a/b", turns=1, tokens=1, limits=Limits(turns=8))], now=NOW).boxes
    assert box.details[0] == "1/8 turns, 1 token, $0"


def test_a_killed_and_a_handed_off_thread_say_so():
    picture = tree_picture([thread("a/b", "killed"), thread("a/c", "continued")], now=NOW)
    assert [box.status for box in picture.boxes] == ["failed", "completed"]
    assert [box.details[1] for box in picture.boxes] == ["50 s, killed", "50 s, continued"]


def test_of_a_large_tree_what_runs_is_drawn_and_the_rest_is_counted():
    children = tuple(
        TreeNode(f"t-{at}", "directive:a/b", "running" if at == 700 else "completed", ended_at=9.0)
        for at in range(1000)
    )
    picture = tree_picture([thread("a/root", children=children)], now=NOW, max_boxes=20)
    assert len(picture.boxes) <= 20
    assert any(box.id == "t-700" for box in picture.boxes)
    assert picture.boxes[-1].shape == "stack"
    assert picture.boxes[-1].label.endswith(" more")
    assert "completed" in picture.boxes[-1].details[0]


def test_where_nothing_runs_the_picture_says_so():
    assert "nothing runs" in to_svg(tree_picture([], now=NOW))


@given(st.recursive(st.just([]), lambda below: st.lists(below, max_size=3), max_leaves=20))
def test_every_thread_but_the_top_has_one_line_to_it(shape):
    count = 0

    def made(below) -> TreeNode:
        nonlocal count
        count += 1
        return TreeNode(f"t-{count}", "directive:a/b", "running", children=tuple(map(made, below)))

    root = made(shape)
    picture = tree_picture([root], now=NOW)
    assert {box.id for box in picture.boxes} == {one.thread_id for one in root.walk()}
    assert {(one.start, one.end) for one in picture.lines} == {
        (one.thread_id, child.thread_id) for one in root.walk() for child in one.children
    }


def test_a_tree_that_is_very_deep_is_drawn():
    node = thread("a/leaf")
    for at in range(1500):
        node = thread(f"a/{at}", children=(node,))
    assert len(tree_picture([node], now=NOW, max_boxes=5000).boxes) == 1501


def test_a_node_shows_itself_in_a_notebook():
    html = TREE._repr_html_()
    assert html.count("<svg ") == 1
    assert "acme/research" in html


def result(**said):
    said = {"item_id": "directive:a/b", "thread_id": "a/b-1", "ended": "completed"} | said
    return ThreadResult(
        **{"status": "success", "data": "", "error": None, "duration_ms": 2500.0} | said
    )


def test_a_result_shows_what_it_and_all_below_have_cost():
    done = result(
        text="<b>done</b>",
        cost=Cost(turns=2, input_tokens=900, output_tokens=100, spend_microcents=USD // 100),
        total=Amount(USD // 50, 3000),
        continuation_thread_id="a/b-2",
    )
    own, below, following = result_picture(done).boxes
    assert (own.label, own.status) == ("a/b", "completed")
    assert own.details == ("2 turns, 1k tokens, $0.01", "2.5 s")
    assert below.details == ("2k tokens, $0.01",)
    assert following.label == "a/b-2"
    html = done._repr_html_()
    assert "&lt;b&gt;done" in html
    assert html.count("<svg ") == 1


def test_a_failed_result_says_so():
    (box,) = result_picture(result(ended="killed", status="error", error="It was killed.")).boxes
    assert box.status == "failed"
    assert "killed" in box.details[1]
