"""JSON texts are those of `json.dumps`."""

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.convert.json_text import indented_json, make_encoder

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
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
    value = {"a": {1}, "b": MappingProxyType({"c": [b"x"]})}
    said = json.loads(indented_json(value))
    assert said == {"a": "{1}", "b": {"c": ["b'x'"]}}


def test_what_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(ValueError, match="Circular"):
        indented_json(value)


@given(VALUES, st.booleans(), st.booleans())
def test_an_encoder_that_is_made_once_writes_what_json_does(
    value: Any, ascii_only: bool, sort_keys: bool
) -> None:
    encode = make_encoder(ascii_only=ascii_only, sort_keys=sort_keys, allow_nan=True)
    wanted = json.dumps(value, ensure_ascii=ascii_only, sort_keys=sort_keys, separators=(",", ":"))
    assert encode(value) == encode(value) == wanted


def test_an_encoder_refuses_what_json_lacks_and_works_again() -> None:
    encode = make_encoder()
    circular: list[Any] = []
    circular.append(circular)
    for value, problem in (
        (float("inf"), ValueError),
        ({1}, TypeError),
        (circular, RecursionError),
    ):
        with pytest.raises(problem):
            encode([value])
    assert encode(["\udcff", 1]) == '["\\udcff",1]'
