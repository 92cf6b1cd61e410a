"""Names, what models are shown, and who may call what."""

from typing import Any

import pytest

from ryecore.errors import HostCapabilityMissing, ToolPolicyError, UnknownToolError
from ryecore.policy import CallContext
from ryecore.tools import ToolContext, ToolDef, ToolRegistry
from tests.unit.tools.calls import asked, called, refused

pytestmark = pytest.mark.anyio


async def add(a: int, b: int = 2) -> int:
    """Add numbers."""
    return a + b


async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def renamed(name: str) -> ToolDef:
    return ToolDef.from_function(shout, name=name)


def test_a_registry_holds_tools_by_their_exact_names_in_order() -> None:
    registry = ToolRegistry([add, shout])

    assert [tool.name for tool in registry] == ["add", "shout"]
    assert "add" in registry
    assert "Add" not in registry
    assert registry.get("add ") is None
    assert len(registry) == 2
    assert repr(registry) == "ToolRegistry(add, shout)"


def test_two_tools_of_one_name_are_refused_and_both_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"name add: .*test_registry\.add.* and .*\.shout"
    ) as caught:
        ToolRegistry([add, renamed("add")])
    assert "registry" in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "acme/x", "ä", "x" * 65, "a.b", "a\n"])
def test_a_name_that_some_vendor_refuses_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="isn't a name for a tool"):
        renamed(name) if name else ToolDef(name="", description="", parameters={}, run=run)


async def run(arguments: object, ctx: ToolContext) -> object:
    return arguments


def test_specs_are_given_by_name_in_the_order_asked_for() -> None:
    registry = ToolRegistry([add, shout])

    assert [spec.name for spec in registry.specs()] == ["add", "shout"]
    assert [spec.name for spec in registry.specs(["shout", "add"])] == ["shout", "add"]
    assert registry.specs(["add"])[0] is registry.specs(["add"])[0]
    with pytest.raises(LookupError, match=r"No tool is called 'sub'\. There are: add, shout"):
        registry.specs(["sub"])


def test_a_schema_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="parameters of x aren't a valid JSON Schema"):
        ToolDef(name="x", description="", parameters={"type": "number?"}, run=run)
    with pytest.raises(ValueError, match="parameters of x aren't a valid JSON Schema"):
        ToolDef(name="x", description="", parameters={"default": object()}, run=run)


def test_what_a_tool_has_no_parameter_for_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="add has no parameter 'c'"):
        ToolDef.from_function(add, config={"c": 1})
    with pytest.raises(ValueError, match="timeout of add"):
        ToolDef.from_function(add, timeout_s=0)


async def test_an_unknown_tool_is_answered_with_near_names_that_may_be_called() -> None:
    registry = ToolRegistry([add, shout, renamed("secret_add")])
    ctx = ToolContext(grant=frozenset({"add", "shout", "gone"}))

    with pytest.raises(UnknownToolError) as caught:
        await registry.dispatch(asked("ad"), ctx)

    assert str(caught.value) == "No tool is called 'ad'. Call one of: add."
    assert caught.value.known == ("add", "shout")
    with pytest.raises(UnknownToolError, match="No tool may be called here"):
        await ToolRegistry().dispatch(asked("ad"), ctx)


async def test_an_endless_name_is_shortened_and_shown_as_ascii() -> None:
    with pytest.raises(UnknownToolError) as caught:
        await ToolRegistry([add]).dispatch(asked("\x1b[2Jü" * 100_000), ToolContext())

    assert len(str(caught.value)) < 600
    assert str(caught.value).isascii()
    assert "\x1b" not in str(caught.value)


async def test_a_tool_that_is_not_granted_is_denied() -> None:
    error = await refused(ToolPolicyError, add, {"a": 1}, ToolContext(grant=frozenset({"shout"})))

    assert str(error) == "The tool add is not granted to this agent."
    assert (await called(add, {"a": 1}, ToolContext(grant=frozenset({"add"})))).value == 3


@pytest.mark.parametrize("names", [{"grant": "add_all"}, {"capabilities": "net"}])
def test_a_text_is_no_set_of_names(names: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="Write a set of names"):
        ToolContext(**names)


async def test_a_capability_is_needed_of_everybody_but_the_host() -> None:
    tool = ToolDef.from_function(add, capability="rye.execute.tool.acme.add")

    def on_behalf(*held: str) -> ToolContext:
        return ToolContext(call=CallContext(capabilities=frozenset(held)))

    assert (await called(tool, {"a": 1})).value == 3
    assert (await called(tool, {"a": 1}, on_behalf("rye.execute.tool.acme.*"))).value == 3
    error = await refused(ToolPolicyError, tool, {"a": 1}, on_behalf("rye.execute.tool.other.*"))
    assert "rye.execute.tool.acme.add" in str(error)


async def test_what_the_host_does_not_offer_is_named() -> None:
    tool = ToolDef.from_function(add, needs={"net", "fs"})

    error = await refused(
        HostCapabilityMissing, tool, {"a": 1}, ToolContext(capabilities=frozenset({"fs"}))
    )

    assert error.capability == "net"
    assert (
        await called(tool, {"a": 1}, ToolContext(capabilities=frozenset({"fs", "net"})))
    ).value == 3
