"""The connector: the process between a tool's chain and its MCP server.

The mcp runtimes start it, on the interpreter that ryecore runs on. It serves one call and ends.
With `--keep` it serves calls until its host closes the control socket, no call came for a while, or
the server breaks off. They share one session with the server. For each call the host sends a
socket of its own over the control socket; closing that cancels the call.

Source: docs/design/runtimes.md#mcp; decision 30.
"""

import argparse
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.lowlevel import checkpoint

from ryecore.errors import McpError, MetadataError, RyeError
from ryecore.frozen import frozen
from ryecore.items.metadata import parse_metadata
from ryecore.mcp_client.host_line import HostLine, Lines
from ryecore.mcp_client.peer import Peer
from ryecore.mcp_client.pins import PinnedTool, read_tool
from ryecore.mcp_client.program import ServerSetting, secrets_of, start_program
from ryecore.mcp_client.sdk import import_client
from ryecore.mcp_client.servers import Server, StdioServer, fill_in, read_server
from ryecore.mcp_client.service import ConnectorService
from ryecore.mcp_client.task_files import OpenTasks
from ryecore.mcp_client.tokens import TokenFile, may_carry_tokens
from ryecore.mcp_client.wire import START_STEP, encode_json, error_document
from ryecore.policy.environment import is_short_listed

if TYPE_CHECKING:
    from ryecore.mcp_client.session import ServerSession

__all__ = ["Request", "main", "read_request"]

_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class Watchdog:
    """A process that kills the group that this one leads when this one dies. Made before threads.

    The kernel can't tie a server's own children to the connector: `npx` starts node, and node the
    server. So where a connector ends without having cleaned up, even by SIGKILL, its watchdog
    kills the rest of the group.
    """

    def __init__(self) -> None:
        self._pid, self._alive = 0, -1
        if os.getpgrp() != os.getpid():
            return  # the group of another process, such as a shell
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            _watch(read)
        os.close(read)
        self._pid, self._alive = pid, write

    @property
    def leads_group(self) -> bool:
        """Whether this process leads a group of its own, which it may signal."""
        return self._pid != 0

    def dismiss(self) -> None:
        """Dismiss the watchdog, as all is cleaned up, and wait for its end."""
        if self._pid == 0:
            return
        with suppress(OSError):  # it was killed
            os.write(self._alive, b".")
        os.close(self._alive)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0


def _watch(alive: int) -> None:
    """Wait in the watchdog for the end of the connector; never return."""
    is_dismissed = False
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # else their readers would wait for this process
            os.dup2(nothing, stream)
        is_dismissed = bool(os.read(alive, 1))
    finally:
        if not is_dismissed:
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


@frozen
class Request:
    """A connector's request, from its command line.

    `server_config` and `tool` are sealed items; without `tool`, the tools are listed. `transport`
    is the one that the runtime expects, if any. `server_variables` are the variables that a started
    server gets; None for those that every program gets. `keep` is the name of the host's control
    socket; None for one call. Tokens are kept in `user_space`.
    """

    server: str
    server_config: Path
    transport: str | None
    tool: Path | None
    tool_name: str
    project: Path
    is_project_trusted: bool
    server_variables: frozenset[str] | None
    keep: str | None
    user_space: Path


def read_request(arguments: Sequence[str]) -> Request:
    """Read the connector's command line."""
    parser = argparse.ArgumentParser(prog="connect.py", allow_abbrev=False)
    parser.add_argument("--server", default="", help="the server's id, for messages")
    parser.add_argument("--server-source", default="", help="its own file, where it has no id here")
    parser.add_argument("--server-config", type=Path, required=True)
    parser.add_argument("--transport")
    parser.add_argument("--tool", default="", help="what the server calls the tool")
    parser.add_argument("--tool-path", type=Path, help="the tool's item; none lists the tools")
    parser.add_argument("--project-path", type=Path, required=True)
    parser.add_argument("--project-trusted", choices=["yes", "no"], default="no")
    parser.add_argument("--server-variables", help="names, with commas between them")
    parser.add_argument("--user-space", type=Path, default=Path("~").expanduser())
    parser.add_argument("--keep", help="the name of the host's control socket")
    found = parser.parse_args(arguments)
    return Request(
        found.server or _id_of(found.server_source) or found.server_config.stem,
        found.server_config,
        found.transport,
        found.tool_path,
        found.tool,
        found.project_path,
        found.project_trusted == "yes",
        None if found.server_variables is None else frozenset(found.server_variables.split(",")),
        found.keep,
        found.user_space,
    )


def _id_of(source: str) -> str:
    """Return the id of the item in a file of a space; empty where that isn't one."""
    return os.path.splitext(source.rpartition("/.ai/tools/")[2])[0]


