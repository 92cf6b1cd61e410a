"""Inputs: declared, defaulted, coerced, checked; nothing is lost silently."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.directives.inputs import Declared, input_schema, resolve_inputs
from ryecore.errors import InvalidInputs, MetadataError
from tests.unit.directives.files import file, parse

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def inputs(inside):
    return parse(file(f"<inputs>{inside}</inputs>")).inputs


def one(kind, value):
    return resolve_inputs([Declared("x", type=kind)], {"x": value})["x"]


def test_a_declaration_is_read_with_its_default_of_its_type():
    found = inputs(
        '<input name="topic" required="true">\n  What to\n  research.\n</input>'
        '<input name="count" type="integer" default="3"/>'
        '<input name="tags" type="list" default=\'["a"]\'/>'
        '<input name="rate" type="float" default="0.5"/>'
        '<input name="deep" type="boolean" default="false"/>'
        '<input name="note" default=""/>'
    )
    assert [spec.to_dict() for spec in found] == [
        {"name": "topic", "type": "string", "required": True, "description": "What to research."},
        {"name": "count", "type": "integer", "required": False, "default": 3},
        {"name": "tags", "type": "array", "required": False, "default": ["a"]},
        {"name": "rate", "type": "number", "required": False, "default": 0.5},
        {"name": "deep", "type": "boolean", "required": False, "default": False},
        {"name": "note", "type": "string", "required": False, "default": ""},
    ]


@pytest.mark.parametrize(
    ("inside", "match"),
    [
        ("<input/>", "has no name"),
        ('<input name=""/>', "has no name"),
        ('<input name="a b"/>', "the name 'a b'"),
        ('<input name="1a"/>', "the name '1a'"),
        ('<input name="a" type="int"/>', "unknown type 'int'; valid are string, integer"),
        ('<input name="a" format="day"/>', "unknown format 'day'; valid are date, date-time"),
        ('<input name="a" type="integer" format="date"/>', "only text has a format"),
        ('<input name="a" format="date" default="soon"/>', "default that does not fit"),
        ('<input name="a" required="yes"/>', "neither true nor false"),
        ('<input name="a" requred="true"/>', "attribute 'requred'; valid are name, type"),
        ('<input name="a" pattern="(a+)+$"/>', "attribute 'pattern'"),
        ('<input name="a"/><input name="a"/>', "once more"),
        ('<input name="a" type="integer" default="three"/>', "default that does not fit"),
        ('<input name="a" type="number" default="NaN"/>', "default that does not fit"),
        ('<input name="a" type="array" default="a,b"/>', "default that does not fit"),
        ('<input name="a" type="integer" enum="1|2"/>', "only text lists its values"),
        ('<input name="a" enum="a|a"/>', "must list different values"),
        ('<input name="a" enum="a|"/>', "must list different values"),
        ('<input name="a" enum="a|b" default="c"/>', "default that does not fit"),
        ('<output name="a"/>', "unknown element <output>; valid are <input>"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused_with_its_line(inside, match):
    with pytest.raises(MetadataError, match=match) as refusal:
        inputs(inside)
    assert refusal.value.line == 6


def test_a_text_of_a_format_is_checked_and_shown_to_models():
    (due,) = inputs('<input name="due" format="date" required="true"/>')
    assert due.to_dict() == {"name": "due", "type": "string", "format": "date", "required": True}
    assert input_schema([due])["properties"]["due"] == {"type": "string", "format": "date"}
    assert resolve_inputs([due], {"due": "2026-03-01"}) == {"due": "2026-03-01"}
    with pytest.raises(InvalidInputs, match=r"due: .*such as 2026-01-31") as refusal:
        resolve_inputs([due], {"due": "March"})
    assert "due (date, required)" in refusal.value.next_step


def test_a_text_takes_only_the_values_that_it_lists():
    (tone,) = inputs('<input name="tone" enum="warm | formal" default="warm"/>')
    assert tone.to_dict()["enum"] == ["warm", "formal"]
    assert input_schema([tone])["properties"]["tone"]["enum"] == ["warm", "formal"]
    assert resolve_inputs([tone], {}) == {"tone": "warm"}
    assert resolve_inputs([tone], {"tone": "formal"}) == {"tone": "formal"}
    with pytest.raises(InvalidInputs, match="'cold' is not one of warm, formal"):
        resolve_inputs([tone], {"tone": "cold"})


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "a", "a"),
        ("string", "", ""),
        ("string", 5, "5"),
        ("string", 0.5, "0.5"),
        ("string", True, "true"),
        ("integer", 5, 5),
        ("integer", 5.0, 5),
        ("integer", "-5", -5),
        ("integer", 10**30, 10**30),
        ("number", 5, 5),
        ("number", "5", 5),
        ("number", "-0.5e1", -5.0),
        ("boolean", True, True),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("array", [1], [1]),
        ("array", (1, 2), [1, 2]),
        ("array", '[1, {"a": null}]', [1, {"a": None}]),
        ("object", {"a": 1}, {"a": 1}),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("any", None, None),
        ("any", "[1]", "[1]"),
        ("any", [1], [1]),
    ],
)
def test_a_value_that_fits_becomes_its_declared_type(kind, value, expected):
    found = one(kind, value)
    assert found == expected
    assert type(found) is type(expected)


DEEP: list[object] = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", [1]),
        ("string", {"a": 1}),
        ("string", math.nan),
        ("string", b"a"),
        ("integer", 5.5),
        ("integer", True),
        ("integer", "5.0"),
        ("integer", " 5"),
        ("integer", "5\n"),
        ("integer", "٥"),
        ("integer", "1" * 5000),
        ("integer", 10**5000),
        ("integer", 1e300),
        ("integer", "0x10"),
        ("integer", [5]),
        ("number", math.nan),
        ("number", math.inf),
        ("number", "NaN"),
        ("number", "Infinity"),
        ("number", "1e999"),
        ("number", True),
        ("number", "1_000"),
        ("number", 10**5000),
        ("boolean", 1),
        ("boolean", "True"),
        ("boolean", "yes"),
        ("array", "a,b"),
        ("array", '{"a": 1}'),
        ("array", {"a": 1}),
        ("array", [math.nan]),
        ("array", "[NaN]"),
        ("array", [object()]),
        ("array", DEEP),
        ("array", "[" * 100_000),
        ("object", "[1]"),
        ("object", [1]),
        ("object", {1: 2}),
        ("object", {"a": math.inf}),
        ("any", math.nan),
        ("any", object()),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else type(value).__name__,
)
def test_a_value_that_does_not_fit_is_refused(kind, value):
    with pytest.raises(InvalidInputs, match="don't fit") as refusal:
        one(kind, value)
    assert len(refusal.value.failures) == 1
    assert len(str(refusal.value)) < 300
    assert json.dumps(refusal.value.to_dict())


@given(JSON, st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "any"]))
def test_any_json_is_taken_without_loss_or_refused(value, kind):
    try:
        found = one(kind, value)
    except InvalidInputs:
        return
    except KeyError:
        assert value is None
        return
    types = {
        "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
        "object": dict, "any": object,
    }  # fmt: skip
    assert isinstance(found, types[kind])
    if type(found) is type(value):
        assert found == value


def test_defaults_come_first_and_null_counts_as_not_given():
    specs = [
        Declared("a", type="integer", has_default=True, default=3),
        Declared("b"),
        Declared("c", required=True, has_default=True, default="c"),
    ]
    assert resolve_inputs(specs, {}) == {"a": 3, "c": "c"}
    assert resolve_inputs(specs, {"a": None, "b": None, "c": "x"}) == {"a": 3, "c": "x"}


def test_every_failure_is_listed_at_once_with_what_is_declared():
    specs = [Declared("a", required=True), Declared("b", required=True), Declared("n", "integer")]
    with pytest.raises(InvalidInputs) as refusal:
        resolve_inputs(specs, {"b": None, "n": "x", "z": 1})
    error = refusal.value
    assert error.message.startswith("Missing required inputs: a, b.")
    assert "Unknown inputs: z" in error.message
    assert "n: 'x' is not an integer" in error.message
    assert error.next_step == (
        "Valid inputs: a (string, required), b (string, required), n (integer)."
    )
    assert len(error.failures) == 4
    assert error.to_dict()["declared_inputs"] == [spec.to_dict() for spec in specs]


def test_a_directive_that_declares_none_takes_none():
    with pytest.raises(InvalidInputs, match=r"Unknown inputs: a\. Valid inputs: none\."):
        resolve_inputs([], {"a": 1})


def test_an_unknown_name_of_any_length_is_a_short_text() -> None:
    with pytest.raises(InvalidInputs) as caught:
        resolve_inputs([], {"x" * 100_000: 1})
    assert len(str(caught.value)) < 500


def test_the_schema_says_the_same():
    specs = inputs(
        '<input name="a" required="true">An a.</input>'
        '<input name="b" type="any"/><input name="c" type="integer" default="1" required="true"/>'
    )
    assert input_schema(specs) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "An a."},
            "b": {},
            "c": {"type": "integer", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", "9" * 1_000_000),
        ("number", "9" * 1_000_000 + "x"),
        ("array", "[" * 1_000_000),
        ("object", '{"a":' * 1_000_000),
        ("boolean", "t" * 1_000_000),
    ],
)
def test_no_value_keeps_the_check_busy_which_knows_types_and_no_schema(kind, value):
    with pytest.raises(InvalidInputs):
        one(kind, value)
