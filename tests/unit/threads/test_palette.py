"""What a thread's model is shown, and what its names stand for."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.directives.inputs import Declared
from ryecore.errors import ToolPolicyError, UnknownToolError
from ryecore.threads.calls.guard import artifact_reader
from ryecore.threads.calls.palette import PaletteBuilder, names_of
from ryecore.threads.calls.returning import return_tool
from ryecore.tools import ToolContext, ToolDef, ToolRegistry
from tests.unit.threads.palette_caller import PaletteCaller, RecordingDispatcher, palette_caller
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


def echo(workspace: Workspace, item_id: str, description: str = "Says it again.") -> str:
    body = f"def execute(params, project_path):\n    return {{'by': {item_id!r}, **params}}"
    return workspace.python(item_id, body, description=description)


async def test_what_is_granted_by_name_comes_first_then_by_wildcard_each_by_its_id(
    workspace: Workspace,
) -> None:
    for item_id in ("acme/z", "acme/sub/b", "acme/sub/a", "acme/none"):
        echo(workspace, item_id)
    async with workspace.open() as rye:
        here = await palette_caller(
            RecordingDispatcher(rye), "rye.execute.tool.acme.sub.*", "rye.execute.tool.acme.z"
        )

        shown = [tool.name for tool in here.palette.tools]
        assert shown == ["rye_execute", "acme_z", "acme_sub_a", "acme_sub_b"]
        assert list(here.palette.registry) == list(here.palette.tools)
        assert here.palette.left_out == ()
        assert (await here.says("acme_sub_a", x=1)) == {"by": "acme/sub/a", "x": 1}
        with pytest.raises(UnknownToolError):
            await here.call("acme_none")


@pytest.mark.parametrize("granted", ["rye.*", "rye.execute.*", "*"])
async def test_a_grant_of_everything_preloads_no_tool(workspace: Workspace, granted: str) -> None:
    echo(workspace, "acme/x")
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), granted)

        names = [tool.name for tool in here.palette.tools]
        assert names[0] == "rye_execute"
        assert "rye_sign" not in names
        assert (await here.says("rye_execute", item_id="tool:acme/x"))["data"] == {"by": "acme/x"}


@pytest.mark.parametrize(
    ("granted", "shown"),
    [
        ((), []),
        (("rye.execute.directive.acme.x",), ["rye_execute"]),
        (("rye.fetch.knowledge.*",), ["rye_fetch"]),
        (("rye.fetch*",), ["rye_fetch"]),
        (("rye.sign.*", "*"), ["rye_execute", "rye_fetch"]),
        (("rye.sign.tool.acme.x",), ["rye_sign"]),
    ],
)
async def test_a_built_in_is_there_where_something_of_it_is_granted(
    workspace: Workspace, granted: tuple[str, ...], shown: list[str]
) -> None:
    async with workspace.open() as rye:
        palette = await PaletteBuilder(RecordingDispatcher(rye)).build(granted)

        assert [tool.name for tool in palette.tools] == shown


async def test_a_new_and_a_changed_tool_are_noticed_by_the_next_thread(
    workspace: Workspace,
) -> None:
    echo(workspace, "acme/a", "First.")
    async with workspace.open() as rye:
        builder = PaletteBuilder(RecordingDispatcher(rye))

        async def told() -> Mapping[str, str]:
            palette = await builder.build(["rye.execute.tool.acme.*"])
            return {tool.name: tool.description for tool in palette.tools[1:]}

        assert await told() == {"acme_a": "First."}
        echo(workspace, "acme/b", "New.")
        assert await told() == {"acme_a": "First.", "acme_b": "New."}
        echo(workspace, "acme/a", "Second.")
        assert await told() == {"acme_a": "Second.", "acme_b": "New."}
        workspace.path("tools/acme/b.py").unlink()
        assert await told() == {"acme_a": "Second."}


async def test_what_shadows_a_tool_is_what_is_offered(workspace: Workspace) -> None:
    workspace.python(
        "acme/x", "def execute(params, project_path): return 1", space="user", description="User."
    )
    async with workspace.open() as rye:
        builder = PaletteBuilder(RecordingDispatcher(rye))
        before = await builder.build(["rye.execute.tool.acme.*"])
        echo(workspace, "acme/x", "Project.")
        after = await builder.build(["rye.execute.tool.acme.*"])

        assert [one.description for one in before.tools[1:]] == ["User."]
        assert [one.description for one in after.tools[1:]] == ["Project."]


async def test_a_tool_that_does_not_verify_is_left_out_with_the_reason(
    workspace: Workspace,
) -> None:
    echo(workspace, "acme/good")
    workspace.write("tools/acme/raw.py", "__executor_id__ = None\n", sign=False)
    workspace.write("tools/acme/lib.py", "def helper(): ...\n")
    path = workspace.path("tools/acme/other.py")
    echo(workspace, "acme/other")
    path.write_text(path.read_text() + "# changed\n")
    async with workspace.open() as rye:
        wild = await palette_caller(RecordingDispatcher(rye), "rye.execute.tool.acme.*")
        exact = await palette_caller(
            RecordingDispatcher(rye), "rye.execute.tool.acme.gone", "rye.execute.tool.acme.lib",
            "rye.execute.tool.acme.odd..id",
        )  # fmt: skip

        assert [tool.name for tool in wild.palette.tools] == ["rye_execute", "acme_good"]
        changed, raw = wild.palette.left_out
        assert changed.startswith("tool:acme/other: ")
        assert "was changed after" in changed
        assert raw.startswith("tool:acme/raw: ")
        assert str(workspace.root) not in "".join(wild.palette.left_out)
        assert [one.partition(": ")[0] for one in exact.palette.left_out] == [
            "tool:acme/gone", "tool:acme/lib", "tool:acme/odd//id",
        ]  # fmt: skip


async def test_a_tool_that_breaks_later_is_denied_when_it_is_called(workspace: Workspace) -> None:
    echo(workspace, "acme/x")
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), "rye.execute.tool.acme.x")
        path = workspace.path("tools/acme/x.py")
        path.write_text(path.read_text() + "# changed\n")

        with pytest.raises(ToolPolicyError, match="was changed after"):
            await here.call("acme_x")


async def test_runtimes_are_not_offered_by_a_wildcard(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        here = await palette_caller(
            RecordingDispatcher(rye), "rye.execute.tool.rye.core.runtimes.*"
        )

        assert [tool.name for tool in here.palette.tools] == ["rye_execute"]


async def test_what_does_not_fit_the_budget_is_left_out_and_can_still_be_executed(
    workspace: Workspace,
) -> None:
    echo(workspace, "acme/big", "Much. " * 2_000)
    echo(workspace, "acme/small")
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), "rye.execute.tool.acme.*")

        assert [tool.name for tool in here.palette.tools] == ["rye_execute", "acme_small"]
        assert here.palette.left_out == (
            "tool:acme/big: over the token budget; rye_execute runs it",
        )
        assert (await here.says("rye_execute", item_id="tool:acme/big"))["data"] == {
            "by": "acme/big"
        }
        none = await PaletteBuilder(RecordingDispatcher(rye)).build(
            ("rye.execute.tool.acme.*",), (), (), token_budget=0
        )
        assert len(none.left_out) == 2


async def test_two_ids_of_one_name_both_get_another(workspace: Workspace) -> None:
    for item_id in ("acme/a-b", "acme/a/b", "acme/plain"):
        echo(workspace, item_id)
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), "rye.execute.tool.acme.*")

        names = [tool.name for tool in here.palette.tools]
        assert "acme_a_b" not in names
        assert "acme_plain" in names
        found = {(await here.says(name))["by"] for name in names if name.startswith("acme_a_b-")}
        assert found == {"acme/a-b", "acme/a/b"}


async def test_no_item_takes_the_name_of_a_built_in_or_a_host_function(
    workspace: Workspace,
) -> None:
    for item_id in ("rye/execute", "look/up"):
        echo(workspace, item_id)

    def look_up(word: str) -> str:
        """Look it up."""
        return f"{word}!"

    def rye_fetch() -> str:
        """Fetch."""
        return "the host's"

    granted = ("rye.execute.tool.*",)
    async with workspace.open() as rye:
        hosts: list[ToolDef] = [ToolDef.from_function(look_up), ToolDef.from_function(rye_fetch)]
        palette = await PaletteBuilder(RecordingDispatcher(rye)).build(
            granted, hosts, (), token_budget=50_000
        )
        here = PaletteCaller(palette, granted)

        assert (await here.call("look_up", word="x")).part.text == "x!"
        assert palette.registry.get("rye_fetch") is None
        assert "rye_fetch: a built-in tool has its name" in palette.left_out
        names = [tool.name for tool in palette.tools]
        assert [one for one in names if re.fullmatch("(rye_execute|look_up)-[0-9a-f]{16}", one)]
        assert (await here.says("rye_execute", item_id="tool:look/up"))["data"]["by"] == "look/up"


async def test_a_host_function_is_there_where_the_capabilities_allow_it(
    workspace: Workspace,
) -> None:
    def now() -> str:
        """The time."""
        return "noon"

    def pay() -> str:
        """Pay."""
        return "paid"

    hosts = [ToolDef.from_function(now), ToolDef.from_function(pay, capability="shop.pay")]
    async with workspace.open() as rye:
        dispatcher = RecordingDispatcher(rye)

        async def shown(*granted: str) -> list[str]:
            return [
                one.name
                for one in (await PaletteBuilder(dispatcher).build(granted, hosts, ())).tools
            ]

        assert await shown() == []
        assert await shown("rye.execute.tool.host.now") == ["rye_execute", "now"]
        assert await shown("shop.pay") == ["pay"]
        assert await shown("rye.execute.tool.host.*") == ["rye_execute", "now"]
        palette = await PaletteBuilder(dispatcher).build(
            ("shop.*", "rye.execute.tool.host.now"), hosts, ()
        )
        assert palette.left_out == ()
        with pytest.raises(ToolPolicyError, match=r"rye\.execute\.tool\.host\.now"):
            await PaletteCaller(palette, ("shop.*",)).call("now")
        assert hosts[0].capability is None


async def test_a_function_that_the_host_adds_is_there_for_the_next_thread(
    workspace: Workspace,
) -> None:
    def made(name: str) -> ToolDef:
        return ToolDef.from_function(lambda: name, name=name, description=name)

    hosts = ToolRegistry([made("first")])
    async with workspace.open() as rye:
        builder = PaletteBuilder(RecordingDispatcher(rye))

        async def shown() -> tuple[list[str], frozenset[str]]:
            palette = await builder.build(("rye.execute.tool.host.*",), hosts)
            return [one.name for one in palette.tools], palette.functions

        assert await shown() == (["rye_execute", "first"], {"first"})
        hosts.add(made("second"))
        assert await shown() == (["rye_execute", "first", "second"], {"first", "second"})


async def test_two_threads_share_nothing_that_one_could_change(workspace: Workspace) -> None:
    echo(workspace, "acme/x")
    async with workspace.open() as rye:
        builder = PaletteBuilder(RecordingDispatcher(rye))
        first = await builder.build(["rye.execute.tool.acme.x"])
        second = await builder.build(["rye.execute.tool.acme.x"])

        def mine() -> str:
            """Mine."""
            return "mine"

        first.registry.add(mine)

        assert "mine" not in second.registry


async def test_artifacts_can_be_read_wherever_there_is_another_tool(workspace: Workspace) -> None:
    extra = [artifact_reader()]
    async with workspace.open() as rye:
        none = await PaletteBuilder(RecordingDispatcher(rye)).build((), (), extra)
        returns = return_tool([Declared("n")])
        assert returns is not None
        alone = await PaletteBuilder(RecordingDispatcher(rye)).build((), (), [*extra, returns])
        assert [one.name for one in alone.tools] == ["rye_directive_return"]
        some = await PaletteBuilder(RecordingDispatcher(rye)).build(("rye.fetch.*",), (), extra)

        assert none.tools == ()
        assert [one.name for one in some.tools] == ["rye_fetch", "read_artifact"]


SEGMENT = st.text("ab_-", min_size=1, max_size=4).filter(lambda one: one[0] != "-")
ID = st.one_of(
    st.lists(SEGMENT, min_size=1, max_size=4).map("/".join),
    st.lists(st.just("a" * 30), min_size=2, max_size=4).map("/".join),
)


@given(st.sets(ID, max_size=12), st.sets(ID, max_size=12), st.sets(st.text("ab_", min_size=1)))
def test_a_name_never_stands_for_another_item_whatever_is_added(
    ids: set[str], more: set[str], taken: set[str]
) -> None:
    before, after = names_of(ids, taken), names_of(ids | more, taken)

    assert len(set(after.values())) == len(after)
    assert not set(after.values()) & taken
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in after.values())
    owner = {name: item_id for item_id, name in before.items()}
    for item_id, name in after.items():
        assert owner.get(name, item_id) == item_id


async def test_a_schema_and_description_are_the_items_own(workspace: Workspace) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    workspace.python(
        "acme/n", "def execute(params, project_path): return params", config_schema=schema,
        description="Counts.",
    )  # fmt: skip
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), "rye.execute.tool.acme.n")
        tool = here.palette.registry.get("acme_n")

        assert tool is not None
        assert (tool.spec.description, tool.spec.parameters) == ("Counts.", schema)
        assert (tool.capability, tool.source) == ("rye.execute.tool.acme.n", "tool:acme/n")
        assert ToolContext().present is None
