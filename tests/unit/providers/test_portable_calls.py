import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.providers.portable_calls import arguments_of, portable_id, portable_name


@given(st.text(st.characters(exclude_categories=())), st.integers(29, 64))
def test_an_id_fits_and_stays_the_same(call_id: str, max_chars: int) -> None:
    sent = portable_id(call_id, max_chars)

    assert sent.isascii()
    assert set(sent) <= set("_-") | {one for one in sent if one.isalnum()}
    assert 0 < len(sent) <= max_chars
    assert portable_id(sent, max_chars) == sent == portable_id(call_id, max_chars)


def test_ids_stay_apart_and_those_that_fit_stay_as_they_are() -> None:
    assert portable_id("toolu_01-A") == "toolu_01-A"
    assert portable_id("functions.look:0") != portable_id("functions.look:1")
    assert portable_id("x" * 65) != portable_id("x" * 66)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("look_up", "look_up"),
        ("multi_tool_use.parallel", "_multi_tool_use_parallel"),
        ("größe", "_gr__e"),
        ("", "_"),
        ("3d", "_3d"),
        ("dotted.tool", "dotted.tool"),
        ("n" * 70, "_" + "n" * 63),
    ],
)
def test_a_name_fits_unless_a_tool_is_called_so(name: str, sent: str) -> None:
    assert portable_name(name, {"dotted.tool"}) == sent


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "5",
        '{"a": ',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        r'{"a": "\ud800"}',
        '{"a":' * 101 + "1" + "}" * 101,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "[" * 500 + "]" * 500,
    ],
)
def test_what_cant_be_written_again_is_no_object(text: str) -> None:
    assert arguments_of(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"a": [1.5, null, "x"]}', r'{"a": "\ud83d\ude00"}', json.dumps({"a": [{}] * 500})],
)
def test_objects_are_read(text: str) -> None:
    assert arguments_of(text) == json.loads(text or "{}")
