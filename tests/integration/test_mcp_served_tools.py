"""Signed tools as MCP tools of their own, by the official SDK's client."""

import base64
import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from ryecore import Rye
from ryecore.errors import ConfigError, UnsignedItem
from ryecore.mcp_server import create_server
from tests.mcp_clients import MODES, ended, make_waiting_tool, process, read_pid, stdio
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"size": {"$anchor": "size", "enum": ["S", "M"]}},
    "properties": {"size": {"$ref": "#/$defs/size"}, "count": {"type": "integer", "default": 1}},
    "required": ["size"],
    "additionalProperties": False,
}
OUTPUT = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def order(workspace: Workspace, **declared: Any) -> str:
    body = "def execute(params, project):\n    return {'total': 2.5 * params['count']}"
    return workspace.python(
        "acme/order", body, title="Order shirts", description="Orders shirts.",
        config_schema=SCHEMA, output_schema=OUTPUT,
        hints={"read_only": False, "idempotent": True}, **declared,
    )  # fmt: skip


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


@MODES
async def test_a_chosen_tool_is_listed_as_its_signed_file_says_and_called(
    workspace: Workspace, mode: str
) -> None:
    order(workspace)
    workspace.shell("other/t", "true")
    async with stdio(workspace, "--tools", "acme/*", "--no-verbs", mode=mode) as client:
        (tool,) = (await client.list_tools()).tools
        done = await client.call_tool(tool.name, {"size": "S", "count": 2})
        wrong = await client.call_tool(tool.name, {"size": "XL"})
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("rye_execute", {"item_id": "tool:other/t"})
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("other__t", {})
    assert (tool.name, tool.title, tool.description) == (
        "acme__order", "Order shirts", "Orders shirts.",
    )  # fmt: skip
    assert tool.input_schema == SCHEMA
    assert tool.output_schema == OUTPUT
    assert tool.annotations is not None
    assert (tool.annotations.idempotent_hint, tool.annotations.read_only_hint) == (True, False)
    assert (done.structured_content, done.content) == ({"total": 5.0}, [])
    assert wrong.is_error
    assert "size" in text_of(wrong)
    assert "XL" in text_of(wrong) or "one of" in text_of(wrong)


async def test_a_client_that_needs_both_gets_text_and_structure(workspace: Workspace) -> None:
    order(workspace)
    async with stdio(workspace, "--tools", "acme/*", "--both") as client:
        done = await client.call_tool("acme__order", {"size": "S"})
    assert json.loads(text_of(done)) == done.structured_content == {"total": 2.5}


async def test_a_docstring_describes_a_tool_that_declares_no_description(
    workspace: Workspace,
) -> None:
    source = '"""Counts the tides.\n\nOf one day."""\n\n__executor_id__ = ' + repr(
        "rye/core/runtimes/python/function"
    )
    workspace.write("tools/tides.py", source + "\n\ndef execute(params, project): return 4\n")
    async with stdio(workspace, "--tools", "tides") as client:
        *_, tool = (await client.list_tools()).tools
        assert text_of(await client.call_tool("tides", {})) == "4"
    assert tool.description == "Counts the tides.\n\nOf one day."


async def test_images_and_links_come_as_content_once(workspace: Workspace) -> None:
    body = f"""
def execute(params, project):
    return {{"content": [
        {{"type": "text", "text": "Here."}},
        {{"type": "image", "data": {PIXEL!r}, "mimeType": "image/png"}},
        {{"type": "resource_link", "name": "log", "uri": "file:///log"}},
        {{"type": "resource", "resource": {{"uri": "shop://a", "text": "hi"}}}},
    ]}}"""
    workspace.python("acme/draw", body)
    async with stdio(workspace, "--tools", "acme/*") as client:
        done = await client.call_tool("acme__draw", {})
    assert [one.type for one in done.content] == ["text", "image", "resource_link", "resource"]
    assert done.content[1].data == PIXEL  # type: ignore[union-attr]
    assert done.structured_content is None


async def test_what_a_tool_reports_or_breaks_is_an_error_that_a_model_can_use(
    workspace: Workspace,
) -> None:
    workspace.python(
        "acme/says", "def execute(params, project):\n"
        "    return {'success': False, 'error': 'There is no tide in a lake.'}",
    )  # fmt: skip
    workspace.python("acme/lies", "def execute(params, project): return {}", output_schema=OUTPUT)
    async with stdio(workspace, "--tools", "acme/*") as client:
        says = await client.call_tool("acme__says", {})
        lies = await client.call_tool("acme__lies", {})
        workspace.path("tools/acme/says.py").write_text("changed")
        changed = await client.call_tool("acme__says", {})
    assert says.is_error
    assert text_of(says) == "There is no tide in a lake."
    assert lies.is_error
    assert "doesn't fit its output schema" in text_of(lies)
    assert "total" in text_of(lies)
    assert changed.is_error
    assert "Next: " in text_of(changed)


async def test_what_is_not_granted_is_neither_listed_nor_called(workspace: Workspace) -> None:
    workspace.shell("acme/a", "echo a")
    workspace.shell("acme/b", "echo b")
    grant = ("--grant", "rye.execute.tool.acme.a")
    async with stdio(workspace, "--tools", "acme/*", "--no-verbs", *grant) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("acme__b", {})
    assert names == ["acme__a"]


