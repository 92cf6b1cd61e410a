"""What MCP servers that are started here write to their standard error."""

import pytest

from ryecore.errors import McpError
from tests.mcp_items import BOTH_WAYS, mcp_tool, stdio_server, why
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_connectors")


@BOTH_WAYS
def test_what_a_dying_server_said_is_told_without_its_secret(workspace: Workspace, warm: bool):
    workspace.environ["A_TOKEN"] = "hunter2-hunter2"
    stdio_server(workspace, "dies", env={"A_TOKEN": "${A_TOKEN}"})
    error = why(workspace, mcp_tool(workspace, warm=warm))
    assert "It said: it hurts, ***" in error
    assert "hunter2" not in error


@BOTH_WAYS
@pytest.mark.parametrize(
    ("name", "error"), [("fail", "it would not"), ("where", "it broke")], ids=["result", "error"]
)
def test_what_a_failing_tools_server_logged_meanwhile_is_shown(
    workspace: Workspace, warm: bool, name: str, error: str
):
    workspace.environ["A_TOKEN"] = "hunter2-hunter2"
    stdio_server(workspace, "logs", env={"A_TOKEN": "${A_TOKEN}"})
    with workspace.sync() as rye:
        fine = rye.execute(mcp_tool(workspace, warm=warm), {"text": "hi"})
        assert "stderr" not in fine.data
        done = rye.execute(mcp_tool(workspace, name, warm=warm))
    assert done.error == error
    assert done.data["stderr"].splitlines() == [
        *(f"{name} {line}" for line in range(11, 30)), r"\x1b[2J***",
    ]  # fmt: skip
    shown = done.render().plain()
    assert f"  stderr: {name} 29\n" in shown
    assert "hunter2" not in shown


def test_what_a_server_said_that_does_not_start_is_a_fact_of_the_error(workspace: Workspace):
    stdio_server(workspace, args=["-c", "import sys; sys.exit('no key.toml\\nsee --help')"])
    with pytest.raises(McpError) as refused:
        workspace.execute(mcp_tool(workspace), {"text": "hi"})
    assert refused.value.stderr == "no key.toml\nsee --help"
    assert "ended with exit code 1. It said: no key.toml\n" in refused.value.message
    cold = workspace.execute(mcp_tool(workspace, warm=False), {"text": "hi"})
    assert cold.data["stderr"] == refused.value.stderr
    assert cold.render().plain().count("no key.toml") == 1


def test_endless_errors_are_drained_and_cost_nothing(workspace: Workspace):
    stdio_server(workspace, "floods-stderr")
    assert workspace.execute(mcp_tool(workspace), {"text": "hi"}).success
