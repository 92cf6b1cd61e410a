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
from tests.house import BASH, PRIMITIVE, House, events

ECHO = {"command": "/bin/cat", "input_data": "{params_json}"}


def line(house: House, runtimes: int) -> str:
    """A tool that reaches the primitive over so many runtimes."""
    for number in range(runtimes):
        following = PRIMITIVE if number == runtimes - 1 else f"a/r{number + 1}"
        house.yaml(f"a/r{number}", executor_id=following, config=ECHO)
    return house.shell("a/tool", "true", executor_id="a/r0")


def test_the_chain_is_tool_runtime_primitive(house):
    done = house.execute(house.shell("a/tool", "true"))
    assert done.chain.ids == ("a/tool", BASH, PRIMITIVE)
    assert [element.space for element in done.chain.elements] == [
        "project",
        "system:ryecore",
        "built-in",
    ]


def test_ten_elements_run_the_primitive_counted(house):
    done = house.execute(line(house, 8), {"a": 1})
    assert len(done.chain.ids) == 10
    assert done.data == {"a": 1}


def test_eleven_elements_are_refused(house):
    with pytest.raises(ChainTooDeep, match="more than 10") as refusal:
        house.execute(line(house, 9))
    assert len(refusal.value.chain) == 10


def test_a_circle_is_refused_and_shown(house):
    house.yaml("a/one", executor_id="a/two")
    house.yaml("a/two", executor_id="a/one")
    with pytest.raises(CircularDependency, match="a/one -> a/two -> a/one"):
        house.execute("tool:a/one")


def test_a_tool_that_executes_itself_is_refused(house):
    house.yaml("a/self", executor_id="a/self")
    with pytest.raises(CircularDependency, match="a/self -> a/self"):
        house.execute("tool:a/self")


def test_a_missing_executor_is_named_and_is_a_value_error_too(house):
    ref = house.shell("a/tool", "true", executor_id="a/nowhere")
    with pytest.raises(ValueError, match="Executor not found: a/nowhere") as refusal:
        house.execute(ref)
    assert isinstance(refusal.value, ExecutorNotFound)
    assert refusal.value.executor_id == "a/nowhere"
    assert str(house.path("tools")) in refusal.value.next_step, "it says where was looked"
    assert refusal.value.chain == ("a/tool",)


def test_a_missing_tool_says_where_it_was_looked_for(house):
    with pytest.raises(ItemNotFound) as refusal:
        house.execute("tool:a/nowhere")
    assert [place.partition(" ")[0] for place in refusal.value.searched] == [
        "project",
        "user",
        "system:ryecore",
    ]


def test_a_tool_that_names_no_executor_is_told_to_and_null_is_another_error(house):
    house.write("tools/a/silent.yaml", {"version": "1.0.0"})
    house.write("tools/a/null.yaml", {"executor_id": None})
    with pytest.raises(MissingExecutorId, match="doesn't say which executor"):
        house.execute("tool:a/silent")
    with pytest.raises(ChainError, match="declares itself a primitive"):
        house.execute("tool:a/null")


def test_a_primitive_needs_no_file_and_nothing_shadows_it(house):
    house.yaml(PRIMITIVE, executor_id="a/evil")
    done = house.execute(house.shell("a/tool", "true"))
    assert done.chain.elements[-1].path is None


def test_the_primitive_alone_is_nothing_to_execute(house):
    with pytest.raises(ChainError, match="is a primitive"):
        house.execute(f"tool:{PRIMITIVE}")


def test_an_executor_id_that_is_no_id_is_refused(house):
    ref = house.shell("a/tool", "true", executor_id="../../etc/passwd")
    with pytest.raises(InvalidItemId, match="not an item id"):
        house.execute(ref)


@pytest.mark.parametrize("category", ["a/b", "", "other"])
def test_a_category_that_is_not_the_tools_place_is_refused(house, category):
    ref = house.shell("a/tool", "true", category=category)
    with pytest.raises(MetadataError, match="category"):
        house.execute(ref)


def test_a_category_that_is_the_tools_place_is_fine(house):
    assert house.execute(house.shell("a/tool", "true", category="a")).success


def test_two_files_of_one_stem_are_refused_and_both_named(house):
    house.shell("a/tool", "true")
    house.python("a/tool", "x = 1")
    with pytest.raises(AmbiguousItem) as refusal:
        house.execute("tool:a/tool")
    assert "tool.py" in refusal.value.message
    assert "tool.sh" in refusal.value.message


def test_project_comes_before_user_and_user_before_system(house):
    for space in ("system", "user", "project"):
        ref = house.shell("a/tool", f"echo {space}", space=space)
        assert house.execute(ref).data["stdout"] == f"{space}\n"


def test_the_trace_lists_what_was_shadowed_with_its_space(house):
    for space in ("system", "user", "project"):
        ref = house.shell("a/tool", "true", space=space)
    resolved = events(house.execute(ref, trace=True).trace, "resolve")[0]
    assert resolved["space"] == "project"
    assert resolved["shadowed"] == [
        {"path": str(house.path("tools/a/tool.sh", "user")), "space": "user"},
        {"path": str(house.path("tools/a/tool.sh", "system")), "space": "system:acme"},
    ]


def test_from_a_user_tool_on_the_project_is_not_searched(house):
    ref = house.shell("a/tool", "true", space="user", executor_id="a/runtime")
    house.yaml("a/runtime", config=ECHO)
    with pytest.raises(ExecutorNotFound, match="a/runtime"):
        house.execute(ref)
    house.yaml("a/runtime", config=ECHO, space="user")
    assert house.execute(ref).chain.elements[1].space == "user"


def test_from_a_system_tool_on_only_system_is_searched(house):
    ref = house.shell("a/tool", "true", space="system", executor_id="a/runtime")
    house.yaml("a/runtime", config=ECHO)
    house.yaml("a/runtime", config=ECHO, space="user")
    with pytest.raises(ExecutorNotFound, match="a/runtime"):
        house.execute(ref)
    house.yaml("a/runtime", config=ECHO, space="system")
    assert house.execute(ref).chain.elements[1].space == "system:acme"


def test_a_project_runtime_shadows_the_systems_for_project_tools_alone(house):
    house.yaml(BASH, config={"command": "/bin/echo", "args": ["shadow"]})
    assert house.execute(house.shell("a/mine", "true")).data["stdout"] == "shadow\n"
    assert house.execute(house.shell("a/users", "echo real", space="user")).data["stdout"] == (
        "real\n"
    )


def test_every_element_is_verified_before_it_is_read(house):
    ref = house.shell("a/tool", "true", executor_id="a/runtime")
    house.write("tools/a/runtime.yaml", "executor_id: [broken", sign=False)
    with pytest.raises(UnsignedItem) as refusal:
        house.execute(ref)
    assert refusal.value.chain == ("a/tool",)
