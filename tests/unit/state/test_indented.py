"""What is written for people is what `json.dumps` indents."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.state.records import indented_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES | st.dictionaries(st.text() | st.integers(), VALUES, max_size=4), st.booleans())
def test_json_for_people_is_indented_json(value: Any, ascii_only: bool) -> None:
    wanted = json.dumps(value, indent=2, ensure_ascii=ascii_only)
    assert indented_json(value, ascii_only=ascii_only) == wanted


def test_what_json_lacks_is_written_as_its_text() -> None:
    said = json.loads(indented_json({"a": {1}, "b": {"c": [b"x"]}}))
    assert said == {"a": "{1}", "b": {"c": ["b'x'"]}}


def test_what_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(ValueError, match="Circular"):
        indented_json(value)