async def test_what_does_not_verify_is_not_listed_and_the_log_says_why(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.shell("acme/good", "true")
    bad = workspace.write("tools/acme/bad.py", "__executor_id__ = 'x'\n", sign=False)
    async with workspace.open() as rye, Client(create_server([rye], tools=["acme/*"])) as client:
        first = [tool.name for tool in (await client.list_tools()).tools]
        order(workspace)
        bad.unlink()
        second = [tool.name for tool in (await client.list_tools()).tools]
    assert first == ["rye_execute", "rye_fetch", "acme__good"]
    assert second == ["rye_execute", "rye_fetch", "acme__good", "acme__order"]
    (said,) = [one.getMessage() for one in caplog.records if "isn't offered" in one.getMessage()]
    assert "tool:acme/bad" in said


async def test_pages_hold_every_tool_once_while_tools_come_and_go(workspace: Workspace) -> None:
    for name in ("a", "c", "e"):
        workspace.shell(f"acme/{name}", "true")
    workspace.write("config/mcp/serve.yaml", "tools: ['acme/*']\nverbs: false\npage_size: 2\n")
    async with workspace.open() as rye, Client(create_server([rye])) as client:
        first = await client.list_tools()
        workspace.shell("acme/d", "true")
        rest = await client.list_tools(cursor=first.next_cursor)
        with pytest.raises(MCPError, match="cursor"):
            await client.list_tools(cursor="no cursor")
    assert [tool.name for tool in first.tools] == ["acme__a", "acme__c"]
    assert [tool.name for tool in rest.tools] == ["acme__d", "acme__e"]
    assert rest.next_cursor is None


async def test_two_projects_offer_their_tools_under_names_that_differ(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.shell("acme/t", "echo first")
    (tmp_path / "more").mkdir()
    other = Workspace(tmp_path / "more")
    other.shell("acme/t", "echo second")
    async with (
        workspace.open() as one,
        other.open() as two,
        Client(create_server([one, two], tools=["acme/*"], verbs=False)) as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        said = [text_of(await client.call_tool(name, {})) for name in names]
    assert names == ["project-2__acme__t", "project__acme__t"]
    assert [json.loads(one)["stdout"] for one in said] == ["second\n", "first\n"]


def test_the_signed_configuration_is_checked_before_anything_is_served(
    workspace: Workspace,
) -> None:
    path = workspace.write("config/mcp/serve.yaml", "tool: ['acme/*']\n")
    with pytest.raises(ConfigError, match=r"line \d+: tool is unknown. Did you mean 'tools'"):
        create_server([Rye.open(workspace.project, **workspace.options())])
    path.write_text("tools: ['acme/*']\n")
    with pytest.raises(UnsignedItem):
        create_server([Rye.open(workspace.project, **workspace.options())])
    with process(workspace) as server:
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (2, b"")
    assert b"serve.yaml" in err
    assert b"next:" in err


@pytest.mark.parametrize("pattern", ["../x", "", "acme/*.py", "directive:acme"])
def test_a_pattern_that_is_none_is_refused(workspace: Workspace, pattern: str) -> None:
    with process(workspace, "--tools", pattern) as server:
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (2, b"")
    assert b"must be the id of a tool" in err


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_that_cannot_answer_what_a_tool_must_ask_is_refused_first(
    workspace: Workspace, mode: str
) -> None:
    body = "def execute(params, project):\n    open(f'{project}/ran', 'w').close()"
    workspace.python("acme/asks", body, may_ask=["sample", "roots"], must_ask=["sample"])
    async with (
        workspace.open() as rye,
        Client(create_server([rye], tools=["*"]), mode=mode) as client,
    ):
        if mode == "auto":
            with pytest.raises(MCPError, match="sampling") as refused:
                await client.call_tool("acme__asks", {})
            assert refused.value.code == -32021
            assert refused.value.data == {"requiredCapabilities": {"sampling": {}}}
        else:
            done = await client.call_tool("acme__asks", {})
            assert done.is_error
            assert "needs a client with sampling" in text_of(done)
    assert not (workspace.project / "ran").exists()


async def test_what_a_tool_must_ask_holds_from_the_next_call_on(workspace: Workspace) -> None:
    body = "def execute(params, project):\n    return 'ran'"
    workspace.python("acme/asks", body, may_ask=["sample"])
    async with workspace.open() as rye, Client(create_server([rye], tools=["*"])) as client:
        await client.list_tools()
        assert text_of(await client.call_tool("acme__asks", {})) == "ran"
        workspace.python("acme/asks", body, may_ask=["sample"], must_ask=["sample"])
        with pytest.raises(MCPError, match="sampling"):
            await client.call_tool("acme__asks", {})
        workspace.python("acme/asks", body, may_ask=["sample"])
        assert text_of(await client.call_tool("acme__asks", {})) == "ran"


@MODES
async def test_a_call_is_audited_shows_its_steps_and_ends_when_it_is_cancelled(
    workspace: Workspace, mode: str
) -> None:
    order(workspace)
    _, fifo = make_waiting_tool(workspace)
    log = workspace.root / "audit.jsonl"
    steps: list[str] = []

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        steps.append(str(message))

    workspace.environ["RYE_AUDIT"] = str(log)
    async with stdio(workspace, "--tools", "*", mode=mode) as client:
        await client.call_tool("acme__order", {"size": "S"}, progress_callback=note)
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "a__waits", {})
            pid = await anyio.to_thread.run_sync(read_pid, fifo)
            calls.cancel_scope.cancel()
        await ended(pid)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert {one["caller"] for one in records} == {"mcp"}
    assert "tool:acme/order" in {one.get("ref") for one in records}
    assert any(one.startswith("verify_integrity") for one in steps)
