"""MCP servers and their tools in a workspace, and what is left of their processes."""

import gc
import os
import select
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import McpError
from ryecore.mcp_client.pins import ToolDeclaration
from tests.interpreter import PYTHON
from tests.mcp_server import TOOLS
from tests.unit.lillux.system import wait_for_fds
from tests.workspace import SpaceName, Workspace

STDIO = "rye/core/runtimes/mcp/stdio"
HTTP = "rye/core/runtimes/mcp/http"
SERVER = Path(__file__).with_name("mcp_server.py")
_GONE_WITHIN_MS = 10_000

# Kept servers are the usual way. One for each call is tried where its path is another one.
BOTH_WAYS = pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])


def stdio_server(
    workspace: Workspace,
    mode: str = "good",
    file: str = "",
    *,
    env: dict[str, str] | None = None,
    space: SpaceName = "project",
    **config: object,
) -> str:
    """The item of a test server that is started; its id."""
    return server_item(
        workspace,
        env=env,
        space=space,
        **{"transport": "stdio", "command": PYTHON, "args": [str(SERVER), mode, file]} | config,
    )


def server_item(
    workspace: Workspace,
    *,
    env: dict[str, str] | None = None,
    space: SpaceName = "project",
    **config: object,
) -> str:
    """The item of a server; its id."""
    told = {"MCP_TEST_PIDS": str(workspace.root / "pids"), **(env or {})}
    workspace.yaml(
        "mcp/servers/test",
        space=space,
        executor_id=None,
        tool_type="mcp_server",
        env_config={"env": told},
        config=config,
    )
    return "mcp/servers/test"


def mcp_tool(
    workspace: Workspace,
    name: str = "echo",
    *,
    runtime: str = STDIO,
    pinned: bool = True,
    warm: bool = True,
    declared: dict[str, Any] | None = None,
    item_id: str = "",
    space: SpaceName = "project",
    **config: object,
) -> str:
    """The item of a tool of the server; its ref."""
    one: dict[str, Any] = declared or next(
        (one for one in TOOLS if one["name"] == name), {"name": name}
    )
    declaration = ToolDeclaration(
        name, one.get("description", ""), one.get("inputSchema", {"type": "object"})
    )
    return workspace.yaml(
        item_id or f"mcp/test/{name}",
        space=space,
        executor_id=runtime,
        description=declaration.description,
        config_schema=declaration.input_schema,
        config={
            "server": "mcp/servers/test",
            "tool_name": name,
            **({"pin": declaration.pin} if pinned else {}),
            **({} if warm else {"keep_warm": ""}),
            **config,
        },
    )


def why(
    workspace: Workspace, ref: str, parameters: dict[str, Any] | None = None, **options: Any
) -> str:
    """Why a call failed: a refusal in a workspace that keeps servers, a failed result else."""
    try:
        done = workspace.execute(
            ref, {"text": "hi"} if parameters is None else parameters, **options
        )
    except McpError as error:
        return str(error)
    assert not done.success
    next_step = done.data.get("next_step", "") if isinstance(done.data, dict) else ""
    return f"{done.error} {next_step}".rstrip()


def pids(workspace: Workspace) -> list[int]:
    """The processes that the test servers told of."""
    file = workspace.root / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def assert_gone(found: list[int]) -> None:
    """Assert that there were processes, and that they end; waits for the end, not for a time."""
    assert found
    for pid in found:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = poll.poll(_GONE_WITHIN_MS)
        os.close(descriptor)
        assert ended, f"process {pid} is still there"


@contextmanager
def nothing_left(workspace: Workspace) -> Iterator[None]:
    """Assert that a block leaves no process, no descriptor and no file behind."""
    workspace.execute(
        workspace.shell("test/first", "true")
    )  # so that what a host opens once is open
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        kept, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield
            assert os.listdir(folder) == []
        finally:
            tempfile.tempdir = kept
    assert_gone(pids(workspace))
    gc.collect()
    wait_for_fds(len(before))
