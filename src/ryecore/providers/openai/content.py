"""What both of OpenAI's formats have in common."""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ryecore.llm import Capabilities, LlmRequest, MediaPart, ToolSpec
from ryecore.providers.portable_calls import arguments_of

__all__ = [
    "Contents",
    "Json",
    "arguments_text",
    "data_url",
    "file_name",
    "fits_strict",
    "listed",
    "mapped",
    "number",
    "system_text",
    "text_of",
    "tool_schema",
]

Json: TypeAlias = Mapping[str, Any]
Contents: TypeAlias = Mapping[str, bytes]
"""The content of media, by their handle."""

_STRICT_WORDS: Final = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items",
        "properties", "required", "title", "type",
    }
)  # fmt: skip


def mapped(value: object) -> Json:
    """A JSON object; an empty one in the place of anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """A JSON array; an empty one in the place of anything else."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """A text; an empty one in the place of anything else."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """A count; 0 in the place of anything else."""
    return value if type(value) is int and value > 0 else 0


def data_url(part: MediaPart, contents: Contents) -> str:
    """A medium as a `data:` address."""
    return f"data:{part.media_type};base64,{base64.b64encode(contents[part.handle]).decode()}"


def file_name(part: MediaPart) -> str:
    """A medium's name; a document must have one."""
    return part.name or f"file.{part.media_type.rpartition('/')[2]}"


def system_text(request: LlmRequest, can: Capabilities) -> str:
    """The system text; with the answer's schema in it where the model takes none by itself."""
    if request.response_format is None or can.response_format:
        return request.system
    schema = json.dumps(dict(request.response_format.schema))
    return f"{request.system}\n\nAnswer with JSON that fits this schema: {schema}".lstrip()


def tool_schema(tool: ToolSpec) -> dict[str, Any]:
    """A tool's function. It isn't strict: schemas are the tools' own."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


def arguments_text(text: str) -> str:
    """A call's arguments as they go back: servers refuse, or break at, what is no JSON object."""
    if arguments_of(text) is None:
        return json.dumps({"invalid_arguments": text})
    return text or "{}"


def fits_strict(schema: object) -> bool:
    """Whether OpenAI can hold an answer to a schema: closed objects that require all they have."""
    if isinstance(schema, bool) or not isinstance(schema, Mapping) or not schema:
        return False
    if not _STRICT_WORDS.issuperset(schema):
        return False
    properties = mapped(schema.get("properties"))
    if "object" in (schema.get("type"), *listed(schema.get("type"))) and (
        schema.get("additionalProperties") is not False
        or set(listed(schema.get("required"))) != set(properties)
    ):
        return False
    inner = [*properties.values(), *mapped(schema.get("$defs")).values()]
    inner += listed(schema.get("anyOf"))
    if "items" in schema:
        inner.append(schema["items"])
    return all(fits_strict(one) for one in inner)
