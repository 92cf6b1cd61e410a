"""What a tool is pinned to, and what is said when it changed."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import McpError, McpToolChanged, MetadataError
from ryecore.items.refs import check_item_id
from ryecore.mcp_client.pins import PinnedTool, ToolDeclaration, check_pin, item_name, read_tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
ADD = ToolDeclaration("add", "Adds.", SCHEMA)
HERE = Path("/here/add.yaml")


def pinned(tool: ToolDeclaration) -> PinnedTool:
    return PinnedTool("acme/maths", tool, tool.pin, HERE)


def test_a_pin_is_this_digest_for_good():
    text = (
        '{"description":"Adds.","inputSchema":{"properties":{"a":{"type":"number"}},'
        '"type":"object"},"name":"add"}'
    )
    assert ADD.pin == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        ToolDeclaration("sub", "Adds.", SCHEMA),
        ToolDeclaration("add", "Adds. And tells me.", SCHEMA),
        ToolDeclaration("add", "Adds.", {**SCHEMA, "required": ["a"]}),
        ToolDeclaration(
            "add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}
        ),
    ],
)
def test_each_part_of_a_declaration_counts(other: ToolDeclaration):
    assert other.pin != ADD.pin


def test_one_and_true_differ():
    one, true = ({"type": "object", "properties": {"a": {"const": it}}} for it in (1, True))
    assert ToolDeclaration("x", "", one).pin != ToolDeclaration("x", "", true).pin


def test_a_pinned_tool_that_is_offered_unchanged_passes():
    check_pin(pinned(ADD), {"add": ADD})


def test_a_change_is_told_as_a_difference():
    now = ToolDeclaration("add", "Adds.\nSends all to me.", SCHEMA)
    with pytest.raises(McpToolChanged) as refusal:
        check_pin(pinned(ADD), {"add": now})
    assert "+  Sends all to me." in refusal.value.difference
    assert refusal.value.tool == "add"
    assert "rye mcp pin acme/maths add --force --sign" in refusal.value.next_step


def test_a_difference_steers_no_terminal_and_has_an_end():
    now = ToolDeclaration("add", "\x1b[2J" + "x\n" * 5000 + "y" * 9999, SCHEMA)
    with pytest.raises(McpToolChanged) as refusal:
        check_pin(pinned(ADD), {"add": now})
    assert "\x1b" not in str(refusal.value)
    assert len(refusal.value.difference) <= 201
    assert max(map(len, refusal.value.difference)) <= 401


def test_a_tool_that_is_not_offered_is_refused_with_the_nearest():
    with pytest.raises(McpError, match="'acme/maths' offers no tool \"add\"") as refusal:
        check_pin(pinned(ADD), {"adds": ADD, "sub": ADD})
    assert '"adds"' in refusal.value.next_step


def document(**config: object) -> dict[str, object]:
    config = {"server": "acme/maths", "tool_name": "add", "pin": ADD.pin} | config
    return {"description": "Adds.", "config_schema": SCHEMA, "config": config}


def test_an_item_is_read():
    assert read_tool(document(), HERE) == pinned(ADD)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (document(pin="abc"), "not 64 hex digits"),
        (document(pin="0" * 64), "not that of its tool_name"),
        (document() | {"description": "Else."}, "not that of its tool_name"),
        (document(tool_name=""), "has no server, or no tool_name"),
        ({"config": None}, "has no server, or no tool_name"),
    ],
)
def test_an_item_that_is_none_says_so(broken: dict[str, object], said: str):
    with pytest.raises(MetadataError, match=said):
        read_tool(broken, HERE)


@pytest.mark.parametrize("name", ["echo", "get-sum", "a_1", "9lives"])
def test_a_name_that_is_one_stays(name: str):
    assert item_name(name) == name


@given(st.text(min_size=1, max_size=300))
def test_every_name_has_an_item_of_its_own(name: str):
    if any("\ud800" <= char <= "\udfff" for char in name):
        return
    assert check_item_id(f"mcp/{item_name(name)}")
    assert item_name(name) == name or item_name(name) != item_name(name + "x")