def main(arguments: Sequence[str]) -> int:
    """Run the connector, and return its exit code.

    0 where a document was printed, even one of a failure.
    """
    request = read_request(arguments)
    watchdog = Watchdog()  # before anything makes a thread
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # the SDK logs what servers send
    if request.keep is None:
        document = anyio.run(_serve_once, request, watchdog)
        _print(document)
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the host, too
        anyio.run(_serve_calls, request, watchdog)
    watchdog.dismiss()
    return 0


async def _serve_once(request: Request, watchdog: Watchdog) -> Mapping[str, object]:
    try:
        arguments = _read_arguments(sys.stdin.buffer.read()) if request.tool else {}
    except RyeError as error:
        return error_document(error)
    service = ConnectorService(partial(prepare_session, request, watchdog))
    document = await service.serve_one(lambda session: execute_request(request, session, arguments))
    if document is None:
        document = error_document(
            McpError(
                f"The MCP server '{request.server}' broke off before the call was sent.",
                next_step=START_STEP,
                server=request.server,
            )
        )
    return document


def _read_arguments(payload: bytes) -> dict[str, Any]:
    arguments = json.loads(payload or b"{}")
    if not isinstance(arguments, dict):
        raise McpError(
            "The arguments of a tool are a JSON object.",
            next_step="Pass a JSON object.",
            server="",
        )
    return arguments


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(encode_json(document))
    sys.stdout.buffer.flush()


@lru_cache(maxsize=1024)
def _read_call(arguments: tuple[str, ...]) -> Request:
    return read_request(arguments)


async def _serve_calls(request: Request, watchdog: Watchdog) -> None:
    """Serve calls until the host is gone, no call comes, or the server breaks off."""
    service: ConnectorService

    def open_session() -> tuple[Server, "AbstractAsyncContextManager[ServerSession]"]:
        return prepare_session(request, watchdog, service.lines)

    async def execute(
        call: Mapping[str, Any],
        session: "ServerSession",
        begin: Callable[[], Awaitable[None]],
        line: HostLine,
    ) -> Mapping[str, object]:
        arguments = call["args"]
        wanted = _read_call(tuple(arguments[arguments.index(sys.argv[0]) + 1 :]))
        return await execute_request(wanted, session, call["params"], begin, line)

    service = ConnectorService(open_session)
    await service.serve(f"\0{request.keep}", execute)


def prepare_session(
    request: Request, watchdog: Watchdog, lines: Lines | None = None
) -> tuple[Server, "AbstractAsyncContextManager[ServerSession]"]:
    """Read a server's item, start the server where it is to run here, and prepare its session.

    `lines` are the calls whose hosts can be asked.
    """
    path = request.server_config
    server = fill_in(_read_server(request), os.environ, path)
    peer = Peer(request.server, secrets_of(server))
    setting = ServerSetting(
        request.project,
        request.is_project_trusted,
        watchdog.leads_group,
        _server_environ(request, os.environ),
    )
    process = start_program(server, peer, setting) if isinstance(server, StdioServer) else None
    import_client()  # while the server starts
    from ryecore.mcp_client.session import open_session  # noqa: PLC0415 - imports the SDK

    file: TokenFile | None = None
    open_tasks: OpenTasks | None = None
    if not isinstance(server, StdioServer):  # one that was started here ends with its tasks
        open_tasks = OpenTasks(request.user_space, server.url)
        if may_carry_tokens(server.url):
            file = TokenFile(request.user_space, server.url)
    return server, open_session(
        server,
        peer,
        process,
        leads_group=setting.leads_group,
        file=file,
        lines=lines,
        may_ask=_declared_questions(path),
        open_tasks=open_tasks,
    )


def _declared_questions(path: Path) -> tuple[str, ...]:
    """Return the kinds of questions that a server's signed item declares."""
    declared = _document_at(path).get("may_ask")
    return tuple(map(str, declared)) if isinstance(declared, list | tuple) else ()


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
    """Return a server's environment: a short list of names, or those that were requested.

    Source: decision 20.
    """
    names = request.server_variables
    return {
        name: value
        for name, value in environ.items()
        if (is_short_listed(name) if names is None else name in names)
    }


async def execute_request(
    request: Request,
    session: "ServerSession",
    arguments: Mapping[str, Any],
    begin: Callable[[], Awaitable[None]] = checkpoint,
    line: HostLine | None = None,
) -> Mapping[str, object]:
    """List the tools, or call one.

    `begin` is awaited right before a call is sent; `line` leads to the call's host.
    """
    if request.tool is None:
        return {
            "success": True,
            "tools": [_tool_document(one) for one in (await session.tools()).values()],
        }
    tool = _read_pinned(request)
    return await session.call(tool, arguments, begin, line)


def _tool_document(tool: Any) -> dict[str, object]:
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
    return parse_metadata(path.read_bytes(), path)  # cached by content
