"""`rye mcp login` and `rye mcp logout`: the tokens of MCP servers over HTTP."""

import os
import webbrowser
from typing import Final

import click

from ryecore.chain.model import ExecutionResult
from ryecore.cli.opening import with_project
from ryecore.cli.options import find_project, project_option
from ryecore.cli.output import errors_shown, show, tell
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import StyledText, counted, status_mark
from ryecore.errors import InputError
from ryecore.items.documents import parse_document
from ryecore.mcp_client.servers import url_of
from ryecore.mcp_client.tokens import TokenFile
from ryecore.policy.authorization import AuthorizationRequest
from ryecore.rye import Rye

__all__ = ["login", "logout"]

_LOGIN_TIMEOUT_S: Final = 600.0


@click.command(short_help="Log in at an MCP server that asks for it.")
@click.argument("server")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to come back to.")
@click.option(
    "--scope",
    default="",
    metavar="SCOPES",
    help="The scopes to log in for, in quotes, as the error of a call names them; by default those "
    "that the server names.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address; open no browser.")
@project_option
def login(server: str, port: int, scope: str, no_browser: bool, project_path: str) -> None:
    """Log in at an MCP server over HTTP, by the id of its item, such as mcp/servers/notes.

    The server's authorization server asks you in a browser, and sends you back to this machine. The
    tokens are kept in user space, where only you can read them.

    It also logs in at a server that asks for it only when a tool is called. Where you are logged
    in already, --scope asks for more scopes.
    """
    from ryecore.mcp_client.login import Loopback  # noqa: PLC0415 - imports anyio

    server = server.removeprefix("tool:")

    def send(request: AuthorizationRequest) -> None:
        text = StyledText()
        text.line("Log in with a browser on this machine:")
        text.line(to_one_line(request.url))
        tell(text)
        if not no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            webbrowser.open(request.url)

    async def use(rye: Rye) -> ExecutionResult:
        return await rye.execute(f"tool:{server}", timeout_s=_LOGIN_TIMEOUT_S)

    with errors_shown(as_json=False), Loopback(send, port, scope) as loopback:
        done = with_project(project_path, use, {"authorize": loopback})
        done.raise_for_status()
        count = counted(len(done.data["tools"]), "tool")  # type: ignore[index]
        said = "logged in" if loopback.is_used else "no login was needed"
        text = StyledText()
        text.line(status_mark("ok"), (server, "id"), f"  {said}; {count}")
        show(text)


@click.command(short_help="Forget the tokens of an MCP server.")
@click.argument("server")
@project_option
def logout(server: str, project_path: str) -> None:
    """Remove what is kept of the authorization at an MCP server, by the id of its item.

    The server itself isn't told.
    """
    server = server.removeprefix("tool:")
    with errors_shown(as_json=False):
        opened = Rye.open(project_path or find_project())
        item = opened.verify(f"tool:{server}")
        path = item.source.path
        url = url_of(parse_document(item.content, path), os.environ, path)
        if url is None:
            raise InputError(
                f"tool:{server} is not reached over HTTP.",
                next_step="Name a server whose transport is http or sse.",
            )
        removed = TokenFile(opened.spaces.user.root.parent, url).remove()
        text = StyledText()
        said = "  logged out" if removed else "  there were no tokens"
        text.line(status_mark("ok"), (server, "id"), said)
        show(text)
