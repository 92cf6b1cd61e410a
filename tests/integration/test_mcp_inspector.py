"""The MCP Inspector, which others wrote, in front of ryecore's server."""

import json
import subprocess
from typing import Any

from tests.mcp_clients import TOKEN, environ, http, stdio_command
from tests.npm import npm_program
from tests.workspace import Workspace


def inspect(workspace: Workspace, *args: str) -> dict[str, Any]:
    done = subprocess.run(
        [npm_program("mcp", "mcp-inspector"), "--cli", *args],
        cwd=workspace.project,
        env={**environ(workspace), "PATH": environ(workspace)["PATH"]},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_inspector_lists_the_tools_and_calls_one_over_stdio(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "cat")
    server = stdio_command()
    listed = inspect(workspace, *server, "--method", "tools/list")
    called = inspect(
        workspace, *server, "--method", "tools/call", "--tool-name", "rye_execute",
        "--tool-arg", f"item_id={ref}", "--tool-arg", f"project_path={workspace.project}",
        "--tool-arg", 'parameters={"a": 1}',
    )  # fmt: skip
    assert [tool["name"] for tool in listed["tools"]] == ["rye_execute", "rye_fetch"]
    assert json.loads(called["content"][0]["text"])["data"] == {"a": 1}


def test_the_inspector_calls_a_tool_over_http(workspace: Workspace) -> None:
    ref = workspace.shell("a/t", "cat")
    with http(workspace) as served:
        called = inspect(
            workspace, served.url, "--transport", "http",
            "--header", f"Authorization: Bearer {TOKEN}",
            "--method", "tools/call", "--tool-name", "rye_execute",
            "--tool-arg", f"item_id={ref}", "--tool-arg", f"project_path={workspace.project}",
        )  # fmt: skip
    assert json.loads(called["content"][0]["text"])["status"] == "success"
