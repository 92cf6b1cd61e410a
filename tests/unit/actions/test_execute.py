"""What is checked before a chain is built: the matrix, refs, capabilities."""

import pytest

from ryecore import CallContext, ItemRef
from ryecore.errors import (
    AmbiguousItem,
    ConfigError,
    InputError,
    InvalidItemId,
    ItemNotFound,
    RyeError,
    UnsupportedExecution,
)
from tests.workspace import Workspace


def directive(workspace: Workspace, item_id: str) -> None:
    name = item_id.rpartition("/")[2]
    workspace.write(
        f"directives/{item_id}.md", f'```xml\n<directive name="{name}"/>\n```\nDo it.\n'
    )


def test_a_bare_id_means_the_tool(workspace):
    workspace.shell("a/t", "echo x")
    assert workspace.execute("a/t").item_id == "tool:a/t"


def test_a_bare_id_means_the_directive_where_there_is_one(workspace):
    directive(workspace, "a/d")
    assert workspace.execute("a/d").item_id == "directive:a/d"


def test_a_bare_id_that_is_both_is_refused_with_both_refs(workspace):
    workspace.shell("a/x", "touch ran")
    directive(workspace, "a/x")
    with pytest.raises(AmbiguousItem) as refusal:
        workspace.execute("a/x")
    assert refusal.value.candidates == ("directive:a/x", "tool:a/x")
    assert not (workspace.project / "ran").exists()
    assert workspace.execute("tool:a/x").success


def test_an_unknown_bare_id_is_not_found(workspace):
    with pytest.raises(ItemNotFound):
        workspace.execute("a/nowhere")


def test_the_matrix_is_checked_before_the_item_is_looked_for(workspace):
    for options in ({"thread": "fork"}, {"target": "moon"}, {"async_": True, "dry_run": True}):
        with pytest.raises(UnsupportedExecution):
            workspace.execute("tool:a/nowhere", **options)


def test_knowledge_can_not_be_executed(workspace):
    workspace.write("knowledge/a/k.md", "text")
    with pytest.raises(UnsupportedExecution, match="knowledge"):
        workspace.execute("knowledge:a/k")


def test_a_fork_without_models_says_what_to_inject(workspace):
    directive(workspace, "a/d")
    with pytest.raises(ConfigError, match="needs models") as refusal:
        workspace.execute("a/d", thread="fork", model="acme/m-1")
    assert "Rye.open(agent=" in refusal.value.next_step


@pytest.mark.parametrize("option", [{"timeout_s": 1}, {"output_log": "/tmp/x"}])
def test_what_is_for_tools_is_refused_for_directives(workspace, option):
    directive(workspace, "a/d")
    with pytest.raises(InputError, match="for tools"):
        workspace.execute("a/d", **option)


@pytest.mark.parametrize("option", [{"model": "a/b"}, {"limits": {"turns": 1}}])
def test_what_is_for_directives_is_refused_for_tools(workspace, option):
    workspace.shell("a/t", "true")
    with pytest.raises(InputError, match="directives"):
        workspace.execute("tool:a/t", **option)


def test_model_and_limit_overrides_within_parameters_are_only_parameters(workspace):
    ref = workspace.shell("a/t", "cat")
    given = {"model": "x", "limit_overrides": {"turns": 1}, "target": "remote", "async": True}
    assert workspace.execute(ref, given).data == given


BAD_IDS = [
    "tool:../../etc/passwd", "tool:a/../b", "tool:/etc/passwd", "tool:a.py", "tool:", "tool:a//b",
    "tool:a\0b", "tool:a\n", "tool:a b", "tool:ä", "tool:a/", "banana:a", "tool:-a", ":a", "..", "",
    "tool:a\\b", "tool:" + "a" * 600,
]  # fmt: skip


@pytest.mark.parametrize("ref", BAD_IDS)
def test_a_bad_id_is_one_clear_error(workspace, ref):
    with pytest.raises(InvalidItemId) as refusal:
        workspace.execute(ref)
    assert refusal.value.next_step
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize("item_id", ["../config/x", "a/../../config/x", "/etc/passwd", "a\0b"])
def test_a_ref_object_with_a_bad_id_is_refused_like_its_text(workspace, item_id):
    workspace.write("config/x.yaml", {"executor_id": "rye/core/runtimes/bash/bash"})
    with pytest.raises(InvalidItemId):
        workspace.execute(ItemRef("tool", item_id))


@pytest.mark.parametrize("ref", [None, 3, b"tool:a", ["tool:a"]])
def test_what_is_no_ref_at_all_is_refused(workspace, ref):
    with pytest.raises(RyeError):
        workspace.execute(ref)


def test_a_caller_needs_the_capability_of_the_very_tool(workspace):
    ref = workspace.shell("a/b/t", "echo x")
    for granted in (
        {"rye.execute.tool.a.b.t"},
        {"rye.execute.tool.a.*"},
        {"rye.execute.*"},
        {"rye.*", "other"},
    ):
        assert workspace.execute(ref, ctx=CallContext(capabilities=frozenset(granted))).success
    for granted in (
        set(),
        {"rye.execute.tool.a.b"},
        {"rye.fetch.tool.a.b.t"},
        {"rye.execute.directive.*"},
        {"rye.execute.tool.a.b.t.more"},
    ):
        with pytest.raises(InputError, match=r"rye\.execute\.tool\.a\.b\.t"):
            workspace.execute(ref, ctx=CallContext(capabilities=frozenset(granted)))


def test_a_bare_id_needs_the_capability_of_the_tool_that_it_means(workspace):
    workspace.shell("a/t", "echo x")
    ctx = CallContext(capabilities=frozenset({"rye.execute.tool.a.t"}))
    assert workspace.execute("a/t", ctx=ctx).success


def test_a_denied_call_says_nothing_of_whether_the_tool_is_there(workspace):
    workspace.shell("a/t", "echo x")
    ctx = CallContext(capabilities=frozenset())
    messages = []
    for name in ("tool:a/t", "tool:a/u"):
        with pytest.raises(InputError) as refusal:
            workspace.execute(name, ctx=ctx)
        messages.append(str(refusal.value).replace("a.u", "a.t"))
    assert messages[0] == messages[1]
