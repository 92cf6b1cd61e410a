"""The check of a tool's structured content against the schema that its server declares.

The schema is the server's own: the check is bounded, and leaves the event loop free.

Source: https://modelcontextprotocol.io/specification/2025-06-18/server/tools#structured-content.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import anyio.to_thread
from mcp_types import CallToolResult

from ryecore.lillux.schema import SchemaValidator

__all__ = ["check_output"]


async def check_output(schema: Mapping[str, Any] | None, result: CallToolResult) -> None:
    """Check a tool's structured content, which a failure doesn't have.

    A RuntimeError says that it is missing, doesn't fit, or can't be checked within the bounds.
    """
    if schema is None or result.is_error:
        return
    if result.structured_content is None and "structured_content" not in result.model_fields_set:
        raise RuntimeError("the tool has an output schema, and returned no structured content")
    try:
        validator = await anyio.to_thread.run_sync(_validator, json.dumps(schema))
        failures = await validator.failures_async(json.dumps(result.structured_content))
    except (ValueError, RecursionError) as problem:
        raise RuntimeError(f"the tool's output can't be checked: {problem}") from None
    if failures:
        where = " at " if failures[0].path else ": "
        raise RuntimeError(
            f"the tool's structured content doesn't fit its schema{where}{failures[0]}"
        )


@lru_cache(maxsize=64)
def _validator(schema_json: str) -> SchemaValidator:
    # Servers declare date-time for times without an offset, and the result is there already.
    return SchemaValidator(schema_json, check_formats=False)
