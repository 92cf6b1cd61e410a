"""JSON is read as RFC 8259 has it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.strict_json import FINITE_DECODER, read_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_is_json_is_read_as_python_reads_it(value: object) -> None:
    text = json.dumps(value)
    assert read_json(f" {text}\n") == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["", "NaN", "[Infinity]", '{"a": -Infinity}', "{} {}", "{'a': 1}", "[" * 200_000, "\ufeff1"],
)
def test_what_is_not_json_is_one_error(text: str) -> None:
    with pytest.raises(ValueError):
        read_json(text)


def test_a_number_that_no_float_holds_may_be_refused() -> None:
    assert read_json("1e999") == float("inf")
    with pytest.raises(ValueError, match="1e999"):
        FINITE_DECODER.decode("[1e999]")
