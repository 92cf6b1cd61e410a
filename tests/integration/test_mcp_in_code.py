"""The tools of an MCP server for a host's code, by its item, a command line or a URL."""

import shlex
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ryecore import ItemRef, SyncRye
from ryecore.actions.mcp_servers import server_named
from ryecore.errors import InputError, McpToolChanged, NotApproved, ToolPolicyError
from ryecore.policy.permissions import ApprovalRequest
from tests.integration.test_mcp_eras import http_server, modern
from tests.interpreter import PYTHON
from tests.mcp_items import SERVER, stdio_server
from tests.unit.tools.calls import called, refused
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]


class Approver:
    """Approves what is asked, or doesn't, and keeps what it was shown."""

    def __init__(self, *, says: bool = True) -> None:
        self.says = says
        self.shown: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> bool:
        self.shown.append(request)
        return self.says


def written(workspace: Workspace) -> list[str]:
    """The files below `.ai/tools/mcp`."""
    folder = workspace.path("tools/mcp")
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*.yaml"))


async def test_the_tools_of_an_item_are_pinned_on_the_first_approval_and_nobody_is_asked_again(
    workspace: Workspace,
) -> None:
    server = stdio_server(workspace, "one")
    approver = Approver()
    async with workspace.open(approve=approver) as rye:
        (tool,) = await rye.mcp(server)
        assert (await called(tool, {"text": "hi"})).value["content"][0]["text"] == "hi"
        (request,) = approver.shown
        assert [one.item_id for one in request.files] == ["tool:mcp/test/echo.yaml"]
        assert "Says it again." in request.files[0].preview
        assert (await rye.mcp(server))[0].name == tool.name
    async with workspace.open() as rye:  # without anybody to ask
        assert len(await rye.mcp(f"tool:{server}")) == 1
    assert len(approver.shown) == 1


async def test_a_rye_that_blocks_gives_tools_to_agents_of_any_event_loop(
    workspace: Workspace,
) -> None:
    server = stdio_server(workspace, "one")
    approver = Approver()

    def open_rye() -> SyncRye:
        return SyncRye.open(
            workspace.project,
            user_space=workspace.user,
            environ=workspace.environ,
            approve=approver,
        )

    rye = await anyio.to_thread.run_sync(open_rye)
    try:
        (tool,) = await anyio.to_thread.run_sync(rye.mcp, server)
        assert (await called(tool, {"text": "hi"})).value["content"][0]["text"] == "hi"
        assert len(approver.shown) == 1
    finally:
        await anyio.to_thread.run_sync(rye.close)


async def test_only_the_tools_that_are_wanted_are_pinned(workspace: Workspace) -> None:
    server = stdio_server(workspace)
    async with workspace.open(approve=Approver()) as rye:
        (where,) = await rye.mcp(server, only=["where"])
        assert written(workspace) == ["servers/test.yaml", "test/where.yaml"]
        assert where.capability == "rye.execute.tool.mcp.test.where"
        assert len(await rye.mcp(server, only=["where", "echo"], needs_approval=True)) == 2
        with pytest.raises(InputError, match="offers no tool 'nope'"):
            await rye.mcp(server, only=["nope"])


@pytest.mark.parametrize("approve", [Approver(says=False), None])
async def test_nothing_is_left_behind_where_nobody_approves(
    workspace: Workspace, approve: Approver | None
) -> None:
    server = stdio_server(workspace, "one")
    async with workspace.open(approve=approve) as rye:
        with pytest.raises(NotApproved):
            await rye.mcp(server)
        with pytest.raises(NotApproved):
            await rye.mcp("uvx some-server")
    assert written(workspace) == ["servers/test.yaml"]


async def test_a_command_line_is_shown_before_it_is_started(workspace: Workspace) -> None:
    command = shlex.join([PYTHON, str(SERVER), "one"])
    approver = Approver()
    async with workspace.open(approve=approver) as rye:
        (tool,) = await rye.mcp(command)
        assert (await called(tool, {"text": "hi"})).value["content"][0]["text"] == "hi"
    server, tools = approver.shown
    assert str(SERVER) in server.files[0].preview
    assert server.files[0].item_id.startswith("tool:mcp/servers/mcp_server-py-")
    assert tools.files[0].item_id.endswith("/echo.yaml")
    async with workspace.open() as rye:
        assert len(await rye.mcp(command)) == 1


async def test_a_url_is_a_server_over_http(workspace: Workspace) -> None:
    with http_server(modern) as server:
        async with workspace.open(approve=Approver()) as rye:
            (tool,) = await rye.mcp(server.url)
            assert (await called(tool, {})).value["content"][0]["text"] == "said"


async def test_a_server_that_changed_since_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    server = stdio_server(workspace, "changed", str(changed))
    async with workspace.open(approve=Approver()) as rye:
        (tool,) = await rye.mcp(server, only=["echo"])
    changed.touch()
    async with workspace.open(approve=Approver()) as rye:
        (tool,) = await rye.mcp(server, only=["echo"])
        error = await refused(ToolPolicyError, tool, {"text": "hi"})
        assert error.facts["refusal"] == McpToolChanged.error_type


async def test_an_item_that_is_no_server_is_refused(workspace: Workspace) -> None:
    workspace.shell("acme/t", "true")
    async with workspace.open(approve=Approver()) as rye:
        with pytest.raises(InputError, match="is not an MCP server"):
            await rye.mcp("acme/t")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("uvx mcp-server-time --local-timezone=UTC", "mcp-server-time"),
        ("npx -y @acme/server-notes@1.2.3", "server-notes"),
        ("npx -y notes@1.2.3 ./data", "notes"),
        ("python3 -m acme.notes", "acme-notes"),
        ("/opt/x/notes.sh --all", "notes-sh"),
        ("https://notes.example/mcp", "notes-example"),
    ],
)
def test_the_id_of_a_server_is_made_of_its_name_and_of_all_that_was_given(
    given: str, name: str
) -> None:
    item_id, config = server_named(given)
    assert config is not None
    assert item_id.startswith(f"mcp/servers/{name}-")
    assert ItemRef.parse(item_id, "tool").id == item_id
    assert server_named(f"{given} ")[0] == item_id
    assert server_named(given + "x")[0] != item_id


def test_an_unclosed_quote_is_an_error() -> None:
    with pytest.raises(InputError, match="can't be read"):
        server_named("uvx 'x")
