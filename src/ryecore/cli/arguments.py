"""KEY=VALUE arguments, read as a tool's schema means them. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ryecore.errors import InputError

__all__ = ["read_pairs"]


def read_pairs(pairs: Sequence[str], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read KEY=VALUE arguments.

    Args:
        pairs: The arguments.
        schema: The tool's schema, if it has one.

    Returns:
        Text where the schema says string; else JSON where the value reads as JSON; else text.

    Raises:
        InputError: An argument has no key or no `=`.
    """
    properties = (schema or {}).get("properties", {})
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(
                f"{pair!r} is no parameter.", next_step="Write KEY=VALUE, such as path=sales.csv."
            )
        part = properties.get(key)
        wants_text = isinstance(part, Mapping) and part.get("type") == "string"
        given[key] = value if wants_text else _json_or_text(value)
    return given


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
