"""Which items a search looks through."""

import pytest

from ryecore.errors import InvalidQuery
from ryecore.search.scope import parse_scope


@pytest.mark.parametrize(
    ("scope", "kinds", "inside", "outside"),
    [
        ("*", ("tool", "directive", "knowledge", "config"), [("config", "a")], []),
        ("tool", ("tool",), [("tool", "a/b")], [("directive", "a")]),
        ("tool.*", ("tool",), [("tool", "a/b")], [("directive", "a")]),
        ("tool.ns.*", ("tool",), [("tool", "ns/a"), ("tool", "ns/a/b")], [("tool", "nsx/a")]),
        ("tool:ns/*", ("tool",), [("tool", "ns/a")], [("tool", "other")]),
        ("tool:", ("tool",), [("tool", "ns/a")], []),
        ("rye.fetch.tool.ns.*", ("tool",), [("tool", "ns/a")], [("tool", "other")]),
        ("knowledge:ns/a", ("knowledge",), [("knowledge", "ns/a")], [("knowledge", "ns/ab")]),
        (["tool", "knowledge.a.*"], ("tool", "knowledge"), [("knowledge", "a/b")],
         [("knowledge", "b")]),
    ],
)  # fmt: skip
def test_a_scope_holds_these_items(scope, kinds, inside, outside):
    parsed = parse_scope(scope)
    assert parsed.kinds == kinds
    assert all(parsed.holds(*item) for item in inside)
    assert not any(parsed.holds(*item) for item in outside)


@pytest.mark.parametrize(
    "scope", ["", "ns.*", "rye.fetch.*", "rye.fetch.ns.*", "banana", "tool.a b", [], [7], 7, None,
              ["tool"] * 40],
    ids=repr,
)  # fmt: skip
def test_a_scope_without_a_kind_is_refused(scope):
    with pytest.raises(InvalidQuery, match="scope must specify a kind") as refused:
        parse_scope(scope)
    assert "tool" in refused.value.next_step
