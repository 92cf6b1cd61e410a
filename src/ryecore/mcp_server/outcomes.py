"""The result of a signed tool as an MCP result, checked against its output schema."""

import json
from collections.abc import Mapping
from functools import lru_cache

from mcp_types import CallToolResult

from ryecore.lillux.schema import SchemaValidator
from ryecore.mcp_server.content import error_result, item_result, plain_json, structured_value

__all__ = ["tool_result"]


async def tool_result(
    ref: object,
    data: object,
    schema: Mapping[str, object] | None,
    *,
    protocol_version: str,
    both: bool,
) -> CallToolResult:
    """Convert what a tool returned; the result is an error where it doesn't fit its schema.

    Args:
        ref: The tool.
        data: What it returned.
        schema: The JSON Schema of what it returns; None where it declares none.
        protocol_version: The client's version of the protocol.
        both: Whether structured content is sent as text, too.
    """
    if schema is not None:
        problem = await _unfit(structured_value(data), schema)
        if problem:
            return error_result(f"What {ref} returned doesn't fit its output schema: {problem}")
    return item_result(
        data, is_structured=schema is not None, protocol_version=protocol_version, both=both
    )


@lru_cache(maxsize=256)
def _validator(schema_json: str) -> SchemaValidator:
    return SchemaValidator(schema_json)


async def _unfit(data: object, schema: Mapping[str, object]) -> str:
    """Return how data doesn't fit a schema; empty where it fits."""
    try:
        validator = _validator(json.dumps(schema))
    except ValueError as problem:
        return f"that schema isn't valid: {problem}"
    failures = await validator.failures_async(json.dumps(plain_json(data)))
    return "; ".join(f"{one.path or 'it'}: {one.message}" for one in failures[:5])
