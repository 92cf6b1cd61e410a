"""Signing on behalf of a model: by name, with approval, and exactly what was approved."""

import pytest

from ryecore import CallContext
from ryecore.errors import (
    InputError,
    ItemNotFound,
    NotApproved,
    SigningError,
    UnsignedItem,
)

pytestmark = pytest.mark.anyio

TOOL = "# __executor_id__ = 'rye/core/runtimes/bash/bash'\necho signed\n"


class Person:
    """Somebody who answers, and remembers what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0)
        return answer() if callable(answer) else answer


def model(*granted):
    return CallContext(capabilities=frozenset(granted))


async def request(workspace, pattern, person, *granted, **options):
    async with workspace.open(approve=person) as rye:
        return await rye.request_signing(pattern, ctx=model(*granted), **options)


async def is_signed(workspace, ref):
    async with workspace.open() as rye:
        try:
            return rye.verify(ref).is_verified
        except UnsignedItem:
            return False


async def test_an_approved_item_is_signed_and_the_person_saw_what(workspace):
    path = workspace.write("tools/a/t.sh", TOOL, sign=False)
    person = Person(True)
    report = await request(workspace, "tool:a/t", person, "rye.sign.tool.a.t")

    (asked,) = person.asked
    (file,) = asked.files
    assert (asked.action, asked.space) == ("sign", "project")
    assert (file.item_id, file.path, file.state) == ("tool:a/t.sh", path, "unsigned")
    assert file.preview == TOOL.rstrip("\n")
    assert file.size_bytes == len(TOOL)
    assert [one.signature.content_hash for one in report.signed] == [file.content_hash]
    assert await is_signed(workspace, "tool:a/t")
    assert report.to_dict()["summary"] == "Signed 1/1 item."


@pytest.mark.parametrize(
    "granted", [(), ("rye.sign.*",), ("rye.*",), ("*",), ("rye.sign.tool.a.*",), ("rye.execute.*",)]
)
async def test_no_wildcard_grants_it_and_nobody_is_asked(workspace, granted):
    workspace.write("tools/a/t.sh", TOOL, sign=False)
    person = Person(True)
    with pytest.raises(InputError, match=r"rye\.sign\.tool\.a\.t"):
        await request(workspace, "tool:a/t", person, *granted)
    assert person.asked == []
    assert not await is_signed(workspace, "tool:a/t")


@pytest.mark.parametrize("answer", [False, None, "yes", 1])
async def test_nothing_but_true_is_a_yes(workspace, answer):
    workspace.write("tools/a/t.sh", TOOL, sign=False)
    with pytest.raises(NotApproved, match="refused"):
        await request(workspace, "tool:a/t", Person(answer), "rye.sign.tool.a.t")
    assert not await is_signed(workspace, "tool:a/t")


async def test_without_a_person_it_is_refused(workspace):
    workspace.write("tools/a/t.sh", TOOL, sign=False)
    with pytest.raises(NotApproved, match="no approval callback"):
        await request(workspace, "tool:a/t", None, "rye.sign.tool.a.t")


async def test_what_was_swapped_after_the_approval_is_not_signed(workspace):
    path = workspace.write("tools/a/t.sh", TOOL, sign=False)

    def swap():
        path.write_text("rm -rf /\n")
        return True

    with pytest.raises(SigningError, match="changed after its content was approved"):
        await request(workspace, "tool:a/t", Person(swap), "rye.sign.tool.a.t")
    assert path.read_text() == "rm -rf /\n"


async def test_a_file_that_came_after_the_approval_is_not_signed(workspace):
    workspace.write("tools/a/t.sh", TOOL, sign=False)

    def add():
        workspace.write("tools/a/late.sh", TOOL, sign=False)
        return True

    await request(workspace, "tool:a/*", Person(add), "rye.sign.tool.a.t", "rye.sign.tool.a.late")
    assert await is_signed(workspace, "tool:a/t")
    assert not await is_signed(workspace, "tool:a/late")


async def test_a_glob_needs_every_name_and_is_asked_about_at_once(workspace):
    for name in ("t", "u"):
        workspace.write(f"tools/a/{name}.sh", TOOL, sign=False)
    with pytest.raises(InputError, match="capability"):
        await request(workspace, "tool:a/*", Person(True), "rye.sign.tool.a.t")
    person = Person(True)
    await request(workspace, "tool:a/*", person, "rye.sign.tool.a.t", "rye.sign.tool.a.u")
    assert [len(asked.files) for asked in person.asked] == [2]


async def test_config_is_asked_about_file_by_file(workspace):
    for name in ("a", "b"):
        workspace.write(f"config/x/{name}.yaml", "a: 1\n", sign=False)
    names = ("rye.sign.config.x.a", "rye.sign.config.x.b")
    person = Person(True, False)
    with pytest.raises(NotApproved):
        await request(workspace, "config:x/*", person, *names)
    assert [len(asked.files) for asked in person.asked] == [1, 1]
    assert not await is_signed(workspace, "config:x/a")


async def test_a_changed_item_and_a_signed_one_are_told_apart(workspace):
    path = workspace.write("tools/a/t.sh", TOOL)
    person = Person(False, False)
    for _ in range(2):
        with pytest.raises(NotApproved):
            await request(workspace, "tool:a/t", person, "rye.sign.tool.a.t")
        path.write_text(path.read_text() + "echo more\n")
    assert [asked.files[0].state for asked in person.asked] == ["signed", "changed"]


@pytest.mark.parametrize("pattern", ["a/t", "", "path", "banana:a"])
async def test_a_model_names_items_by_kind_and_never_by_path(workspace, pattern):
    path = workspace.write("tools/a/t.sh", TOOL, sign=False)
    with pytest.raises(InputError, match="kind of item"):
        await request(
            workspace,
            str(path) if pattern == "path" else pattern,
            Person(True),
            "rye.sign.tool.a.t",
        )


async def test_other_spaces_and_missing_items_are_refused(workspace):
    with pytest.raises(InputError, match="sealed"):
        await request(workspace, "tool:rye/bash", Person(True), space="system")
    with pytest.raises(ItemNotFound):
        await request(workspace, "tool:a/none", Person(True))
