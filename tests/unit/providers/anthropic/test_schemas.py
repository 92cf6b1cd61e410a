"""Schemas in the vendor's own subset."""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from ryecore.agent.output import typed_answer
from ryecore.lillux import SchemaValidator


def answer_schema(schema: Any) -> Any:
    """Import what needs the SDK's package where it is needed: that takes a second."""
    from ryecore.providers.anthropic.schemas import answer_schema

    return answer_schema(schema)


CLOSED = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "fitting"),
    [
        (CLOSED, CLOSED),
        ({**CLOSED, "additionalProperties": True}, CLOSED),
        ({key: CLOSED[key] for key in ("type", "properties", "required")}, CLOSED),
        ({"type": ["integer", "null"], "minimum": 1, "title": "N"},
         {"title": "N", "anyOf": [{"type": "integer", "description": "minimum: 1"},
                                  {"type": "null"}]}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "color", "maxLength": 7, "description": "A colour."},
         {"type": "string", "description": 'A colour.\n\nformat: "color", maxLength: 7'}),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
         {"type": "array", "items": {"type": "string"}, "minItems": 1,
          "description": "uniqueItems: true"}),
        ({"oneOf": [{"type": "string"}, CLOSED]}, {"anyOf": [{"type": "string"}, CLOSED]}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "maximum": 3}}},
         {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "description": "maximum: 3"}}}),
        ({}, None),
        ({"type": "object"}, None),
        ({"type": "array"}, None),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, None),
        ({"type": "object", "properties": {"a": {}}}, None),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "patternProperties": {}}, None),
        ({"title": "anything"}, None),
    ],
)  # fmt: skip
def test_words_that_the_vendor_refuses_are_described(schema: Any, fitting: Any) -> None:
    before = repr(schema)
    assert answer_schema(schema) == fitting
    assert repr(schema) == before


@dataclass
class Invoice:
    due: date
    total: Decimal
    paid: bool | None = None
    notes: list[str] = field(default_factory=list)


def test_a_typed_answer_is_enforced() -> None:
    typed = typed_answer(Invoice)
    assert typed is not None
    fitting = answer_schema(typed.schema)
    assert fitting["required"] == ["due", "total"]
    assert fitting["properties"]["due"] == {"type": "string", "format": "date"}
    assert "pattern" in fitting["properties"]["total"]["description"]
    assert fitting["properties"]["paid"]["anyOf"] == [{"type": "boolean"}, {"type": "null"}]


def test_whatever_fits_is_a_schema() -> None:
    import json

    typed = typed_answer(list[Invoice | int])
    assert typed is not None
    text = json.dumps(answer_schema(typed.schema))
    fits = '{"result": [1, {"due": "2026-03-01", "total": "1"}]}'
    assert SchemaValidator(text).failures(fits) == ()
    assert SchemaValidator(text).failures('{"result": [null]}')
