"""Signed tools, and pinned tools of MCP servers."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.display.sanitize import RyeWarning
from ryecore.errors import (
    InputError,
    ToolArgsInvalidError,
    ToolCancelledError,
    ToolExecutionError,
    ToolPolicyError,
    UnsignedItem,
)
from ryecore.llm import MediaPart, MemoryMediaStore
from ryecore.policy import CallContext, CancelToken
from ryecore.tools import ToolContext, ToolDef, ToolRegistry
from tests.mcp_items import mcp_tool, stdio_server
from tests.unit.tools.calls import asked, called, refused
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
    "required": ["text"],
    "additionalProperties": False,
}


def shout(workspace: Workspace) -> str:
    body = """
def execute(params, project_path):
    if params["text"] == "bad":
        raise ValueError("no: /home/ada/secret/x sk-abcdefghijklmnopqrst")
    return {"said": params["text"].upper() * params["times"]}
"""
    return workspace.python("acme/shout", body, description="Say it loudly.", config_schema=SCHEMA)


async def test_a_signed_tool_is_offered_as_it_says_of_itself_and_runs(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, shout(workspace))

        assert tool.name == "acme__shout"
        assert tool.spec.description == "Say it loudly."
        assert tool.spec.parameters == SCHEMA
        assert (tool.origin, tool.capability) == ("item", "rye.execute.tool.acme.shout")
        assert (await called(tool, {"text": "hi"})).part.text == '{"said": "HI"}'
        error = await refused(ToolArgsInvalidError, tool, {"times": "x"})
        assert len(error.failures) == 2


async def test_what_a_failing_tool_says_is_told_without_keys_paths_or_traceback(
    workspace: Workspace,
) -> None:
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, shout(workspace), name="shout")

        error = await refused(ToolExecutionError, tool, {"text": "bad"})

    assert str(error) == "The tool shout failed: ValueError: no: …/x ***"


async def test_a_tool_that_was_changed_is_denied(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, shout(workspace))
        path = workspace.path("tools/acme/shout.py")
        path.write_text(path.read_text() + "# changed\n")

        error = await refused(ToolPolicyError, tool, {"text": "hi"})

    assert "was changed after the key" in str(error)
    assert str(workspace.root) not in str(error)
    assert error.refusal == "integrity"


async def test_a_tool_that_is_gone_has_failed(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, shout(workspace))
        workspace.path("tools/acme/shout.py").unlink()

        assert "could not run" in str(await refused(ToolExecutionError, tool, {"text": "hi"}))


async def test_another_schema_of_the_same_tool_is_its_own_to_check(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, shout(workspace))
        workspace.python("acme/shout", "def execute(params, project_path):\n    return 1",
                     config_schema={"type": "object", "required": ["other"]})  # fmt: skip

        error = await refused(ToolArgsInvalidError, tool, {"text": "hi"})

    assert error.failures == ('"other" is a required property',)


async def test_a_caller_without_the_capability_is_denied(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, shout(workspace))
        nobody = ToolContext(call=CallContext(capabilities=frozenset({"rye.execute.tool.other"})))
        granted = ToolContext(call=CallContext(capabilities=frozenset({"rye.execute.tool.acme.*"})))

        await refused(ToolPolicyError, tool, {"text": "hi"}, nobody)
        assert (await called(tool, {"text": "hi"}, granted)).value == {"said": "HI"}


async def test_what_is_no_signed_tool_is_not_offered(workspace: Workspace) -> None:
    workspace.write("tools/acme/raw.sh", "# __executor_id__ = None\n", sign=False)
    async with workspace.open() as rye:
        with pytest.raises(UnsignedItem):
            await ToolDef.from_item(rye, "tool:acme/raw")
        with pytest.raises(InputError, match="isn't a tool"):
            await ToolDef.from_item(rye, "directive:acme/x")


async def test_a_tool_that_hangs_is_cancelled_and_leaves_no_process(workspace: Workspace) -> None:
    told = workspace.root / "pid"
    os.mkfifo(told)
    ref = workspace.shell("acme/hang", f'echo $$ > "{told}"; exec sleep 600')
    token = CancelToken()
    ctx = ToolContext(call=CallContext(cancellation=token))
    async with workspace.open() as rye:
        slow = await ToolDef.from_item(rye, ref, timeout_s=0.5)
        assert "within 0.5 s" in str(await refused(ToolExecutionError, slow))
        pid = 0
        tool = await ToolDef.from_item(rye, ref)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:

                async def one() -> None:
                    await refused(ToolCancelledError, tool, "", ctx)

                group.start_soon(one)
                pid = int(await anyio.to_thread.run_sync(told.read_text))
                token.cancel()
        assert pid
        assert not Path(f"/proc/{pid}").exists()


async def test_pinned_tools_of_a_server_are_offered_and_a_change_is_denied(
    workspace: Workspace,
) -> None:
    stdio_server(workspace)
    mcp_tool(workspace)
    mcp_tool(workspace, "fail")
    hidden = "Seen.\u202e\u200b\x1b"
    inner = {"type": "string", "title": hidden, "description": hidden, "enum": ["a\u200b"]}
    outer = {"description": {"type": "array", "items": {"anyOf": [inner]}}, "enum": inner}
    changed = {
        "name": "env",
        "description": "Another.\u202e\u200b\x1b",
        "inputSchema": {"type": "object", "properties": outer, "$defs": {"const": inner}},
    }
    mcp_tool(workspace, "env", declared=changed)
    workspace.yaml("acme/other", config={"server": "mcp/servers/other", "note": "mcp/servers/test"})
    async with workspace.open() as rye:
        tools = await ToolDef.from_mcp(rye, "tool:mcp/servers/test")
        registry = ToolRegistry(tools)

        assert [tool.name for tool in tools] == [
            "mcp__test__echo",
            "mcp__test__env",
            "mcp__test__fail",
        ]
        assert {tool.origin for tool in tools} == {"mcp"}
        assert registry.get("mcp__test__env").spec.description == "Another."  # type: ignore[union-attr]
        seen = {**inner, "title": "Seen.", "description": "Seen."}
        assert registry.get("mcp__test__env").spec.parameters == {  # type: ignore[union-attr]
            "type": "object",
            "properties": {
                "description": {"type": "array", "items": {"anyOf": [seen]}},
                "enum": seen,
            },
            "$defs": {"const": seen},
        }
        done = await registry.dispatch(asked("mcp__test__echo", text="hi"), ToolContext())
        assert "hi" in done.part.text
        with pytest.raises(ToolExecutionError, match="it would not"):
            await registry.dispatch(asked("mcp__test__fail"), ToolContext())
        with pytest.raises(ToolPolicyError, match="is not the one that was pinned"):
            await registry.dispatch(asked("mcp__test__env"), ToolContext())


async def test_an_image_of_a_server_reaches_the_model_as_media(workspace: Workspace) -> None:
    stdio_server(workspace)
    ref = mcp_tool(workspace, "image")
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, ref)
        store = MemoryMediaStore()
        outcome = await called(tool, {}, ToolContext(media=store))
        plain = await rye.execute(ref)
    text, medium = outcome.part.content
    assert isinstance(medium, MediaPart)
    assert medium.media_type == "image/png"
    assert store.read(medium) == b"hello"
    assert medium.handle in text.text
    assert "aGVsbG8=" not in text.text
    assert plain.data["content"][0]["data"] == "aGVsbG8="  # a caller gets data


@pytest.mark.parametrize(
    "planted",
    ["acme/note.yaml", "mcp/test/other.yaml", "mcp/test/fail.sh", "x.py"],
)
async def test_no_unsigned_file_takes_the_pinned_tools_of_a_server_away(
    workspace: Workspace, planted: str
) -> None:
    stdio_server(workspace)
    mcp_tool(workspace)
    mcp_tool(workspace, "fail")
    text = "server: mcp/servers/test\nconfig: {server: mcp/servers/test, pin: x}\n"
    workspace.write(f"tools/{planted}", text, sign=False)
    ref = f"tool:{planted.rpartition('.')[0]}"
    async with workspace.open() as rye:
        with pytest.warns(
            RyeWarning, match="Left out of the tools of tool:mcp/servers/test"
        ) as told:
            tools = await ToolDef.from_mcp(rye, "tool:mcp/servers/test")
    assert [ref in str(one.message) for one in told] == [True]
    names = {"mcp__test__echo", "mcp__test__fail"}
    assert {tool.name for tool in tools} == names - {ref.removeprefix("tool:").replace("/", "__")}


async def test_where_no_pinned_tool_verifies_the_reason_is_said(workspace: Workspace) -> None:
    stdio_server(workspace)
    path = workspace.path(f"tools/{mcp_tool(workspace).removeprefix('tool:')}.yaml")
    path.write_text(path.read_text() + "\n")
    async with workspace.open() as rye:
        with pytest.raises(InputError, match="tool:mcp/test/echo can't be verified") as refused:
            await ToolDef.from_mcp(rye, "tool:mcp/servers/test")
    assert str(path) in refused.value.message


async def test_what_is_not_pinned_is_not_offered(workspace: Workspace) -> None:
    stdio_server(workspace)
    ref = mcp_tool(workspace, pinned=False)
    async with workspace.open() as rye:
        with pytest.raises(InputError, match="No tool of tool:mcp/servers/test is pinned"):
            await ToolDef.from_mcp(rye, "tool:mcp/servers/test")
        with pytest.raises(InputError, match="is not pinned"):
            await ToolDef.from_item(rye, ref)


async def test_parameters_of_the_hosts_are_hidden_and_win(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, shout(workspace), config={"times": 3})

        assert list(tool.spec.parameters["properties"]) == ["text"]
        done: Any = await called(tool, {"text": "a", "times": 1})
        assert done.value == {"said": "AAA"}


@pytest.mark.parametrize("declared", [True, False, None])
async def test_a_signed_tool_says_whether_it_runs_beside_others(
    workspace: Workspace, declared: bool | None
) -> None:
    said = "" if declared is None else f"__parallel_safe__ = {declared}\n"
    ref = workspace.python("acme/look", f"{said}def execute(params, project_path):\n    return 1")
    async with workspace.open() as rye:
        tool = await ToolDef.from_item(rye, ref)
        assert tool.runs_in_parallel is bool(declared)
        own = await ToolDef.from_item(rye, ref, parallel_safe=not declared)
        assert own.runs_in_parallel is not declared


@pytest.mark.parametrize("hints", [{"read_only": True}, {"read_only": False}, {"idempotent": True}])
async def test_a_signed_tool_says_whether_it_only_reads(
    workspace: Workspace, hints: dict[str, bool]
) -> None:
    said = f"__hints__ = {hints}\n"
    ref = workspace.python("acme/look", f"{said}def execute(params, project_path):\n    return 1")
    async with workspace.open() as rye:
        assert (await ToolDef.from_item(rye, ref)).read_only is hints.get("read_only", False)
        assert (await ToolDef.from_item(rye, ref, read_only=True)).read_only
