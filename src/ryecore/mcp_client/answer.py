"""Reach the server that a request names, and do what is asked for: list its tools, or call one."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from anyio.lowlevel import checkpoint

from ryecore.errors import McpError, MetadataError
from ryecore.items.metadata import parse_metadata
from ryecore.mcp_client.guard import Guard
from ryecore.mcp_client.pins import PinnedTool, read_tool
from ryecore.mcp_client.request import Request
from ryecore.mcp_client.sdk import import_client
from ryecore.mcp_client.servers import Server, fill_in, read_server
from ryecore.policy.inheritance import is_short_listed

if TYPE_CHECKING:
    from ryecore.mcp_client.session import ServerSession

__all__ = ["answer", "open_server"]


def open_server(
    request: Request, guard: Guard
) -> tuple[Server, "AbstractAsyncContextManager[ServerSession]"]:
    """Read a server's item, and get ready to reach it.

    Returns:
        The server, and its session, which is opened when it is entered.

    Raises:
        ConfigError: The item can't be used.
    """
    path = request.server_config
    server = fill_in(_read_server(request), os.environ, path)
    import_client()  # behind what can be refused without it
    from ryecore.mcp_client.session import Place, open_session  # noqa: PLC0415 - imports the SDK

    place = Place(
        request.project,
        request.is_project_trusted,
        guard.leads_group,
        _server_environ(request, os.environ),
    )
    return server, open_session(server, request.server, place)


def _read_server(request: Request) -> Server:
    path = request.server_config
    server = read_server(_document_at(path), path)
    kind = "stdio" if server.transport == "stdio" else "http"
    if request.transport not in (None, kind):
        raise McpError(
            f"The MCP server '{request.server}' is reached by {server.transport}, and the executor "
            f"of the tool is for {request.transport}.",
            next_step=f"Let the tool's executor_id be rye/core/runtimes/mcp/{kind}, and sign it.",
            server=request.server,
        )
    return server


def _server_environ(request: Request, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a server's environment: a short list of names, and those that were asked for.

    Source: decision 20.
    """
    names = request.server_variables
    return {
        name: value
        for name, value in environ.items()
        if (is_short_listed(name) if names is None else name in names)
    }


async def answer(
    request: Request,
    session: "ServerSession",
    arguments: Mapping[str, Any],
    begin: Callable[[], Awaitable[None]] = checkpoint,
) -> Mapping[str, object]:
    """Do what is asked for: list the tools, or call one.

    Args:
        request: What is asked for.
        session: The server.
        arguments: The tool's.
        begin: Awaited right before a call leaves.

    Raises:
        RyeError: Nothing ran.
    """
    if request.tool is None:
        return {
            "success": True,
            "tools": [_listed(one) for one in (await session.tools()).values()],
        }
    tool = _read_pinned(request)
    return await session.call(tool, arguments, begin)


def _listed(tool: Any) -> dict[str, object]:
    document: dict[str, object] = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def _read_pinned(request: Request) -> PinnedTool:
    path = cast("Path", request.tool)
    tool = read_tool(_document_at(path), path)
    if request.tool_name and request.tool_name != tool.declaration.name:
        raise MetadataError(
            f"The MCP tool {path.stem} names {tool.declaration.name!r}, and "
            f"{request.tool_name!r} was asked for.",
            next_step="Leave tool_name to the tool's signed config.",
            path=path,
        )
    return tool


def _document_at(path: Path) -> Mapping[str, object]:
    return parse_metadata(path.read_bytes(), path)  # which remembers by content
