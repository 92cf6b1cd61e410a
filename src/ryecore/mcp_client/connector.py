"""The connector: a process of its own between a tool's chain and its MCP server.

It is started by the mcp runtimes, on the interpreter that ryecore runs on. It answers one call and
ends; or, with `--keep`, it serves calls until its host closes the control socket, nobody has called
for a while, or the server breaks off.

Source: seed 002, "mcp/stdio" and "mcp/http"; decision 30.
"""

import argparse
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.lowlevel import checkpoint
from attrs import frozen

from ryecore.errors import McpError, MetadataError, RyeError
from ryecore.items.metadata import parse_metadata
from ryecore.mcp_client.guard import Guard
from ryecore.mcp_client.pins import PinnedTool, read_tool
from ryecore.mcp_client.servers import Server, fill_in, read_server
from ryecore.mcp_client.wire import refusal_of

if TYPE_CHECKING:
    from ryecore.mcp_client.session import ServerSession

__all__ = ["Wish", "answer", "main", "open_server", "read_wish"]


@frozen
class Wish:
    """What the connector is asked for.

    Attributes:
        server: What errors call the server.
        server_config: The server's item, sealed.
        transport: What the runtime expects of it; None takes any.
        tool: The tool's item, sealed; None where the tools are to be listed.
        tool_name: What the server calls it.
        project: The project's folder.
        is_project_trusted: Whether programs inside it may run.
        keep: The host's control socket; None for one call.
    """

    server: str
    server_config: Path
    transport: str | None
    tool: Path | None
    tool_name: str
    project: Path
    is_project_trusted: bool
    keep: Path | None


def main(arguments: Sequence[str]) -> int:
    """Run the connector.

    Args:
        arguments: The command line, without the program.

    Returns:
        The exit code: 0 where a document was printed, be it of a failure.
    """
    wish = read_wish(arguments)
    guard = Guard()  # before anything makes a thread
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # the SDK logs what servers send
    if wish.keep is None:
        document = anyio.run(_answer_once, wish, guard)
        _print(document)
    else:
        from ryecore.mcp_client.service import serve_calls  # noqa: PLC0415 - for `--keep` alone

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the host, too
        anyio.run(serve_calls, wish, guard)
    guard.dismiss()
    return 0


def read_wish(arguments: Sequence[str]) -> Wish:
    """Read the connector's command line."""
    parser = argparse.ArgumentParser(prog="connect.py", allow_abbrev=False)
    parser.add_argument("--server", default="", help="the server's id, for messages")
    parser.add_argument("--server-config", type=Path, required=True)
    parser.add_argument("--transport")
    parser.add_argument("--tool", default="", help="what the server calls the tool")
    parser.add_argument("--tool-path", type=Path, help="the tool's item; none lists the tools")
    parser.add_argument("--project-path", type=Path, required=True)
    parser.add_argument("--project-trusted", choices=["yes", "no"], default="no")
    parser.add_argument("--keep", type=Path, help="the host's control socket")
    found = parser.parse_args(arguments)
    return Wish(
        found.server or found.server_config.stem,
        found.server_config,
        found.transport,
        found.tool_path,
        found.tool,
        found.project_path,
        found.project_trusted == "yes",
        found.keep,
    )


async def _answer_once(wish: Wish, guard: Guard) -> Mapping[str, object]:
    try:
        arguments = _read_arguments(sys.stdin.buffer.read()) if wish.tool else {}
        _, opened = open_server(wish, guard)
        async with opened as session:
            return await answer(wish, session, arguments)
    except RyeError as error:
        return refusal_of(error)


def open_server(
    wish: Wish, guard: Guard
) -> tuple[Server, "AbstractAsyncContextManager[ServerSession]"]:
    """Read a server's item, and get ready to reach it.

    Returns:
        The server, and its session, which is opened when it is entered.

    Raises:
        ConfigError: The item can't be used.
    """
    from ryecore.mcp_client.session import Place, open_session  # noqa: PLC0415 - imports the SDK

    path = wish.server_config
    server = fill_in(_read_server(wish), os.environ, path)
    place = Place(wish.project, wish.is_project_trusted, guard.leads_group)
    return server, open_session(server, wish.server, place)


def _read_server(wish: Wish) -> Server:
    path = wish.server_config
    server = read_server(_document_at(path), path)
    kind = "stdio" if server.transport == "stdio" else "http"
    if wish.transport not in (None, kind):
        raise McpError(
            f"The MCP server '{wish.server}' is reached by {server.transport}, and the executor of "
            f"the tool is for {wish.transport}.",
            next_step=f"Let the tool's executor_id be rye/core/runtimes/mcp/{kind}, and sign it.",
            server=wish.server,
        )
    return server


async def answer(
    wish: Wish,
    session: "ServerSession",
    arguments: Mapping[str, Any],
    begin: Callable[[], Awaitable[None]] = checkpoint,
) -> Mapping[str, object]:
    """Do what is wished for: list the tools, or call one.

    Args:
        wish: What is asked for.
        session: The server.
        arguments: The tool's.
        begin: Awaited right before a call leaves.

    Raises:
        RyeError: Nothing ran.
    """
    if wish.tool is None:
        return {
            "success": True,
            "tools": [_listed(one) for one in (await session.tools()).values()],
        }
    tool = _read_pinned(wish)
    return await session.call(tool, arguments, begin)


def _listed(tool: Any) -> dict[str, object]:
    document: dict[str, object] = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def _read_pinned(wish: Wish) -> PinnedTool:
    path = cast("Path", wish.tool)
    tool = read_tool(_document_at(path), path)
    if wish.tool_name and wish.tool_name != tool.declaration.name:
        raise MetadataError(
            f"The MCP tool {path.stem} names {tool.declaration.name!r}, and {wish.tool_name!r} was "
            "asked for.",
            next_step="Leave tool_name to the tool's signed config.",
            path=path,
        )
    return tool


def _document_at(path: Path) -> Mapping[str, object]:
    return parse_metadata(path.read_bytes(), path)  # which remembers by content


def _read_arguments(given: bytes) -> dict[str, Any]:
    arguments = json.loads(given or b"{}")
    if not isinstance(arguments, dict):
        raise McpError("The arguments of a tool are a JSON object.", server="")
    return arguments


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
    sys.stdout.buffer.flush()
