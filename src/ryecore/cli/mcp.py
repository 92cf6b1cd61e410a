"""The commands of `rye mcp`."""

import click

from ryecore.cli.mcp_serve import serve
from ryecore.cli.mcp_tools import pin, tools

__all__ = ["mcp"]


@click.group(short_help="Offer a project to MCP clients, and use MCP servers.")
def mcp() -> None:
    """Offer a project to MCP clients, and use the tools of MCP servers."""


mcp.add_command(serve)
mcp.add_command(tools)
mcp.add_command(pin)
