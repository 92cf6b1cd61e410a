"""From the plain dict of a call to the result of an MCP tool. Pure."""

import json
from collections.abc import Mapping
from typing import cast

from mcp_types import CallToolResult, TextContent

__all__ = ["tool_result"]


def tool_result(document: Mapping[str, object]) -> CallToolResult:
    """The same document as structured content and as JSON text.

    What JSON has no form for, such as NaN or half a character, is replaced.
    """
    plain = cast("dict[str, object]", json.loads(_dumped(document), parse_constant=lambda _: None))
    return CallToolResult(
        content=[TextContent(type="text", text=_dumped(plain))],
        structured_content=plain,
        is_error=plain.get("status") == "error",
    )


def _dumped(document: Mapping[str, object]) -> str:
    text = json.dumps(document, ensure_ascii=False, default=str)
    return text.encode("utf-8", errors="replace").decode()
