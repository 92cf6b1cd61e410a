"""Conditions: a table, and that they never fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.policy.conditions import OPERATORS, Comparison, read_condition

CONTEXT = {
    "directive": "acme/api",
    "cost": {"turns": 3, "spend": 0.5},
    "tags": ["a", 1, True, None],
    "deep": [{"x": [10, 20]}],
    "none": None,
    "yes": True,
    "a.b": "dotted",
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
)


@pytest.mark.parametrize(
    ("path", "op", "value", "holds"),
    [
        ("cost.turns", "eq", 3, True),
        ("cost.turns", "eq", 3.0, True),
        ("cost.turns", "eq", "3", False),
        ("yes", "eq", True, True),
        ("yes", "eq", 1, False),
        ("none", "eq", None, True),
        ("missing", "eq", None, False),
        ("missing", "ne", 3, True),
        ("cost.turns", "ne", 3, False),
        ("cost", "eq", {"spend": 0.5, "turns": 3}, True),
        ("tags", "eq", ["a", True, 1, None], False),
        ("cost.turns", "gt", 2, True),
        ("cost.turns", "gt", 3, False),
        ("cost.turns", "gte", 3, True),
        ("cost.spend", "lt", 1, True),
        ("cost.turns", "lte", 3, True),
        ("cost.turns", "lt", "4", False),
        ("cost.turns", "gt", "4", False),
        ("cost.turns", "gt", None, False),
        ("missing", "lt", 3, False),
        ("yes", "gte", 1, False),
        ("directive", "gt", "abc", True),
        ("directive", "in", ["acme/api", "x"], True),
        ("directive", "in", "the acme/api one", True),
        ("cost.turns", "in", [1, 2], False),
        ("cost.turns", "in", 3, False),
        ("missing", "in", [None], False),
        ("directive", "contains", "api", True),
        ("directive", "contains", 3, False),
        ("tags", "contains", 1, True),
        ("tags", "contains", "b", False),
        ("cost", "contains", "turns", True),
        ("cost.turns", "contains", 3, False),
        ("directive", "regex", "^acme/", True),
        ("directive", "regex", "^api", False),
        ("cost.turns", "regex", "3", False),
        ("directive", "exists", None, True),
        ("none", "exists", None, False),
        ("missing", "exists", None, False),
        ("missing", "exists", False, True),
        ("directive", "exists", False, False),
        ("deep.0.x.1", "eq", 20, True),
        ("deep[0].x[1]", "eq", 20, True),
        ("deep.0.x.2", "exists", None, False),
        ("deep.-1.x", "exists", None, False),
        ("deep.99999999999999999999", "exists", None, False),
        ("directive.0", "exists", None, False),
        ("cost.turns.x", "exists", None, False),
    ],
)
def test_each_operator(path, op, value, holds):
    assert Comparison.of(path, op, value).holds(CONTEXT) is holds


def test_conditions_combine():
    three = {"path": "cost.turns", "op": "gte", "value": 3}
    web = {"path": "directive", "op": "contains", "value": "web"}
    for declared, holds in (
        ({"all": [three, web]}, False),
        ({"any": [three, web]}, True),
        ({"not": web}, True),
        ({"all": []}, True),
        ({"any": []}, False),
        ({"all": [three, {"not": {"any": [web]}}]}, True),
    ):
        condition = read_condition(declared)
        assert condition.holds(CONTEXT) is holds
        assert condition.to_dict() == declared


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ("x", "is a mapping"),
        ({}, "no path|are text"),
        ({"path": "", "op": "eq"}, "no path"),
        ({"path": 3, "op": "eq"}, "are text"),
        ({"path": "a", "op": "like"}, "'like' is not an operator; the operators are eq"),
        ({"path": "a", "op": ["eq"]}, "are text"),
        ({"path": "a", "op": "eq", "vlaue": 1}, "vlaue"),
        ({"path": "a", "any": []}, "any"),
        ({"any": "ab"}, "a list of conditions"),
        ({"any": [], "all": []}, "all, any"),
        ({"not": []}, "is a mapping"),
        ({"path": "a", "op": "regex", "value": "("}, "not a regular expression"),
        ({"path": "a", "op": "regex", "value": "a{99999999999}"}, "not a regular expression"),
        ({"path": "a", "op": "regex", "value": 3}, "is text, not int"),
        ({"path": "a", "op": "regex", "value": "a" * 2000}, "at most 1000 characters"),
        (
            {"path": "a", "op": "regex", "value": "a(?=b)"},
            r"'a\(\?=b\)' can't be used: .*look-aroun",
        ),
    ],
)
def test_what_is_no_condition_is_refused_in_words(declared, match):
    with pytest.raises(ValueError, match=match):
        read_condition(declared)


def test_nesting_is_bounded():
    declared: dict[str, object] = {"path": "a", "op": "exists"}
    for _ in range(100):
        declared = {"not": declared}
    with pytest.raises(ValueError, match="too deeply"):
        read_condition(declared)


@pytest.mark.parametrize("pattern", ["(a+)+b", "^(a|aa)+$", "(a*)*c"])
def test_no_text_keeps_a_signed_pattern_busy(pattern):
    assert not Comparison.of("a", "regex", pattern).holds({"a": "a" * 100_000 + "!"})


def test_an_authors_odd_pattern_warns_nobody():
    assert Comparison.of("a", "regex", "[[a]").holds({"a": "["})


@given(
    st.sampled_from([op for op in OPERATORS if op != "regex"]),
    VALUES,
    st.dictionaries(st.sampled_from(["a", "b"]), VALUES),
    st.text(min_size=1, max_size=6) | st.sampled_from(["a", "a.b", "a[0]", "b.0.a"]),
)
def test_a_condition_never_fails(op, value, context, path):
    comparison = Comparison.of(path, op, value)
    assert comparison.holds(context) in (True, False)
    assert read_condition({"not": comparison.to_dict()}).holds(context) is not comparison.holds(
        context
    )


@given(VALUES, VALUES)
def test_order_is_strict_and_unlike_types_have_none(one, other):
    less, more = (Comparison.of("a", op, other).holds({"a": one}) for op in ("lt", "gt"))
    assert not (less and more)
    if type(one) is not type(other) and not {type(one), type(other)} <= {int, float}:
        assert not less
        assert not more


@given(VALUES)
def test_ne_is_the_opposite_of_eq(value):
    for context in ({"a": value}, {}):
        equal, unequal = (Comparison.of("a", op, value).holds(context) for op in ("eq", "ne"))
        assert equal is not unequal
