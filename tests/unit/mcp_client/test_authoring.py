"""The items that pinned tools get."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import ConfigError, InputError, InvalidItemId, McpToolChanged
from ryecore.items.documents import parse_document
from ryecore.items.spaces import Space
from ryecore.mcp_client.authoring import PinnedItem, pin_tool, read_declarations, select_tools
from ryecore.mcp_client.pins import ToolDeclaration, read_tool

ECHO = ToolDeclaration("echo", "Says it again.", {"type": "object"})


def write(root: Path, tool: ToolDeclaration = ECHO, **more: Any) -> PinnedItem:
    options = {"server": "mcp/servers/x", "transport": "stdio", "folder": "mcp/x"} | more
    return pin_tool(tool, space=Space("project", root / ".ai"), **options)


def read(item: PinnedItem) -> dict[str, object]:
    return parse_document(item.path.read_bytes(), item.path)


def test_an_item_says_what_the_chain_needs(tmp_path: Path):
    item = write(tmp_path)
    assert item.path == tmp_path / ".ai/tools/mcp/x/echo.yaml"
    document = read(item)
    assert document["executor_id"] == "rye/core/runtimes/mcp/stdio"
    assert document["category"] == "mcp/x"
    assert read_tool(document, item.path).pin == ECHO.pin == item.pin
    assert read(write(tmp_path, transport="sse", folder="mcp/y"))["executor_id"].endswith("http")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip


@given(st.text(min_size=1, max_size=30), st.text(max_size=80), JSON)
def test_what_is_written_is_what_was_said_or_is_refused(tmp_path_factory, name, said, default):
    schema = {"type": "object", "properties": {"a": {"default": default}}}
    tool = ToolDeclaration(name, said, schema)
    try:
        item = write(tmp_path_factory.mktemp("it"), tool)
    except ConfigError:
        return
    assert read_tool(read(item), item.path).declaration.pin == tool.pin


@pytest.mark.parametrize(
    "said", ["yes", "null", "- a\n- b", "# no", "a: b", "\ta", "ü\U0001f600", ""]
)
def test_text_that_looks_like_yaml_stays_text(tmp_path: Path, said: str):
    assert (
        read(write(tmp_path, ToolDeclaration("x", said, {"type": "object"})))["description"] == said
    )


def test_an_item_that_stands_there_already_is_left_alone(tmp_path: Path):
    before = write(tmp_path)
    before.path.write_text("# a signature\n" + before.path.read_text())
    assert write(tmp_path).state == "unchanged"
    assert before.path.read_text().startswith("# a signature")


def test_an_item_of_another_declaration_is_replaced_by_force_alone(tmp_path: Path):
    write(tmp_path)
    other = ToolDeclaration("echo", "Says it to me.", {"type": "object"})
    with pytest.raises(McpToolChanged, match="Says it to me") as refusal:
        write(tmp_path, other)
    assert "--force" in refusal.value.next_step
    assert write(tmp_path, other, force=True).pin == other.pin


def test_another_file_is_not_replaced(tmp_path: Path):
    path = tmp_path / ".ai/tools/mcp/x/echo.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("my: own\n")
    with pytest.raises(InputError, match="another item"):
        write(tmp_path)
    assert path.read_text() == "my: own\n"


def _bomb() -> dict[str, object]:
    """Nine levels, each of which refers to the next ten times."""
    fans = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 10} for n in range(9)}
    return {"$ref": "#/$defs/l0", "$defs": {**fans, "l9": {"type": "string"}}}


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (ToolDeclaration("x", "y" * 70_000, {}), "70000 characters"),
        (ToolDeclaration("x", "", {"type": "no such type"}), "isn't a JSON Schema"),
        (ToolDeclaration("x", "", {"a": "b" * 2_000_000}), "characters, more than 1,048,576"),
        (ToolDeclaration("x", "", {"a": "b" * 16 * 1024 * 1024}), '"x" .* more than 1,048,576'),
        (ToolDeclaration("x", "", _bomb()), '"x" .* more than 1000000 subschemas'),
        (ToolDeclaration("x", "", {"pattern": "a{1000}{1000}"}), "patterns repeat .* 100000"),
    ],
)
def test_what_can_not_be_pinned_is_refused(tmp_path: Path, tool: ToolDeclaration, said: str):
    with pytest.raises(ConfigError, match=said):
        write(tmp_path, tool)
    assert not list(tmp_path.rglob("*.yaml"))


def test_a_place_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(InvalidItemId):
        write(tmp_path, folder="../up")


def test_tools_are_chosen_by_name():
    offered = read_declarations(
        [{"name": "a", "inputSchema": {}}, {"name": "b", "description": "B"}]
    )
    assert [one.name for one in select_tools(offered, ["b"], everything=False)] == ["b"]
    assert [one.name for one in select_tools(offered, [], everything=True)] == ["a", "b"]
    for names in ([], ["c"]):
        with pytest.raises(InputError, match="--all") as refusal:
            select_tools(offered, names, everything=False)
        assert "a, b" in refusal.value.next_step


def test_a_tool_that_changes_nothing_may_run_in_parallel(tmp_path: Path) -> None:
    (look,) = read_declarations(
        [{"name": "look", "inputSchema": {}, "annotations": {"readOnlyHint": True}}]
    ).values()
    item = write(tmp_path, look)
    assert read(item)["parallel_safe"] is True
    text = item.path.read_text()
    item.path.write_text(text.replace("parallel_safe: true", "parallel_safe: false"))
    assert write(tmp_path, look).state == "unchanged"  # who signs it has chosen
    (told,) = read_declarations([{"name": "set", "annotations": {"readOnlyHint": "true"}}]).values()
    assert "parallel_safe" not in read(write(tmp_path, told))
