"""A server's program: found outside an untrusted project, and started.

This module doesn't import the SDK, so that the server starts while the SDK is being imported.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from attrs import field

from ryecore.frozen import frozen
from ryecore.items.paths import find_on_path, lies_inside
from ryecore.mcp_client.peer import Peer
from ryecore.mcp_client.servers import Server, StdioServer
from ryecore.mcp_client.wire import START_STEP
from ryecore.policy.environment import is_credential

__all__ = ["ServerSetting", "secrets_of", "start_program"]


@frozen
class ServerSetting:
    """The surroundings of a server: whether programs inside the project may run, for example.

    `leads_group` says whether this process leads a process group of its own.
    """

    project: Path
    is_project_trusted: bool
    leads_group: bool
    environ: Mapping[str, str] = field(repr=False)


def start_program(
    server: StdioServer, peer: Peer, setting: ServerSetting
) -> subprocess.Popen[bytes]:
    """Start a server; an McpError says why it can't be started."""
    program = _program(server, peer, setting)
    # This process was started in the working folder of a server whose item names none.
    cwd = setting.project / server.cwd if server.cwd is not None else Path.cwd()
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            [program, *server.args],
            stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=setting.environ, bufsize=0,
        )  # fmt: skip
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise peer.error(f"can't be started ({program}: {reason})", START_STEP) from None


def _program(server: StdioServer, peer: Peer, setting: ServerSetting) -> str:
    """Find the server's program, outside an untrusted project.

    Source: decision 21.
    """
    is_passed_over = False
    for program in find_on_path(server.command, os.environ.get("PATH", "")):
        if setting.is_project_trusted or not lies_inside(program, setting.project):
            return program
        is_passed_over = True
    if is_passed_over:
        raise peer.error(
            f"is a program inside the project, which is not trusted ({server.command})",
            "If you trust this project's own programs: rye trust-project",
        )
    raise peer.error(
        f"can't be started: {server.command} is not a program"
        + ("" if os.path.isabs(server.command) else " on the PATH"),
        "Install it, or correct config.command and sign the item again.",
    )


def secrets_of(server: Server) -> set[str]:
    """Return the values that errors leave out."""
    found = {value for name, value in os.environ.items() if is_credential(name, value)}
    if not isinstance(server, StdioServer):
        found |= set(server.headers.values())
        found |= {word for value in server.headers.values() for word in value.split()}
        found |= {server.url.partition("?")[2]}
        found |= server.oauth.secrets if server.oauth is not None else set()
    return found - {""}
