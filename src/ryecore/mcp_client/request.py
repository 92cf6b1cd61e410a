"""What a connector is asked for: its command line, and that of each call of a kept one."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

__all__ = ["Request", "read_request"]


@frozen
class Request:
    """What the connector is asked for.

    Attributes:
        server: What errors call the server.
        server_config: The server's item, sealed.
        transport: What the runtime expects of it; None takes any.
        tool: The tool's item, sealed; None where the tools are to be listed.
        tool_name: What the server calls it.
        project: The project's folder.
        is_project_trusted: Whether programs inside it may run.
        server_variables: The variables that a server gets that is started; None for those that
            every program gets.
        keep: The name of the host's control socket; None for one call.
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


def read_request(arguments: Sequence[str]) -> Request:
    """Read the connector's command line."""
    parser = argparse.ArgumentParser(prog="connect.py", allow_abbrev=False)
    parser.add_argument("--server", default="", help="the server's id, for messages")
    parser.add_argument("--server-config", type=Path, required=True)
    parser.add_argument("--transport")
    parser.add_argument("--tool", default="", help="what the server calls the tool")
    parser.add_argument("--tool-path", type=Path, help="the tool's item; none lists the tools")
    parser.add_argument("--project-path", type=Path, required=True)
    parser.add_argument("--project-trusted", choices=["yes", "no"], default="no")
    parser.add_argument("--server-variables", help="names, with commas between them")
    parser.add_argument("--keep", help="the name of the host's control socket")
    found = parser.parse_args(arguments)
    return Request(
        found.server or found.server_config.stem,
        found.server_config,
        found.transport,
        found.tool_path,
        found.tool,
        found.project_path,
        found.project_trusted == "yes",
        None if found.server_variables is None else frozenset(found.server_variables.split(",")),
        found.keep,
    )
