"""The file types that signed runtimes add."""

import pytest

from ryecore import SigningKey
from ryecore.errors import AmbiguousItem, ItemNotFound
from ryecore.items.signature import CommentForm
from ryecore.items.trust import TRUSTED_KEYS_PATH
from tests.house import House

LUA = {"command": "/bin/cat", "args": ["{tool_path}"]}
FORMS = {".lua": CommentForm.of("--")}
HEADER = '-- __executor_id__ = "rye/core/runtimes/lua/lua"\nprint(1)\n'


def runtime(house: House, space="project", **declared: object) -> None:
    declared = {"file_types": {".lua": "--"}, "config": LUA, **declared}
    house.yaml("rye/core/runtimes/lua/lua", space=space, **declared)


def tool(house: House) -> str:
    path = house.write("tools/a/t.lua", HEADER, sign=False)
    house.sign(path, file_types=FORMS)
    return "tool:a/t"


@pytest.mark.parametrize("space", ["project", "user"])
def test_a_signed_runtime_adds_an_extension_with_its_comment_form(house, space):
    runtime(house, space)
    done = house.execute(tool(house))
    assert done.data["stdout"].startswith("-- rye:signed:")
    assert done.data["stdout"].endswith(HEADER)


def test_without_the_runtime_there_is_no_such_tool(house):
    with pytest.raises(ItemNotFound):
        house.execute(tool(house))


def test_a_runtime_that_does_not_verify_adds_nothing(house):
    runtime(house)
    house.sign(house.path("tools/rye/core/runtimes/lua/lua.yaml"), key=SigningKey.generate())
    with pytest.raises(ItemNotFound):
        house.execute(tool(house))


def test_a_runtime_outside_the_runtimes_folder_adds_nothing(house):
    house.yaml("a/lua", file_types={".lua": "--"}, config=LUA)
    with pytest.raises(ItemNotFound):
        house.execute(tool(house))


def test_a_runtime_cannot_change_how_a_fixed_extension_is_signed(house):
    runtime(house, file_types={".py": "--", ".lua": "--"})
    ref = house.python("a/p", "def execute(p, project):\n    return 1")
    assert house.execute(ref).data == 1


def test_a_new_runtime_is_noticed_by_an_open_rye(house):
    with house.sync() as rye:
        ref = tool(house)
        with pytest.raises(ItemNotFound):
            rye.execute(ref)
        runtime(house)
        assert rye.execute(ref).success


def test_two_files_of_one_stem_are_refused_also_where_a_runtime_added_the_extension(house):
    runtime(house)
    tool(house)
    house.shell("a/t", "true")
    with pytest.raises(AmbiguousItem):
        house.execute("tool:a/t")


def test_an_added_extension_shadows_a_fixed_one_in_a_later_space(house):
    runtime(house)
    house.shell("a/t", "echo user", space="user")
    assert house.execute(tool(house)).chain.head.space == "project"


def test_a_note_beside_a_tool_is_no_second_file_of_its_stem(house):
    runtime(house)
    house.write("tools/a/t.txt", "a note", sign=False)
    assert house.execute(house.shell("a/t", "echo x")).success


def test_a_runtime_that_is_altered_or_goes_is_noticed_by_an_open_rye(house):
    runtime(house)
    path = house.path("tools/rye/core/runtimes/lua/lua.yaml")
    signed = path.read_bytes()
    ref = tool(house)
    with house.sync() as rye:
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


def test_a_key_that_no_longer_counts_takes_its_runtime_along(house):
    runtime(house)
    ref = tool(house)
    keys = list((house.user / f".ai/config/{TRUSTED_KEYS_PATH}").glob("*.toml"))
    assert keys
    with house.sync() as rye:
        assert rye.execute(ref).success
        for key in keys:
            key.rename(key.with_suffix(".away"))
        with pytest.raises(ItemNotFound):
            rye.execute(ref)
        for key in keys:
            key.with_suffix(".away").rename(key)
        assert rye.execute(ref).success
