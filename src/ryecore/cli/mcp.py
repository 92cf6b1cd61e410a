"""The commands of `rye mcp`."""

import click

__all__ = ["mcp"]


@click.group(short_help="Offer a project to MCP clients, and use MCP servers.")
def mcp() -> None:
    """Offer a project to MCP clients, and use the tools of MCP servers."""
