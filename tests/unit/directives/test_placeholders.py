"""Placeholders: one pass, and whatever a value holds stays as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.directives.inputs import fill, fill_tree

NAMES = st.sampled_from(["a", "b", "key"])
HOSTILE = st.sampled_from(
    ["{input:a}", "{input:b?}", "{input:key:x}", "${inputs.a}", "]]>", "\0", "{", "}", "\\1", "é"]
)
TEXTS = st.lists(HOSTILE | st.text(max_size=5), max_size=6).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{input:a}", "1"),
        ("{input:missing}", "{input:missing}"),
        ("{input:missing?}", ""),
        ("{input:missing:default}", "default"),
        ("{input:missing|default}", "default"),
        ("{input:missing:http://x:80/y|z}", "http://x:80/y|z"),
        ("{input:missing:}", ""),
        ("{input:a?}{input:a:x}{input:a|x}", "111"),
        ("{input:empty:default}", ""),
        ("${inputs.a} ${inputs.missing}", "1 ${inputs.missing}"),
        ("$${inputs.a}", "$1"),
        ("{input:}{input}{inputs:a}{input:a b}{ input:a}", None),
        ("{input:list} {input:map} {input:yes} {input:nothing}", '["é", 1] {"k": null} true null'),
        ("{{input:a}}", "{1}"),
    ],
)
def test_each_form(text, expected):
    inputs = {
        "a": 1, "empty": "", "list": ["é", 1], "map": {"k": None}, "yes": True, "nothing": None,
    }  # fmt: skip
    assert fill(text, inputs) == (text if expected is None else expected)


@given(NAMES, TEXTS)
def test_a_value_is_never_expanded_again(name, value):
    inputs = {"a": "A", "b": "B", "key": "K"} | {name: value}
    for form in (f"{{input:{name}}}", f"{{input:{name}?}}", f"${{inputs.{name}}}"):
        assert fill(f"<{form}>", inputs) == f"<{value}>"


@given(TEXTS, st.dictionaries(NAMES, st.integers()))
def test_filling_in_again_changes_nothing_more(text, inputs):
    once = fill(text, inputs)
    assert fill(once, inputs) == once


@given(st.text())
def test_text_without_a_placeholder_stays_as_it_is(text):
    if "{input:" not in text and "${inputs." not in text:
        assert fill(text, {"a": 1}) == text


@given(TEXTS)
def test_without_inputs_only_what_has_a_default_is_replaced(text):
    assert fill(fill(text, {}), {}) == fill(text, {})
    assert fill("{input:a}${inputs.a}", {}) == "{input:a}${inputs.a}"


def test_a_single_placeholder_keeps_its_type_and_others_become_text():
    inputs = {"n": 3, "list": [1], "text": "{input:n}"}
    tree = {"a": "{input:n}", "b": ["{input:list}", "n={input:n}"], "c": "{input:text}", "d": 7}
    assert fill_tree(tree, inputs) == {"a": 3, "b": [[1], "n=3"], "c": "{input:n}", "d": 7}
    assert fill_tree("{input:x?}", inputs) == ""
    assert fill_tree("{input:x}", inputs) == "{input:x}"


def test_a_value_of_a_megabyte_is_put_in_whole():
    value = "{input:a}" * 120_000
    assert fill("[{input:a}]", {"a": value}) == f"[{value}]"
