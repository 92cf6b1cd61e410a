"""The file types that signed runtimes add."""

import pytest

from ryecore import SigningKey
from ryecore.errors import AmbiguousItem, ItemNotFound
from ryecore.items.signature import CommentForm
from ryecore.items.trust import TRUSTED_KEYS_PATH
from tests.workspace import Workspace

LUA = {"command": "/bin/cat", "args": ["{tool_path}"]}
FORMS = {".lua": CommentForm.of("--")}
HEADER = '-- __executor_id__ = "rye/core/runtimes/lua/lua"\nprint(1)\n'


def runtime(workspace: Workspace, space="project", **declared: object) -> None:
    declared = {"file_types": {".lua": "--"}, "config": LUA, **declared}
    workspace.yaml("rye/core/runtimes/lua/lua", space=space, **declared)


def tool(workspace: Workspace) -> str:
    path = workspace.write("tools/a/t.lua", HEADER, sign=False)
    workspace.sign(path, file_types=FORMS)
    return "tool:a/t"


@pytest.mark.parametrize("space", ["project", "user"])
def test_a_signed_runtime_adds_an_extension_with_its_comment_form(workspace, space):
    runtime(workspace, space)
    done = workspace.execute(tool(workspace))
    assert done.data["stdout"].startswith("-- rye:signed:")
    assert done.data["stdout"].endswith(HEADER)


def test_without_the_runtime_there_is_no_such_tool(workspace):
    with pytest.raises(ItemNotFound):
        workspace.execute(tool(workspace))


def test_a_runtime_that_does_not_verify_adds_nothing(workspace):
    runtime(workspace)
    workspace.sign(
        workspace.path("tools/rye/core/runtimes/lua/lua.yaml"), key=SigningKey.generate()
    )
    with pytest.raises(ItemNotFound):
        workspace.execute(tool(workspace))


def test_a_runtime_outside_the_runtimes_folder_adds_nothing(workspace):
    workspace.yaml("a/lua", file_types={".lua": "--"}, config=LUA)
    with pytest.raises(ItemNotFound):
        workspace.execute(tool(workspace))


def test_a_runtime_cannot_change_how_a_fixed_extension_is_signed(workspace):
    runtime(workspace, file_types={".py": "--", ".lua": "--"})
    ref = workspace.python("a/p", "def execute(p, project):\n    return 1")
    assert workspace.execute(ref).data == 1


def test_a_new_runtime_is_noticed_by_an_open_rye(workspace):
    with workspace.sync() as rye:
        ref = tool(workspace)
        with pytest.raises(ItemNotFound):
            rye.execute(ref)
        runtime(workspace)
        assert rye.execute(ref).success


def test_two_files_of_one_stem_are_refused_also_where_a_runtime_added_the_extension(workspace):
    runtime(workspace)
    tool(workspace)
    workspace.shell("a/t", "true")
    with pytest.raises(AmbiguousItem):
        workspace.execute("tool:a/t")


def test_an_added_extension_shadows_a_fixed_one_in_a_later_space(workspace):
    runtime(workspace)
    workspace.shell("a/t", "echo user", space="user")
    assert workspace.execute(tool(workspace)).chain.head.space == "project"


def test_a_note_beside_a_tool_is_no_second_file_of_its_stem(workspace):
    runtime(workspace)
    workspace.write("tools/a/t.txt", "a note", sign=False)
    assert workspace.execute(workspace.shell("a/t", "echo x")).success


def test_a_runtime_that_is_altered_or_goes_is_noticed_by_an_open_rye(workspace):
    runtime(workspace)
    path = workspace.path("tools/rye/core/runtimes/lua/lua.yaml")
    signed = path.read_bytes()
    ref = tool(workspace)
    with workspace.sync() as rye:
        assert rye.execute(ref).success
        assert rye.execute(ref).success
        path.write_bytes(signed + b"# more\n")
        with pytest.raises(ItemNotFound):
            rye.execute(ref)
        path.write_bytes(signed)
        assert rye.execute(ref).success
        path.unlink()
        with pytest.raises(ItemNotFound):
            rye.execute(ref)


def test_a_key_that_no_longer_counts_takes_its_runtime_along(workspace):
    runtime(workspace)
    ref = tool(workspace)
    keys = list((workspace.user / f".ai/config/{TRUSTED_KEYS_PATH}").glob("*.toml"))
    assert keys
    with workspace.sync() as rye:
        assert rye.execute(ref).success
        for key in keys:
            key.rename(key.with_suffix(".away"))
        with pytest.raises(ItemNotFound):
            rye.execute(ref)
        for key in keys:
            key.with_suffix(".away").rename(key)
        assert rye.execute(ref).success
