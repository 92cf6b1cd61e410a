"""Pins: the digest of what a tool says of itself, and what changed since. Pure.

Source: decision 30.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches, unified_diff
from pathlib import Path
from typing import Final

from attrs import field

from ryecore.display.sanitize import escape_json
from ryecore.errors import McpError, McpToolChanged, MetadataError
from ryecore.frozen import frozen

__all__ = ["PinnedTool", "ToolDeclaration", "check_pin", "item_name", "read_tool"]

_PIN: Final = re.compile(r"[0-9a-f]{64}")
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_DIFFERENCE_LINES: Final = 200
_MAX_DIFFERENCE_LINE: Final = 400


@frozen
class ToolDeclaration:
    """A server's declaration of a tool, as far as a model is shown it.

    Titles and annotations count for nothing, and results are checked at each call; so neither they
    nor the output's schema are part of the pin. The description is untrusted text. `is_read_only`
    is the server's hint that calls change nothing, which who pins the tool reads in its item.
    """

    name: str
    description: str
    input_schema: Mapping[str, object]
    is_read_only: bool = field(default=False, eq=False)

    @property
    def pin(self) -> str:
        """The SHA-256 of the declaration as canonical JSON."""
        document = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
        }
        text = json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()

    def lines(self) -> Iterator[str]:
        """Yield the declaration as lines that can be compared; control characters are escaped."""
        yield f"name: {json.dumps(self.name)}"
        yield "description:"
        for line in self.description.splitlines():
            yield f"  {escape_json(json.dumps(line, ensure_ascii=False))[1:-1]}"
        schema = json.dumps(self.input_schema, indent=2, sort_keys=True, ensure_ascii=False)
        yield from escape_json(f"inputSchema: {schema}").splitlines()


@frozen
class PinnedTool:
    """The signed item of a tool: its declaration at pinning, and the pin's digest if it has one."""

    server: str
    declaration: ToolDeclaration
    pin: str | None
    path: Path


def read_tool(document: Mapping[str, object], path: Path) -> PinnedTool:
    """Read a tool's item, whose pin must be that of its own description and schema."""
    config, schema = document.get("config"), document.get("config_schema")
    config = config if isinstance(config, Mapping) else {}
    server, name, pin = config.get("server"), config.get("tool_name"), config.get("pin")
    if not isinstance(server, str) or not isinstance(name, str) or not name:
        raise _misdeclared(path, "its config has no server, or no tool_name")
    declaration = ToolDeclaration(
        name,
        str(document.get("description") or ""),
        schema if isinstance(schema, Mapping) else {"type": "object"},
    )
    if pin is None:
        return PinnedTool(server, declaration, None, path)
    if not isinstance(pin, str) or _PIN.fullmatch(pin) is None:
        raise _misdeclared(path, "its pin is not 64 hex digits")
    if pin != declaration.pin:
        raise _misdeclared(
            path, "its pin is not that of its tool_name, description and config_schema"
        )
    return PinnedTool(server, declaration, pin, path)


def check_pin(tool: PinnedTool, offered: Mapping[str, ToolDeclaration]) -> None:
    """Refuse with `McpToolChanged` a tool that isn't the pinned one, with the difference.

    A tool without a pin only has to be there.
    """
    wanted = tool.declaration
    found = offered.get(wanted.name)
    if found is None:
        near = get_close_matches(wanted.name, offered, n=3, cutoff=0.5) or sorted(offered)[:5]
        raise McpError(
            f"The MCP server '{tool.server}' offers no tool {_shown(wanted.name)}.",
            next_step=f"It offers {', '.join(map(_shown, near))}."
            if near
            else "It offers none at all.",
            server=tool.server,
        )
    if tool.pin is None or _pin_of(found, tool.server) == tool.pin:
        return
    difference = tuple(_difference(wanted, found))
    raise McpToolChanged(
        f"The tool {_shown(wanted.name)} of the MCP server '{tool.server}' is not the one that was "
        "pinned:\n" + "\n".join(difference) + "\nIt did not run.",
        next_step="If you have read the change and it is right: "
        f"rye mcp pin {tool.server} {wanted.name} --force --sign",
        server=tool.server,
        tool=wanted.name,
        difference=difference,
    )


def _pin_of(found: ToolDeclaration, server: str) -> str:
    try:
        return found.pin
    except ValueError:
        raise McpError(
            f"The MCP server '{server}' declares {_shown(found.name)} with values that JSON can't "
            "hold.",
            next_step="Tell whoever maintains the server.",
            server=server,
        ) from None


def _difference(before: ToolDeclaration, now: ToolDeclaration) -> Iterator[str]:
    lines = unified_diff(list(before.lines()), list(now.lines()), "pinned", "offered", lineterm="")
    for count, line in enumerate(lines):
        if count == _MAX_DIFFERENCE_LINES:
            yield "…"
            return
        yield line if len(line) <= _MAX_DIFFERENCE_LINE else line[:_MAX_DIFFERENCE_LINE] + "…"


def item_name(tool_name: str) -> str:
    """Return the name of a tool's item: its own where that is valid, else one derived from it."""
    name = _NOT_IN_IDS.sub("_", tool_name).lstrip("-") or "tool"
    if name == tool_name and len(name) <= 100:
        return name
    return f"{name[:80]}-{hashlib.sha256(tool_name.encode()).hexdigest()[:8]}"


def _shown(name: str) -> str:
    return json.dumps(name[:100], ensure_ascii=False)


def _misdeclared(path: Path, problem: str) -> MetadataError:
    return MetadataError(
        f"The MCP tool {path} can't be used: {problem}.",
        next_step="Pin it again (rye mcp pin), or mend it and sign it again.",
        path=path,
    )
