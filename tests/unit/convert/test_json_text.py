"""JSON texts are those of `json.dumps`."""

import json
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.convert.json_text import indented_json, make_encoder

SURROGATES = st.text(st.characters(categories=["Cs", "L"]), max_size=3)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | SURROGATES
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


@given(VALUES, st.booleans(), st.booleans(), st.booleans())
def test_an_encoder_that_is_made_once_writes_what_json_does(
    value: Any, ascii_only: bool, sort_keys: bool, spaced: bool
) -> None:
    encode = make_encoder(ascii_only=ascii_only, sort_keys=sort_keys, spaced=spaced, allow_nan=True)
    wanted = json.dumps(
        value,
        ensure_ascii=ascii_only,
        sort_keys=sort_keys,
        separators=(", ", ": ") if spaced else (",", ":"),
    )
    assert encode(value) == encode(value) == wanted


class _Size(IntEnum):
    SMALL = 1


class _Name(str):
    pass


@pytest.mark.parametrize("depth", [63, 64, 65, 300])
@pytest.mark.parametrize(
    "value", [_Size.SMALL, _Name('"x"'), {_Name("a"): 1}, {True: 1}, 2**64, -(2**63), "\x7f\x00"]
)
def test_json_is_the_same_at_any_depth_and_for_subclasses(value: object, depth: int) -> None:
    for _ in range(depth):
        value = [{"in": value}]
    assert make_encoder()(value) == json.dumps(value, separators=(",", ":"))
    assert indented_json(value, ascii_only=True) == json.dumps(value, indent=2)


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
