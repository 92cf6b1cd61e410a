"""What a tool returned, as the content of an MCP result. Pure.

A tool that returns more than text and data returns an object with a list at `content`, whose
entries are content blocks as MCP writes them: `text`, `image`, `audio`, `resource` or
`resource_link`. Tools of MCP servers return the same object.

Source: docs/how-to/serve-mcp.md#images-audio-files-and-links.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    ResourceLink,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from ryecore.errors import RyeError
from ryecore.strict_json import replace_surrogates, whole_text

__all__ = [
    "content_blocks",
    "error_result",
    "item_result",
    "plain_json",
    "reads_structure",
    "structured_value",
    "verb_result",
]

FIRST_WITH_STRUCTURE: Final = "2025-06-18"
"""The first version of the protocol with structured content and links; versions are dates."""
_FIRST_WITH_AUDIO: Final = "2025-03-26"
_ENVELOPE: Final = frozenset(
    {"success", "content", "structured_content", "error", "stderr", "pinned", "effect_unknown"}
)
_BLOCKS: Final[TypeAdapter[list[ContentBlock]]] = TypeAdapter(list[ContentBlock])


def reads_structure(protocol_version: str) -> bool:
    """Return whether clients of a version of the protocol read structured content."""
    return protocol_version >= FIRST_WITH_STRUCTURE


def content_blocks(data: object) -> list[ContentBlock] | None:
    """Return the content blocks that a tool returned; None where it returned anything else."""
    if not isinstance(data, Mapping) or not data.keys() <= _ENVELOPE:
        return None
    listed = data.get("content")
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes) or not listed:
        return None
    try:
        return _BLOCKS.validate_python(replace_surrogates(listed), by_name=False)
    except (ValidationError, RecursionError):
        return None


def item_result(
    data: object, *, is_structured: bool, protocol_version: str, both: bool
) -> CallToolResult:
    """Return the result of a tool that went well.

    Args:
        data: What it returned.
        is_structured: Whether it declares the schema of what it returns.
        protocol_version: The client's version of the protocol.
        both: Whether structured content is sent as text, too.
    """
    blocks = content_blocks(data)
    structured = _structured(structured_value(data), protocol_version) if is_structured else None
    content = _readable(blocks or (), protocol_version)
    if blocks is None and (structured is None or both):
        content = _text_of(data)
    return CallToolResult(content=content, structured_content=structured)


def structured_value(data: object) -> object:
    """Return what the schema of a tool's output describes, of what the tool returned."""
    if content_blocks(data) is None:
        return data
    return cast("Mapping[str, object]", data).get("structured_content")


def verb_result(document: Mapping[str, object], *, both: bool) -> CallToolResult:
    """Return the document of a verb, such as `rye_execute`, as JSON text.

    Values that JSON has no form for, such as NaN or a lone surrogate, are replaced.
    """
    plain = cast("dict[str, object]", plain_json(document))
    return CallToolResult(
        content=[TextContent(type="text", text=_dumped(plain))],
        structured_content=plain if both else None,
        is_error=plain.get("status") == "error",
    )


def error_result(error: RyeError | str, data: object = None) -> CallToolResult:
    """Return a failure as text that says what to do next, with the content that it came with."""
    if isinstance(error, RyeError):
        text = f"{error.message}\nNext: {error.next_step}" if error.next_step else error.message
    else:
        text = error
    blocks = content_blocks(data)
    if blocks is None or not any(isinstance(one, TextContent) for one in blocks):
        blocks = [TextContent(type="text", text=whole_text(text)), *(blocks or ())]
    return CallToolResult(content=blocks, is_error=True)


def plain_json(value: object) -> object:
    """Return a value as JSON holds it; what it has no form for is replaced."""
    return cast("object", json.loads(_dumped(value), parse_constant=lambda _: None))


def _structured(value: object, protocol_version: str) -> Any:
    """Return structured content as the protocol takes it: before 2026, only an object."""
    if not reads_structure(protocol_version):
        return None
    plain = plain_json(value)
    is_modern = protocol_version in MODERN_PROTOCOL_VERSIONS
    return plain if isinstance(plain, dict) or (is_modern and plain is not None) else None


def _text_of(data: object) -> list[ContentBlock]:
    if data is None:
        return []
    text = whole_text(data) if isinstance(data, str) else _dumped(plain_json(data))
    return [TextContent(type="text", text=text)]


def _readable(blocks: Sequence[ContentBlock], protocol_version: str) -> list[ContentBlock]:
    """Return blocks of kinds that a version of the protocol has; text stands for others."""
    readable: list[ContentBlock] = []
    for one in blocks:
        if isinstance(one, ResourceLink) and not reads_structure(protocol_version):
            readable.append(TextContent(type="text", text=f"{one.title or one.name}: {one.uri}"))
        elif isinstance(one, AudioContent) and protocol_version < _FIRST_WITH_AUDIO:
            readable.append(TextContent(type="text", text=f"(audio: {one.mime_type})"))
        else:
            readable.append(one)
    return readable


def _dumped(value: object) -> str:
    return whole_text(json.dumps(value, ensure_ascii=False, default=str))
