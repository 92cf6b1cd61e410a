"""Placeholders in signed strings, and what they never touch."""

from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.templating import ConfigTemplate, as_text

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
# Values that a careless second pass would expand.
HOSTILE = st.sampled_from(["${HOME}", "{project_path}", "{params_json}", "${A:-{b}}", "$(id)", "{"])
TEXTS = st.one_of(st.text(max_size=30), HOSTILE, st.lists(HOSTILE).map("".join))


def test_a_variable_is_replaced_and_an_unset_one_is_empty():
    template = ConfigTemplate({"HOME": "/h"}, {})
    assert template.text("${HOME}/x:${NOT_SET}:") == "/h/x::"


def test_a_default_stands_for_an_unset_variable_alone():
    template = ConfigTemplate({"EMPTY": ""}, {})
    assert template.text("[${NOT_SET:-d}][${EMPTY:-d}][${NOT_SET:-}]") == "[d][][]"


def test_what_only_looks_like_a_variable_stays():
    template = ConfigTemplate({"A": "x", "lower": "y"}, {})
    assert template.text("$A ${} ${1} $ {") == "$A ${} ${1} $ {"


def test_a_lower_case_variable_is_left_as_it_is_even_where_a_value_has_its_name():
    template = ConfigTemplate({"name": "variable"}, {"name": "value"})
    assert template.text("a ${name} b") == "a ${name} b"
    assert template.text("${name}") == "${name}"


def test_a_default_is_not_nested():
    assert ConfigTemplate({"B": "x"}, {}).text("${A:-${B}}") == "${B}"


def test_a_known_name_is_replaced_and_an_unknown_one_stays_and_is_told():
    unknown: set[str] = set()
    template = ConfigTemplate({}, {"a": "1"}, {}, unknown)
    assert template.text("{a}{b} {not a name} {c}") == "1{b} {not a name} {c}"
    assert unknown == {"b", "c"}


def test_one_placeholder_alone_keeps_its_values_type():
    values = {"number": 3, "flag": True, "none": None, "many": ["a", {"b": 1}]}
    template = ConfigTemplate({}, values)
    for name, value in values.items():
        assert template.render(f" {{{name}}} ") == value
    assert template.render("{number} of {flag}") == "3 of true"
    assert template.text("{many}") == '["a", {"b": 1}]'
    assert template.text("<{none}>") == "<>"


def test_signed_strings_may_refer_to_each_other_for_three_rounds():
    config = {"a": "{b}", "b": "{c}", "c": "{d}", "d": "end"}
    assert ConfigTemplate({}, {}, config).text("{b}!") == "end!"
    assert ConfigTemplate({}, {}, config).text("{a}!") == "{d}!"


def test_strings_that_refer_to_each_other_in_a_circle_end():
    assert "{" in ConfigTemplate({}, {}, {"a": "x{b}", "b": "y{a}"}).text("{a}")


@given(st.dictionaries(NAMES, TEXTS, min_size=1), st.dictionaries(st.just("HOME"), TEXTS))
def test_a_value_is_put_in_once_and_whole_whatever_it_holds(values, environ):
    template = ConfigTemplate(environ, {**values, "project_path": "/p", "params_json": "{}"})
    for name, value in values.items():
        if name in ("project_path", "params_json"):
            continue
        assert template.render(f"{{{name}}}") == value
        assert template.text(f"<{{{name}}}>") == f"<{value}>"


@given(TEXTS)
def test_what_a_variable_holds_is_not_expanded_again(value):
    template = ConfigTemplate({"V": value, "HOME": "/h"}, {"project_path": "/p"})
    assert template.text("<${V}>") == f"<{value}>"


@given(TEXTS)
def test_a_text_without_placeholders_is_unchanged(text):
    if "{" not in text:
        assert ConfigTemplate({"HOME": "/h"}, {"a": "1"}).text(text) == text


def test_a_value_as_text_is_json_unless_it_is_text():
    assert [as_text(value) for value in ("a", None, 1, 1.5, False, ["é"])] == [
        "a",
        "",
        "1",
        "1.5",
        "false",
        '["é"]',
    ]
