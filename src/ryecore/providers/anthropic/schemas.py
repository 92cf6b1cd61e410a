"""JSON Schemas in the form that Anthropic's models answer in. Pure.

The vendor refuses what it can't enforce, such as `minimum`. Such words go into the description, as
its SDK's `transform_schema` has it; the answer is checked against the whole schema all the same.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["answer_schema"]

_KEPT: Final = ("title", "description", "default", "enum", "const", "required", "$ref")
_UNIONS: Final = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_FORMATS: Final = frozenset(
    {
        "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
    }
)  # fmt: skip
_OWNERS: Final = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), ("object",)),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), ("array",)),
    **dict.fromkeys(("format", "pattern", "minLength", "maxLength"), ("string",)),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), ("integer", "number")),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), ("integer", "number")),
}


class _Open(Exception):
    """A part of the schema allows what the vendor can't: any value, or properties of any name."""


def answer_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema with only the vendor's words, others described; None if it can't be one."""
    try:
        return _fitting(schema)
    except _Open:
        return None


def _fitting(schema: object) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not schema:
        raise _Open
    kinds = schema.get("type")
    if isinstance(kinds, list | tuple):
        return _of_types(schema, kinds)
    fitting: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    left = {key: value for key, value in schema.items() if key not in (*_KEPT, "type", "$schema")}
    if "type" in schema:
        fitting["type"] = kinds
    if "$defs" in left:
        fitting["$defs"] = {name: _fitting(one) for name, one in left.pop("$defs").items()}
    for word, vendors in _UNIONS.items():
        if word in left:
            fitting[vendors] = [_fitting(one) for one in left.pop(word)]
    if kinds == "object":
        _close(fitting, left)
    elif kinds == "array":
        fitting["items"] = _fitting(left.pop("items", None))
        if left.get("minItems") in (0, 1):
            fitting["minItems"] = left.pop("minItems")
    elif kinds == "string" and left.get("format") in _FORMATS:
        fitting["format"] = left.pop("format")
    if not fitting.keys() - {"title", "description", "default"}:
        raise _Open
    if left:
        about = ", ".join(f"{key}: {json.dumps(value)}" for key, value in left.items())
        fitting["description"] = "\n\n".join(filter(None, (fitting.get("description"), about)))
    return fitting


def _close(fitting: dict[str, Any], left: dict[str, Any]) -> None:
    """Close an object: one that takes other properties, too, may be answered without any."""
    properties = left.pop("properties", {})
    others = left.pop("additionalProperties", True)
    closes = others is False or (others in (True, {}) and properties)
    if not closes or "patternProperties" in left:
        raise _Open
    fitting["properties"] = {name: _fitting(one) for name, one in properties.items()}
    fitting["additionalProperties"] = False


def _of_types(schema: Mapping[str, Any], kinds: "list[str] | tuple[str, ...]") -> dict[str, Any]:
    """Return the alternatives of a schema with several types, as a union."""
    about = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    common = {key: value for key, value in schema.items() if key not in (*about, "type")}
    if "enum" in common:  # which says the types already
        return _fitting({**about, **common})
    members = []
    for kind in kinds:
        own = {key: one for key, one in common.items() if kind in _OWNERS.get(key, (kind,))}
        members.append(_fitting({"type": kind, **own}))
    return {**about, "anyOf": members}
