"""Expressions: tables of what they stand for and what can't be read; and that they never fail."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ryecore.policy.expressions import (
    FILTERS,
    BrokenExpression,
    Expression,
    read_template,
)
from ryecore.policy.paths import ValuePath
from tests.timing import at_most_cpu

CONTEXT: dict[str, Any] = {
    "state": {
        "count": 0,
        "rows": [{"name": "Ada"}, {"name": "Grace"}],
        "empty": "",
        "none": None,
        "yes": True,
        "a key": {"x.y": 1, 'quo"te}': 2},
        "0": "zero",
        "text": "${state.count}",
        "grüße": "Ä",
        "pair": (1, 2),
        "half": 0.5,
        "more-and": {"so-on": 3},
    },
    "inputs": {"path": "/tmp/x", "list": [1, [2, 3]]},
    "row": {"name": "row"},
    "true_story": "of a name that begins like a literal",
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)
NAMES = st.from_regex(r"[a-z_][a-z0-9_-]{0,5}", fullmatch=True).filter(
    lambda name: name not in ("true", "false", "null")
)
PATHS = st.builds(
    lambda root, rest: ValuePath((root, *rest)),
    NAMES,
    st.lists(NAMES | st.integers(-(10**9) + 1, 10**9 - 1) | st.text(max_size=5), max_size=4),
)


def value(source: object, context: dict[str, Any] = CONTEXT) -> object:
    return read_template(source).value(context)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("no expression", "no expression"),
        ("", ""),
        (3, 3),
        (None, None),
        ("${state.count}", 0),
        ("${ state.count }", 0),
        ("${state.yes}", True),
        ("${state.none}", None),
        ("${state.half}", 0.5),
        ("${inputs.list}", [1, [2, 3]]),
        ("${inputs}", CONTEXT["inputs"]),
        ("${state.rows.0.name}", "Ada"),
        ("${state.rows[0].name}", "Ada"),
        ("${state.rows[ 0 ].name}", "Ada"),
        ("${state.rows[-1].name}", "Grace"),
        ("${state.rows[-2].name}", "Ada"),
        ("${state.rows[-3].name}", None),
        ("${state.rows[2]}", None),
        ("${state.rows.-1}", None),
        ("${state.pair[1]}", 2),
        ("${inputs.list[1][0]}", 2),
        ('${state["a key"]["x.y"]}', 1),
        ('${state["a key"]["quo\\"te}"]}', 2),
        ('${state["count"]}', 0),
        ('${ state[ "count" ] }', 0),
        ("${state.0}", "zero"),
        ("${state[0]}", None),
        ("${state.grüße}", "Ä"),
        ("${state.more-and.so-on}", 3),
        ("${row.name}", "row"),
        ("${true_story}", "of a name that begins like a literal"),
        ("${missing}", None),
        ("${state.missing.deeper[3]}", None),
        ("${state.count.deeper}", None),
        ("${inputs.path[0]}", None),
        # Choices: the first that isn't None.
        ("${state.none || state.count}", 0),
        ("${state.empty || 1}", ""),
        ("${state.none||inputs.nothing||7}", 7),
        ("${state.none || -1.5e3}", -1500.0),
        ('${state.none || "a } and || and | within"}', "a } and || and | within"),
        ('${state.none || "say \\"${x}\\""}', 'say "${x}"'),
        ("${state.none || true}", True),
        ("${state.none || false}", False),
        ("${state.none || null}", None),
        ("${state.none || null || 0}", 0),
        ("${state.none || []}", []),
        ("${state.none || {}}", {}),
        ('${state.none || {"a": [1, "}"]}}', {"a": [1, "}"]}),
        ("${1}", 1),
        # Filters: last, and never on None.
        ("${state.rows | length}", 2),
        ("${state.empty | length}", 0),
        ("${inputs | length}", 2),
        ("${state.pair | length}", 2),
        ("${state.count | length}", None),
        ("${state.none | length}", None),
        ("${state.none | json}", None),
        ("${inputs | keys}", ["path", "list"]),
        ("${state.rows | keys}", None),
        ("${row.name | upper}", "ROW"),
        ("${row.name|upper|lower}", "row"),
        ("${state.count | upper}", None),
        ("${inputs.list | json}", "[1, [2, 3]]"),
        ('${state.none || "a|b" | upper}', "A|B"),
        ("${state.none || inputs.list | json | length}", 11),
        # Within a text.
        ("a ${row.name} b ${state.count}", "a row b 0"),
        ("${row.name}${state.count}", "row0"),
        (" ${state.count}", " 0"),
        ("<${state.none}${missing.x}>", "<>"),
        ("is ${state.yes}", "is true"),
        ("all: ${inputs.list}", "all: [1, [2, 3]]"),
        ('${"$"}${state.count}', "$0"),
        ("$ {x} $x {y} $", "$ {x} $x {y} $"),
        # `$${` is meant as text.
        ("$${state.count}", "${state.count}"),
        ("a $${b} ${state.count}", "a ${b} 0"),
        ("$$${x}", "$${x}"),
        ("$${", "${"),
        # A value is never looked through again.
        ("${state.text}", "${state.count}"),
        ("is ${state.text}", "is ${state.count}"),
        # Within lists and mappings.
        (
            {"a": ["${state.count}", {"b": "x${state.count}"}], "${k}": 1},
            {"a": [0, {"b": "x0"}], "${k}": 1},
        ),
        ({"a": "$${x}", "b": [None]}, {"a": "${x}", "b": [None]}),
    ],
)
def test_what_a_template_stands_for(source: object, expected: object) -> None:
    found = value(source)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("${}", "'${}' is not an expression: a path or a literal is missing"),
        ("a ${  } b", "'${  }' is not an expression: a path or a literal is missing"),
        ("${state.x", "'${state.x' is not an expression: it is not closed; write $${ where ${ is"),
        ("${", "'${' is not an expression: it is not closed; write $${"),
        ("${state.}", "'${state.}' is not an expression: a key is missing behind '.'"),
        ("${state..x}", "a key is missing behind '.'"),
        ("${.x}", "'.' begins neither a path nor a literal"),
        ("${state x}", "'x' is not expected; a key of other characters is written as"),
        ("${state.a/b}", "'/' is not expected"),
        ("${state[x]}", "between '[' and ']' stands a whole number, or a key in double quotes"),
        ("${state['x']}", "stands a whole number, or a key in double quotes"),
        ("${state[]}", "stands a whole number"),
        ("${state[1}", "a '[' is not closed"),
        ('${state["x"}', "a '[' is not closed"),
        ("${state[1.5]}", "stands a whole number"),
        ("${state[9999999999]}", "stands a whole number"),
        ("${state.x ||}", "a path or a literal is missing"),
        ("${|| state.x}", "a path or a literal is missing"),
        ("${state.x |}", "a filter is missing"),
        ("${state.x | uper}", "'uper' is not a filter; did you mean 'upper'?"),
        ("${state.x | sort}", "'sort' is not a filter; there are json, length, keys, upper, lower"),
        ("${state.x | length || 0}", "choices stand before filters"),
        ("${state.x | upper(1)}", "upper takes 0 arguments, not 1"),
        ('${"open}', "what begins with '\"' is not JSON"),
        ("${[1, }", "what begins with '[' is not JSON"),
        ("${-}", "what begins with '-' is not JSON"),
        ("${-Infinity}", "is not JSON"),
        ("${1e999}", "is not JSON"),
        ("${007}", "'0' is not expected"),
        (f"${{{'1' * 5000}}}", "is not JSON"),
        (f"${{{'[' * 100_000}}}", "is not JSON"),
        (f"${{{'[' * 65}{']' * 65}}}", "its literal holds too many brackets"),
        ("${true.x}", "true is a literal, and holds nothing"),
        ("${'x'}", '"\'" begins neither a path nor a literal'),
        ("${state.x + 1}", "'+' is not expected"),
    ],
)
def test_what_can_not_be_read_names_itself_and_says_what_is_wrong(
    source: str, problem: str
) -> None:
    with pytest.raises(BrokenExpression) as raised:
        read_template(source)

    assert problem in str(raised.value)
    assert len(str(raised.value)) < 250


def test_a_broken_expression_says_where_in_the_value_it_stands() -> None:
    with pytest.raises(BrokenExpression) as raised:
        read_template({"a": [1, {"b": "${"}]})

    assert raised.value.place == ("a", 1, "b")


def test_a_value_that_is_nested_without_end_is_refused() -> None:
    nested: list[object] = []
    nested.append(nested)

    with pytest.raises(BrokenExpression, match="nested too deeply"):
        read_template(nested)


def test_a_template_tells_its_expressions_and_where_they_stand() -> None:
    template = read_template({"a": ["x ${state.n || 1 | json}"], "b": "${inputs.p}"})

    first, second = template.expressions
    assert (first.choices, first.filters) == ((ValuePath(("state", "n")), 1), ("json",))
    assert (first.place, second.place) == (("a", 0), ("b",))
    assert first.paths == (ValuePath(("state", "n")),)
    assert (str(first), template.whole) == ("${state.n || 1 | json}", None)
    assert read_template("${inputs.p}").whole == second
    assert read_template("${inputs.p} ").whole is None


def test_values_are_put_in_without_being_copied() -> None:
    found = value({"rows": "${state.rows}", "same": "${state.rows}"})

    assert isinstance(found, dict)
    assert found["rows"] is found["same"] is CONTEXT["state"]["rows"]


def test_what_json_can_not_say_is_nothing_within_a_text() -> None:
    endless: list[object] = []
    endless.append(endless)

    assert value("<${state.x}>", {"state": {"x": endless}}) == "<>"
    assert value("${state.x | json}", {"state": {"x": endless}}) is None


@settings(deadline=None)
@given(PATHS)
def test_a_path_that_is_written_out_reads_as_itself(path: ValuePath) -> None:
    (expression,) = read_template(f"${{{path}}}").expressions

    assert expression.choices == (path,)


@settings(deadline=None)
@given(
    st.lists(PATHS | JSON_VALUES, min_size=1, max_size=4),
    st.lists(st.sampled_from(sorted(FILTERS)), max_size=3),
    st.text(" \t\n", max_size=2),
)
def test_an_expression_that_is_written_out_reads_as_itself(
    choices: list[Any], filters: list[str], blank: str
) -> None:
    written = [str(one) if isinstance(one, ValuePath) else json.dumps(one) for one in choices]
    text = f"{blank}||{blank}".join(written)
    text = blank + f"{blank}|{blank}".join([text, *filters]) + blank

    template = read_template(f"a${{{text}}}b")

    assert template.expressions == (Expression(tuple(choices), tuple(filters), text),)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_can_be_written_as_text(text: str) -> None:
    assert value(text.replace("${", "$${")) == text or "$${" in text


@settings(deadline=None)
@given(
    st.lists(PATHS | JSON_VALUES, min_size=1, max_size=3),
    st.lists(st.sampled_from(sorted(FILTERS)), max_size=2),
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.booleans(),
)
def test_no_context_makes_a_template_raise(
    choices: list[Any], filters: list[str], context: dict[str, Any], mixed: bool
) -> None:
    written = [str(one) if isinstance(one, ValuePath) else json.dumps(one) for one in choices]
    text = " | ".join([" || ".join(written), *filters])

    found = value(f"<${{{text}}}>" if mixed else f"${{{text}}}", context)

    assert isinstance(found, str) or not mixed


@settings(deadline=None)
@given(st.text(alphabet='${}|."[]x0- \\', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BrokenExpression):
        read_template(text).value({"x": [{"x0": None}]})


@pytest.mark.parametrize(
    "source",
    [
        "${state.x} " * 20_000,
        "$" * 200_000,
        "${x" + ".y" * 100_000 + "}",
        "${" + " || ".join(["x"] * 50_000) + "}",
        "${x" + "[0]" * 100_000 + "}",
        "${" + " " * 200_000 + "}",
        '${"' + "\\\\" * 100_000 + '"}',
        "{" * 200_000,
    ],
)
def test_reading_takes_time_in_proportion_to_the_text(source: str) -> None:
    with at_most_cpu(2), suppress(BrokenExpression):
        read_template(source).value(CONTEXT)
