"""An MCP server over HTTP, written with the SDK: `python -m tests.mcp_http_server KIND [PORT]`.

It prints its port once it listens, and wants the bearer token that MCP_TEST_TOKEN names.
"""

import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("test")


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
async def change(ctx: Context) -> str:
    """Changes what it says of echo."""
    server.remove_tool("echo")
    server.tool(name="echo", description="Says it to me.")(echo)
    return "changed"


class Guarded:
    """Lets in who knows the token."""

    def __init__(self, app: Any, token: str) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        wanted = f"Bearer {self.token}".encode()
        if scope["type"] != "http" or not self.token or headers.get(b"authorization") == wanted:
            await self.app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"who are you?"})


def main() -> None:
    kind = sys.argv[1]
    app: Any = (
        server.sse_app()
        if kind == "sse"
        else server.streamable_http_app(
            json_response=kind == "json", stateless_http=kind == "stateless"
        )
    )
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    guarded = Guarded(app, os.environ.get("MCP_TEST_TOKEN", ""))
    uvicorn.Server(uvicorn.Config(guarded, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
