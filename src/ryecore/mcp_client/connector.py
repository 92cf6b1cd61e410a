"""The connector: a process of its own between a tool's chain and its MCP server.

It is started by the mcp runtimes, on the interpreter that ryecore runs on. It answers one call and
ends; or, with `--keep`, it serves calls until its host closes the control socket, nobody has called
for a while, or the server breaks off.

Source: docs/design/runtimes.md#mcp; decision 30.
"""

import json
import logging
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from ryecore.errors import McpError, RyeError
from ryecore.mcp_client.answer import answer, open_server
from ryecore.mcp_client.guard import Guard
from ryecore.mcp_client.request import Request, read_request
from ryecore.mcp_client.wire import as_json, refusal_of

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the connector.

    Args:
        arguments: The command line, without the program.

    Returns:
        The exit code: 0 where a document was printed, be it of a failure.
    """
    request = read_request(arguments)
    guard = Guard()  # before anything makes a thread
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # the SDK logs what servers send
    if request.keep is None:
        document = anyio.run(_answer_once, request, guard)
        _print(document)
    else:
        from ryecore.mcp_client.service import serve_calls  # noqa: PLC0415 - for `--keep` alone

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the host, too
        anyio.run(serve_calls, request, guard)
    guard.dismiss()
    return 0


async def _answer_once(request: Request, guard: Guard) -> Mapping[str, object]:
    try:
        arguments = _read_arguments(sys.stdin.buffer.read()) if request.tool else {}
        _, opened = open_server(request, guard)
        async with opened as session:
            return await answer(request, session, arguments)
    except RyeError as error:
        return refusal_of(error)


def _read_arguments(given: bytes) -> dict[str, Any]:
    arguments = json.loads(given or b"{}")
    if not isinstance(arguments, dict):
        raise McpError("The arguments of a tool are a JSON object.", server="")
    return arguments


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(as_json(document))
    sys.stdout.buffer.flush()
