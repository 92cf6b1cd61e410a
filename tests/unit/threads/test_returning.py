"""What a thread's model hands back, and what it is told where that doesn't fit."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.directives.inputs import Declared
from ryecore.errors import ToolExecutionError
from ryecore.threads.calls.returning import (
    RETURN_NAMES,
    Rejected,
    Returned,
    check_outputs,
    return_tool,
)
from tests.unit.tools.calls import refused

N = Declared("n", "integer", required=True, description="How many.")
DONE = Declared("done", "boolean", required=True)
SAID = Declared("said", required=True)
NOTES = Declared("notes", "array")
ANY = Declared("any", "any", required=True)


def rejected(outputs: tuple[Declared, ...], arguments: str) -> str:
    came = check_outputs(outputs, arguments)
    assert isinstance(came, Rejected), came
    return came.text


def handed_back(outputs: tuple[Declared, ...], **given: Any) -> Returned:
    came = check_outputs(outputs, json.dumps(given))
    assert isinstance(came, Returned), came
    return came


def test_presence_counts_and_not_truth() -> None:
    came = handed_back((N, DONE, SAID), n=0, done=False, said="")

    assert came == Returned({"n": 0, "done": False, "said": ""})


def test_values_are_coerced_like_inputs() -> None:
    assert handed_back((N, DONE), n="3", done="true").outputs == {"n": 3, "done": True}
    assert handed_back((ANY,), any=None).outputs == {"any": None}
    assert handed_back((NOTES,), notes="[1]").outputs == {"notes": [1]}
    assert handed_back((NOTES,)).outputs == {}


def test_an_output_of_a_format_is_checked() -> None:
    due = Declared("due", required=True, format="date")

    assert handed_back((due,), due="2026-03-01").outputs == {"due": "2026-03-01"}
    text = rejected((due,), '{"due": "in March"}')
    assert 'due: "in March" is not a "date", such as 2026-01-31' in text
    assert "Valid outputs: due (date, required)" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "n: required, and missing"),
        ('{"n": null}', "n: required, and missing"),
        ('{"n": "x"}', "n: 'x' is not an integer"),
        ('{"n": 1, "m": 2}', "m: unknown"),
        ('{"n": 1', "aren't JSON"),
        ('{"n": NaN}', "JSON has no NaN"),
        ("[1]", "aren't a JSON object"),
        ("[" * 100_000, "aren't JSON"),
        ('{"n": 1, "status": "fine"}', 'status: it is "success" or "error"'),
        ('{"n": 1, "error_detail": 5}', "error_detail: it is text"),
    ],
)
def test_what_does_not_fit_is_told_with_what_would(arguments: str, says: str) -> None:
    text = rejected((N, NOTES), arguments)

    assert says in text
    assert "again" in text
    if "aren't" not in text:
        assert "Valid outputs: n (integer, required), notes (array)." in text
    assert len(text) < 2_000


def test_every_failure_is_told_at_once() -> None:
    text = rejected((N, DONE, SAID), '{"done": "maybe", "other": 1}')

    assert all(f"{name}: " in text for name in ("n", "done", "said", "other"))
    many = json.dumps({f"x{number}": 1 for number in range(500)})
    assert "and 481 more" in rejected((N,), many)


def test_a_model_that_is_blocked_says_so_and_needs_no_outputs() -> None:
    came = handed_back((N, NOTES), status="error", error_detail="No tides here.", notes=[1])

    assert came == Returned({"notes": [1]}, "error", "No tides here.")
    assert handed_back((N,), status="error", n="x").error_detail.startswith("The model gave up")
    assert handed_back((N,), status="success", n=1) == Returned({"n": 1})


def test_an_output_that_is_called_status_is_an_output() -> None:
    status = Declared("status", required=True)

    assert handed_back((status,), status="error") == Returned({"status": "error"})
    assert "error_detail: unknown" in rejected((status,), '{"status": "x", "error_detail": "y"}')
    tool = return_tool((status,))
    assert tool is not None
    assert set(tool.parameters["properties"]) == {"status"}


def test_without_outputs_there_is_no_such_tool_and_a_call_of_it_is_told_so() -> None:
    assert return_tool(()) is None
    assert "declares no outputs" in rejected((), "{}")


def test_both_names_are_returns() -> None:
    assert {"rye_directive_return", "directive_return"} == RETURN_NAMES


def test_the_tool_shows_the_outputs_and_how_to_give_up() -> None:
    tool = return_tool((N, NOTES))

    assert tool is not None
    assert tool.name == "rye_directive_return"
    assert tool.parameters["properties"]["n"] == {"type": "integer", "description": "How many."}
    assert set(tool.parameters["properties"]) == {"n", "notes", "status", "error_detail"}
    assert "Required outputs: n." in tool.description


@pytest.mark.anyio
async def test_the_tool_itself_never_runs() -> None:
    tool = return_tool((NOTES,))

    assert tool is not None
    await refused(ToolExecutionError, tool, {})


DECLARED = st.lists(
    st.builds(
        Declared,
        name=st.sampled_from(["a", "b", "c", "status"]),
        type=st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "any"]),
        required=st.booleans(),
    ),
    unique_by=lambda one: one.name,
).map(tuple)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(DECLARED, st.text() | VALUE.map(json.dumps))
def test_whatever_a_model_writes_it_is_read_or_answered(
    outputs: tuple[Declared, ...], arguments: str
) -> None:
    assert isinstance(check_outputs(outputs, arguments), Returned | Rejected)


@given(DECLARED, st.dictionaries(st.sampled_from(["a", "b", "c", "status", "x"]), VALUE))
def test_what_is_handed_back_is_declared_complete_and_json(
    outputs: tuple[Declared, ...], arguments: dict[str, object]
) -> None:
    came = check_outputs(outputs, json.dumps(arguments))

    if isinstance(came, Returned):
        names = {one.name for one in outputs}
        assert came.outputs.keys() <= names
        if came.status == "success":
            assert {one.name for one in outputs if one.required} <= came.outputs.keys()
            assert (arguments.keys() - names) <= {"status", "error_detail"}
        json.dumps(came.outputs, allow_nan=False)
    else:
        assert came.text
