"""From a ref, along each executor id, to the primitive."""

import pytest

from ryecore.errors import (
    AmbiguousItem,
    ChainError,
    ChainTooDeep,
    CircularDependency,
    ExecutorNotFound,
    InvalidItemId,
    ItemNotFound,
    MetadataError,
    MissingExecutorId,
    UnsignedItem,
)
from tests.workspace import BASH, PRIMITIVE, Workspace, events

ECHO = {"command": "/bin/cat", "input_data": "{params_json}"}


def line(workspace: Workspace, runtimes: int) -> str:
    """A tool that reaches the primitive over so many runtimes."""
    for number in range(runtimes):
        following = PRIMITIVE if number == runtimes - 1 else f"a/r{number + 1}"
        workspace.yaml(f"a/r{number}", executor_id=following, config=ECHO)
    return workspace.shell("a/tool", "true", executor_id="a/r0")


def test_the_chain_is_tool_runtime_primitive(workspace):
    done = workspace.execute(workspace.shell("a/tool", "true"))
    assert done.chain.ids == ("a/tool", BASH, PRIMITIVE)
    assert [element.space for element in done.chain.elements] == [
        "project",
        "system:ryecore",
        "built-in",
    ]


def test_ten_elements_run_the_primitive_counted(workspace):
    done = workspace.execute(line(workspace, 8), {"a": 1})
    assert len(done.chain.ids) == 10
    assert done.data == {"a": 1}


def test_eleven_elements_are_refused(workspace):
    with pytest.raises(ChainTooDeep, match="more than 10") as refusal:
        workspace.execute(line(workspace, 9))
    assert len(refusal.value.chain) == 10


def test_a_circle_is_refused_and_shown(workspace):
    workspace.yaml("a/one", executor_id="a/two")
    workspace.yaml("a/two", executor_id="a/one")
    with pytest.raises(CircularDependency, match="a/one -> a/two -> a/one"):
        workspace.execute("tool:a/one")


def test_a_tool_that_executes_itself_is_refused(workspace):
    workspace.yaml("a/self", executor_id="a/self")
    with pytest.raises(CircularDependency, match="a/self -> a/self"):
        workspace.execute("tool:a/self")


def test_a_missing_executor_is_named_and_is_a_value_error_too(workspace):
    ref = workspace.shell("a/tool", "true", executor_id="a/nowhere")
    with pytest.raises(ValueError, match="Executor not found: a/nowhere") as refusal:
        workspace.execute(ref)
    assert isinstance(refusal.value, ExecutorNotFound)
    assert refusal.value.executor_id == "a/nowhere"
    assert str(workspace.path("tools")) in refusal.value.next_step, "it says where was looked"
    assert refusal.value.chain == ("a/tool",)


def test_a_missing_tool_says_where_it_was_looked_for(workspace):
    with pytest.raises(ItemNotFound) as refusal:
        workspace.execute("tool:a/nowhere")
    assert [place.partition(" ")[0] for place in refusal.value.searched] == [
        "project",
        "user",
        "system:ryecore",
    ]


def test_a_tool_that_names_no_executor_is_told_to_and_null_is_another_error(workspace):
    workspace.write("tools/a/silent.yaml", {"version": "1.0.0"})
    workspace.write("tools/a/null.yaml", {"executor_id": None})
    with pytest.raises(MissingExecutorId, match="doesn't say which executor"):
        workspace.execute("tool:a/silent")
    with pytest.raises(ChainError, match="declares itself a primitive"):
        workspace.execute("tool:a/null")


def test_a_primitive_needs_no_file_and_nothing_shadows_it(workspace):
    workspace.yaml(PRIMITIVE, executor_id="a/evil")
    done = workspace.execute(workspace.shell("a/tool", "true"))
    assert done.chain.elements[-1].path is None


def test_the_primitive_alone_is_nothing_to_execute(workspace):
    with pytest.raises(ChainError, match="is a primitive"):
        workspace.execute(f"tool:{PRIMITIVE}")


def test_an_executor_id_that_is_no_id_is_refused(workspace):
    ref = workspace.shell("a/tool", "true", executor_id="../../etc/passwd")
    with pytest.raises(InvalidItemId, match="not an item id"):
        workspace.execute(ref)


@pytest.mark.parametrize("category", ["a/b", "", "other"])
def test_a_category_that_is_not_the_tools_place_is_refused(workspace, category):
    ref = workspace.shell("a/tool", "true", category=category)
    with pytest.raises(MetadataError, match="category"):
        workspace.execute(ref)


def test_a_category_that_is_the_tools_place_is_fine(workspace):
    assert workspace.execute(workspace.shell("a/tool", "true", category="a")).success


def test_two_files_of_one_stem_are_refused_and_both_named(workspace):
    workspace.shell("a/tool", "true")
    workspace.python("a/tool", "x = 1")
    with pytest.raises(AmbiguousItem) as refusal:
        workspace.execute("tool:a/tool")
    assert "tool.py" in refusal.value.message
    assert "tool.sh" in refusal.value.message


def test_project_comes_before_user_and_user_before_system(workspace):
    for space in ("system", "user", "project"):
        ref = workspace.shell("a/tool", f"echo {space}", space=space)
        assert workspace.execute(ref).data["stdout"] == f"{space}\n"


def test_the_trace_lists_what_was_shadowed_with_its_space(workspace):
    for space in ("system", "user", "project"):
        ref = workspace.shell("a/tool", "true", space=space)
    resolved = events(workspace.execute(ref, trace=True).trace, "resolve")[0]
    assert resolved["space"] == "project"
    assert resolved["shadowed"] == [
        {"path": str(workspace.path("tools/a/tool.sh", "user")), "space": "user"},
        {"path": str(workspace.path("tools/a/tool.sh", "system")), "space": "system:acme"},
    ]


def test_from_a_user_tool_on_the_project_is_not_searched(workspace):
    ref = workspace.shell("a/tool", "true", space="user", executor_id="a/runtime")
    workspace.yaml("a/runtime", config=ECHO)
    with pytest.raises(ExecutorNotFound, match="a/runtime"):
        workspace.execute(ref)
    workspace.yaml("a/runtime", config=ECHO, space="user")
    assert workspace.execute(ref).chain.elements[1].space == "user"


def test_from_a_system_tool_on_only_system_is_searched(workspace):
    ref = workspace.shell("a/tool", "true", space="system", executor_id="a/runtime")
    workspace.yaml("a/runtime", config=ECHO)
    workspace.yaml("a/runtime", config=ECHO, space="user")
    with pytest.raises(ExecutorNotFound, match="a/runtime"):
        workspace.execute(ref)
    workspace.yaml("a/runtime", config=ECHO, space="system")
    assert workspace.execute(ref).chain.elements[1].space == "system:acme"


def test_a_project_runtime_shadows_the_systems_for_project_tools_alone(workspace):
    workspace.yaml(BASH, config={"command": "/bin/echo", "args": ["shadow"]})
    assert workspace.execute(workspace.shell("a/mine", "true")).data["stdout"] == "shadow\n"
    assert workspace.execute(workspace.shell("a/users", "echo real", space="user")).data[
        "stdout"
    ] == ("real\n")


def test_every_element_is_verified_before_it_is_read(workspace):
    ref = workspace.shell("a/tool", "true", executor_id="a/runtime")
    workspace.write("tools/a/runtime.yaml", "executor_id: [broken", sign=False)
    with pytest.raises(UnsignedItem) as refusal:
        workspace.execute(ref)
    assert refusal.value.chain == ("a/tool",)
