"""ryecore's MCP server as a real process, and the official SDK's client in front of it."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from attrs import frozen
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.forking import SERVERS, Forked, relay_command
from tests.workspace import Workspace

COMMAND = ["-m", "ryecore.cli", "mcp", "serve"]
TOKEN = "a-token-of-the-tests"
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])
"""The handshake of 2025 and before, and whichever is newest."""

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}


def arguments(workspace: Workspace, **more: Any) -> dict[str, Any]:
    """The arguments of a call on the workspace's project."""
    return {"project_path": str(workspace.project), **more}


def environ(workspace: Workspace, **more: str) -> dict[str, str]:
    return {**workspace.environ, "USER_SPACE": str(workspace.user), **more}


def stdio_command() -> list[str]:
    """A command that forks the server where its modules are imported.

    What the server starts is forked too in a test that uses `forked_connectors`.
    """
    return [*relay_command(SERVERS, sys.executable), *COMMAND[1:]]


@asynccontextmanager
async def stdio(
    workspace: Workspace, *args: str, mode: str = "auto", fresh: bool = False, **options: Any
) -> AsyncIterator[Client]:
    """A client that has started the server; a fresh one imports all that it needs by itself."""
    command, *fixed = [sys.executable, *COMMAND] if fresh else stdio_command()
    server = StdioServerParameters(
        command=command,
        args=[*fixed, "--project", str(workspace.project), *args],
        env=environ(workspace),
        cwd=str(workspace.project),
    )
    async with Client(server, mode=mode, **options) as client:
        yield client


@contextmanager
def process(
    workspace: Workspace, *args: str, fresh: bool = False, **variables: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """The server, its streams in the test's own hands; a fresh one has its own command line."""
    options: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "cwd": workspace.project,
        "env": environ(workspace, **variables),
    }
    started: subprocess.Popen[bytes] = (
        subprocess.Popen([sys.executable, *COMMAND, *args], **options)
        if fresh
        else Forked([*COMMAND[1:], *args], imported=SERVERS, executable=sys.executable, **options)
    )
    try:
        yield started
    finally:
        started.kill()
        for stream in (started.stdin, started.stdout, started.stderr):
            assert stream is not None
            stream.close()
        started.wait()


@frozen
class Served:
    """A server over HTTP.

    Attributes:
        url: Where.
        port: Its port.
        process: The server.
    """

    url: str
    port: int
    process: "subprocess.Popen[bytes]"


@contextmanager
def http(
    workspace: Workspace, *args: str, fresh: bool = False, port: int = 0, **variables: str
) -> Iterator[Served]:
    """The server over HTTP, by default on a free port, as soon as it listens."""
    variables.setdefault("RYE_MCP_TOKEN", TOKEN)
    with process(workspace, "--http", str(port), *args, fresh=fresh, **variables) as started:
        assert started.stderr is not None
        line = started.stderr.readline().decode()
        assert "ryecore serves MCP at " in line, line + started.stderr.read().decode()
        url = line.rpartition(" ")[2].strip()
        yield Served(url, httpx2.URL(url).port or 80, started)


def said(result: Any) -> dict[str, Any]:
    """The document of a result, which its text holds."""
    assert result.structured_content is None
    document: dict[str, Any] = json.loads(result.content[0].text)
    assert result.is_error == (document["status"] == "error")
    return document


async def ended(pid: int) -> None:
    """Wait for the end of a process that is nobody's child here."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(20):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def read_pid(fifo: Path) -> int:
    """The number that a tool writes into a FIFO; waits for it."""
    return int(fifo.read_text())


def make_waiting_tool(workspace: Workspace) -> tuple[str, Path]:
    """A tool that says its process id through a FIFO, and then waits for ever."""
    fifo = workspace.project / "pid"
    os.mkfifo(fifo)
    return workspace.shell("a/waits", 'echo $$ > "$1/pid"; exec sleep 1000'), fifo
