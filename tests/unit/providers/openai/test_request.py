import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.providers.openai.request import arguments_text, fits_strict, openai_capabilities


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a=TEXT, b={"type": ["string", "null"]}),
        closed(a=closed(b=TEXT), c={"type": "array", "items": closed(d=TEXT)}),
        closed(a={"anyOf": [TEXT, {"$ref": "#/$defs/b"}]}) | {"$defs": {"b": closed(c=TEXT)}},
        closed(a={"enum": ["x", "y"], "description": "One of two."}),
    ],
)
def test_closed_schemas_can_be_held_to(schema: dict[str, Any]) -> None:
    assert fits_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "object"},
        {"type": ["object", "null"]},
        closed(a=TEXT) | {"required": []},
        closed(a=TEXT) | {"additionalProperties": True},
        closed(a={"type": "object", "properties": {}}),
        closed(a={"type": "array", "items": {}}),
        closed(a=TEXT | {"pattern": "x"}),
        closed(a={"oneOf": [TEXT]}),
        closed(a={"anyOf": [{"type": "object"}]}),
        closed(a=TEXT) | {"$defs": {"b": {"type": "object"}}},
    ],
)
def test_open_schemas_cannot(schema: object) -> None:
    assert not fits_strict(schema)


@given(st.text() | st.dictionaries(st.text(), st.integers()).map(json.dumps))
def test_arguments_always_go_back_as_an_object(text: str) -> None:
    assert isinstance(json.loads(arguments_text(text)), dict)


def test_deeply_nested_arguments_break_nothing() -> None:
    assert isinstance(json.loads(arguments_text("[" * 200_000)), dict)


@pytest.mark.parametrize(
    ("model", "thinks", "sees"),
    [
        ("gpt-3.5-turbo", False, False),
        ("gpt-4", False, False),
        ("gpt-4o-mini", False, True),
        ("ft:gpt-4o:acme", False, True),
        ("gpt-4.1", False, True),
        ("o3-mini", True, False),
        ("o3", True, True),
        ("gpt-5", True, True),
        ("gpt-5-chat-latest", False, True),
        ("some-model-to-come", True, True),
    ],
)
def test_what_a_model_can_do_is_known_by_its_name(model: str, thinks: bool, sees: bool) -> None:
    can = openai_capabilities(model)

    assert (can.reasoning, can.takes("image/png")) == (thinks, sees)
