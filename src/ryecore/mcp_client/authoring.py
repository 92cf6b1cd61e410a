"""Items of pinned tools, written from the declarations of a server."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from ryecore.display.sanitize import shorten
from ryecore.errors import ConfigError, InputError, McpError, McpToolChanged, RyeError
from ryecore.frozen import frozen
from ryecore.items.documents import parse_document
from ryecore.items.files import writable_folder, write_atomically
from ryecore.items.refs import check_item_id
from ryecore.items.spaces import Space
from ryecore.lillux.schema import MAX_SCHEMA_CHARS, SchemaValidator
from ryecore.mcp_client.pins import ToolDeclaration, check_pin, item_name, read_tool

__all__ = [
    "PinnedItem",
    "pin_tool",
    "read_declarations",
    "select_tools",
    "why_unpinnable",
    "write_server",
]

_MAX_DESCRIPTION: Final = 64 * 1024


@frozen
class PinnedItem:
    """The item of a pinned tool.

    `unchanged` where the same one was there, `signed` where that was then signed.
    """

    item_id: str
    tool_name: str
    path: Path
    pin: str
    state: Literal["written", "unchanged", "signed"]

    def to_dict(self) -> dict[str, object]:
        """Return the item as a JSON-ready object."""
        return {
            "item_id": f"tool:{self.item_id}",
            "tool_name": self.tool_name,
            "path": str(self.path),
            "pin": self.pin,
            "state": self.state,
        }


def read_declarations(listed: Sequence[Mapping[str, Any]]) -> dict[str, ToolDeclaration]:
    """Return a server's declarations of tools, by name, from the result of its item."""
    return {
        str(one["name"]): ToolDeclaration(
            str(one["name"]),
            str(one.get("description") or ""),
            one.get("inputSchema") or {},
            (one.get("annotations") or {}).get("readOnlyHint") is True,
        )
        for one in listed
    }


def select_tools(
    offered: Mapping[str, ToolDeclaration], names: Sequence[str], *, everything: bool
) -> list[ToolDeclaration]:
    """Return the tools that are requested."""
    missing = [name for name in names if name not in offered]
    if missing or not (names or everything):
        listed = shorten(", ".join(sorted(offered))) or "none"
        raise InputError(
            f"The server offers no tool {missing[0]!r}." if missing else "No tool is named.",
            next_step=f"Name some of: {listed}; or pass --all.",
        )
    return list(offered.values()) if everything else [offered[name] for name in names]


def pin_tool(
    tool: ToolDeclaration,
    *,
    server: str,
    transport: str,
    folder: str,
    space: Space,
    force: bool = False,
) -> PinnedItem:
    """Write the unsigned item of a tool; who signs it reads it first.

    It stands below the id `folder`, such as `mcp/context7`. With `force`, an item of another
    declaration is replaced; else it is refused as `McpToolChanged`, with the difference.
    """
    item_id = check_item_id(f"{folder}/{item_name(tool.name)}")
    path = space.folder("tool") / f"{item_id}.yaml"
    content = _content(tool, server, transport, folder, path)
    if path.exists():
        if _is_same_item(path, content):
            return PinnedItem(item_id, tool.name, path, tool.pin, "unchanged")
        if not force:
            _refuse(path, tool)
    _write(path, content, space)
    return PinnedItem(item_id, tool.name, path, tool.pin, "written")


def write_server(item_id: str, config: Mapping[str, object], space: Space) -> Path | None:
    """Write the unsigned item of a server, and return its path; None where it is there already."""
    path = space.folder("tool") / f"{check_item_id(item_id)}.yaml"
    if path.exists():
        return None
    document = {"tool_type": "mcp_server", "executor_id": None, "config": config}
    _write(path, json.dumps(document, indent=2).encode() + b"\n", space)
    return path


def _write(path: Path, content: bytes, space: Space) -> None:
    try:
        with writable_folder(path.parent, space.folder("tool"), space.boundary) as opened:
            write_atomically(opened / path.name, content)
    except OSError as problem:
        raise ConfigError(
            f"{path} can't be written: {problem.strerror or problem}.",
            next_step="See that its folder can be written.",
        ) from problem


def _content(tool: ToolDeclaration, server: str, transport: str, folder: str, path: Path) -> bytes:
    from ruamel.yaml import YAML  # noqa: PLC0415 - only for writing items

    problem = why_unpinnable(tool)
    if problem:
        raise ConfigError(
            f"The tool {json.dumps(tool.name[:100])} of '{server}' can't be pinned: {problem}.",
            next_step="Tell whoever maintains the server.",
        )
    document = {
        "version": "1.0.0",
        "tool_type": "mcp",
        "executor_id": f"rye/core/runtimes/mcp/{'stdio' if transport == 'stdio' else 'http'}",
        "category": folder,
        "description": tool.description,
        **({"parallel_safe": True} if tool.is_read_only else {}),
        "config": {"server": server, "tool_name": tool.name, "pin": tool.pin},
        "config_schema": json.loads(json.dumps(tool.input_schema)),
    }
    yaml: Any = YAML(typ="safe", plug_ins=[])
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 100
    yaml.sort_base_mapping_type_on_output = False
    text = io.StringIO()
    yaml.dump(document, text)
    for content in (text.getvalue(), json.dumps(document, indent=2)):  # JSON is YAML, too
        try:
            if read_tool(parse_document(content.encode(), path), path).pin == tool.pin:
                return content.encode()
        except (RyeError, UnicodeEncodeError):
            continue
    raise ConfigError(
        f"The tool {json.dumps(tool.name[:100])} of '{server}' can't be written as an item.",
        next_step="Tell whoever maintains the server.",
    )


def why_unpinnable(tool: ToolDeclaration) -> str:
    """Return why a tool can't be pinned, as part of a sentence; empty where it can."""
    if len(tool.description) > _MAX_DESCRIPTION:
        return (
            f"its description has {len(tool.description)} characters, more than "
            f"{_MAX_DESCRIPTION:,}"
        )
    try:
        schema = json.dumps(tool.input_schema, allow_nan=False)
        if len(schema) > MAX_SCHEMA_CHARS:
            return f"its schema has {len(schema)} characters, more than {MAX_SCHEMA_CHARS:,}"
        SchemaValidator(schema)
    except (ValueError, RecursionError) as problem:
        return f"its inputSchema isn't a JSON Schema that can be used ({problem})"
    return ""


def _is_same_item(path: Path, content: bytes) -> bool:
    """Return whether a file holds this item; the pin by itself doesn't name the server.

    Whether its calls run in parallel is the choice of who signed it.
    """
    try:
        documents = (parse_document(path.read_bytes(), path), parse_document(content, path))
    except (OSError, RyeError):
        return False
    there, new = ({**one, "parallel_safe": None} for one in documents)
    return there == new


def _refuse(path: Path, tool: ToolDeclaration) -> None:
    next_step = "Pass --force to replace it."
    try:
        check_pin(read_tool(parse_document(path.read_bytes(), path), path), {tool.name: tool})
    except McpToolChanged as error:
        error.next_step = next_step
        raise
    except (OSError, McpError, RyeError):
        pass
    raise InputError(f"{path} is there already, and is another item.", next_step=next_step)
