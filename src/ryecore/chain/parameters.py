"""Check a tool's parameters against the schema that it declares."""

import json
from collections.abc import Mapping
from typing import Any

from ryecore.chain.plan import RESERVED_PARAMETER, with_defaults
from ryecore.errors import InputError, InvalidParameters
from ryecore.lillux.schema import SchemaValidator

__all__ = ["checked_parameters"]


async def checked_parameters(
    item_id: str,
    schema: Mapping[str, Any] | None,
    validator: SchemaValidator | None,
    parameters: Mapping[str, Any],
) -> Mapping[str, Any]:
    """The parameters with the schema's defaults.

    Args:
        item_id: The tool, for the error's text.
        schema: The JSON Schema that it declares; None where it takes anything.
        validator: The same schema, compiled.
        parameters: What it is given.

    Raises:
        InvalidParameters: They don't fit; every failing path is listed.
        InputError: They can't be written as JSON, or take a reserved name.
    """
    if RESERVED_PARAMETER in parameters:
        raise InputError(
            f"The parameter '{RESERVED_PARAMETER}' is reserved for signed configuration.",
            next_step="Leave it out.",
        )
    if validator is None or schema is None:
        return parameters
    filled = with_defaults(schema, parameters)
    try:
        failures = await validator.failures_async(json.dumps(filled, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The parameters can't be written as JSON: {problem}.",
            next_step="Pass text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None
    if not failures:
        return filled
    listed = tuple(
        f"{failure.path}: {failure.message}" if failure.path else failure.message
        for failure in failures
    )
    raise InvalidParameters(
        f"The parameters don't fit {item_id}: {'; '.join(listed)}.",
        next_step=f"Its schema: {_known_parameters(schema)}.",
        failures=listed,
    )


def _known_parameters(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    names = [
        f"{name} ({part.get('type', 'any') if isinstance(part, Mapping) else 'any'}"
        + (", required)" if name in required else ")")
        for name, part in schema.get("properties", {}).items()
    ]
    return ", ".join(names) or "no parameters"
