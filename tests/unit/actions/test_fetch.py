"""fetch: one item, verified, and copies of it."""

import json
import os

import pytest

from ryecore import CallContext, SigningKey
from ryecore.errors import (
    AmbiguousItem,
    ContentChanged,
    InputError,
    IntegrityError,
    InvalidItemId,
    ItemError,
    ItemNotFound,
    LinkLeavesSpace,
    NotApproved,
    UnsignedItem,
)

pytestmark = pytest.mark.anyio


async def fetch(workspace, ref, approve=None, **options):
    async with workspace.open(approve=approve) as rye:
        return await rye.fetch(ref, **options)


def model(*granted):
    return CallContext(capabilities=frozenset(granted))


async def test_an_item_of_each_kind_comes_with_its_text_and_what_it_says_of_itself(workspace):
    workspace.shell("a/t", "echo é", description="Says hello.", version="1.2.0")
    workspace.write("directives/a/d.md", "# Plan\n")
    workspace.write("knowledge/a/k.md", "---\ntitle: Tides\ntags: [sea]\n---\nHigh.\n")
    workspace.write("config/a/c.yaml", "a: 1\n")

    for kind, name, title in (
        ("tool", "t", "t"),
        ("directive", "d", "Plan"),
        ("knowledge", "k", "Tides"),
        ("config", "c", "c"),
    ):
        found = await fetch(workspace, f"{kind}:a/{name}")
        document = found.to_dict()
        assert document["content"] == found.path.read_text()
        assert "rye:signed:" in document["content"]
        assert document["status"] == "success"
        assert document["key_fp"] == workspace.key.public.fingerprint
        assert (document["type"], document["item_id"]) == (kind, f"{kind}:a/{name}")
        assert document["metadata"]["title"] == title
        assert document["source"] == "project"
        assert json.dumps(document)
    tool = (await fetch(workspace, "tool:a/t")).to_dict()
    assert tool["metadata"]["version"] == "1.2.0"
    assert tool["metadata"]["description"] == "Says hello."


async def test_a_file_that_is_no_text_comes_as_base64(workspace):
    workspace.write("knowledge/raw.md", b"\xff\xfe")
    document = (await fetch(workspace, "knowledge:raw")).to_dict()
    assert document["encoding"] == "base64"


async def test_each_space_can_be_asked_and_shadows_are_said(workspace):
    for space in ("project", "user", "system"):
        workspace.write("knowledge/k.md", f"in {space}\n", space=space)
    where = {space: workspace.path("knowledge/k.md", space) for space in ("project", "user")}

    first = await fetch(workspace, "knowledge:k")
    user = await fetch(workspace, "knowledge:k", source="user")

    assert first.path == where["project"]
    assert [space.label for _, space in first.shadows] == ["user", "system:acme"]
    assert user.path == where["user"]
    assert user.shadowed_by[0][0] == where["project"]
    assert [space.label for _, space in user.shadows] == ["system:acme"]
    with pytest.raises(ItemNotFound):
        await fetch(workspace, "knowledge:other", source="system")


async def test_what_does_not_verify_is_neither_read_nor_copied(workspace):
    path = workspace.write("knowledge/k.md", "secret\n")
    path.write_text(path.read_text() + "changed")
    workspace.write("knowledge/unsigned.md", "x", sign=False)

    with pytest.raises(ContentChanged) as refused:
        await fetch(workspace, "knowledge:k", destination="user")
    assert refused.value.to_dict()["error_type"] == "integrity"
    assert refused.value.to_dict()["item_id"] == "knowledge:k"
    with pytest.raises(UnsignedItem):
        await fetch(workspace, "knowledge:unsigned")
    assert not workspace.path("knowledge", "user").exists()


async def test_a_copy_keeps_its_bytes_its_place_and_its_signature(workspace):
    ref = workspace.shell("a/b/t", "echo hi")
    workspace.write("config/c.json", '{"a": 1}')

    for one in (ref, "config:c"):
        document = (await fetch(workspace, one, destination="user")).to_dict()
        copy = await fetch(workspace, one, source="user")
        assert document["copied_to"] == "user"
        assert document["destination_path"] == str(copy.path)
        assert document["destination_verified"] is True
        assert copy.path.read_bytes() == (await fetch(workspace, one)).path.read_bytes()
    assert workspace.path("config/c.json.sig", "user").is_file()


async def test_a_copy_never_replaces_another_file_unless_told_to(workspace):
    workspace.write("knowledge/k.md", "mine\n")
    there = workspace.write("knowledge/k.md", "other\n", space="user")
    before = there.read_bytes()

    with pytest.raises(InputError, match="another file"):
        await fetch(workspace, "knowledge:k", destination="user")
    assert there.read_bytes() == before
    await fetch(workspace, "knowledge:k", destination="user", overwrite=True)
    assert "mine" in there.read_text()
    again = await fetch(workspace, "knowledge:k", destination="user")
    assert again.copied is not None
    assert os.listdir(there.parent) == ["k.md"]


async def test_a_copy_that_would_make_the_id_ambiguous_is_refused(workspace):
    workspace.write("knowledge/k.md", "mine\n")
    workspace.write("knowledge/k.yaml", "a: 1\n", space="user")
    with pytest.raises(InputError, match="ambiguous"):
        await fetch(workspace, "knowledge:k", destination="user", overwrite=True)


async def test_a_copy_stays_inside_its_kinds_folder(workspace, tmp_path):
    workspace.write("knowledge/a/k.md", "x\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    workspace.path("knowledge", "user").mkdir(parents=True)
    workspace.path("knowledge/a", "user").symlink_to(outside)
    with pytest.raises((LinkLeavesSpace, InvalidItemId), match="link"):
        await fetch(workspace, "knowledge:a/k", destination="user", overwrite=True)
    assert os.listdir(outside) == []


async def test_a_copy_that_is_not_trusted_where_it_lands_says_so(workspace):
    stranger = SigningKey.generate()
    workspace.write("knowledge/k.md", "x\n", space="system", key=stranger)
    with pytest.raises(IntegrityError):
        await fetch(workspace, "knowledge:k", destination="project")
    document = (
        await fetch(workspace, "tool:rye/bash", source="system", destination="project")
    ).to_dict()
    assert document["destination_verified"] is False
    assert "not trusted" in document["warnings"][0]


async def test_a_folder_that_cannot_be_written_is_a_clear_error(workspace):
    workspace.write("knowledge/k.md", "x\n")
    workspace.path("knowledge", "user").write_text("a file, no folder")
    with pytest.raises(ItemError, match="can't be written"):
        await fetch(workspace, "knowledge:k", destination="user")


@pytest.mark.parametrize(
    ("ref", "options"),
    [
        ("", {}),
        (None, {}),
        (7, {}),
        ("k", {}),
        ("banana:k", {}),
        ("knowledge:../k", {}),
        ("knowledge:k", {"source": "moon"}),
        ("knowledge:k", {"source": ["project"]}),
        ("knowledge:k", {"destination": "system"}),
        ("knowledge:k", {"destination": "project"}),
        ("knowledge:none", {}),
    ],
    ids=repr,
)
async def test_bad_input_is_refused_with_a_next_step(workspace, ref, options):
    workspace.write("knowledge/k.md", "x\n")
    with pytest.raises((InputError, ItemError)) as refused:
        await fetch(workspace, ref, **options)
    assert refused.value.next_step


async def test_two_files_of_one_id_are_ambiguous(workspace):
    workspace.write("knowledge/k.md", "x\n")
    workspace.write("knowledge/k.yaml", "a: 1\n")
    with pytest.raises(AmbiguousItem):
        await fetch(workspace, "knowledge:k")


async def test_a_model_needs_the_capability_and_learns_nothing_without_it(workspace):
    workspace.write("knowledge/a/k.md", "x\n")
    granted = await fetch(workspace, "knowledge:a/k", ctx=model("rye.fetch.knowledge.a.*"))
    assert granted.path.exists()
    for name in ("k", "nothing"):
        with pytest.raises(InputError, match=r"capability rye\.fetch\.knowledge\.a\."):
            await fetch(workspace, f"knowledge:a/{name}", ctx=model("rye.execute.*"))


async def test_a_copy_for_a_model_needs_the_hosts_approval_of_exactly_that(workspace):
    workspace.write("knowledge/k.md", "one line\n")
    asked = []

    async def answer(request):
        asked.append(request)
        return len(asked) > 1

    wish = {"destination": "user", "ctx": model("rye.fetch.*")}
    with pytest.raises(NotApproved, match="no approval callback"):
        await fetch(workspace, "knowledge:k", **wish)
    with pytest.raises(NotApproved, match="refused"):
        await fetch(workspace, "knowledge:k", approve=answer, **wish)
    assert not workspace.path("knowledge/k.md", "user").exists()
    done = await fetch(workspace, "knowledge:k", approve=answer, **wish)

    (file,) = asked[1].files
    assert (asked[1].action, asked[1].space) == ("copy", "user")
    assert asked[1].call_id == wish["ctx"].call_id
    assert (file.item_id, file.state) == ("knowledge:k.md", "new")
    assert file.path == done.copied.path
    assert file.content_hash == done.item.integrity
    assert "one line" in file.preview


async def test_an_item_shows_itself_in_a_notebook(workspace):
    workspace.write("knowledge/a/k.md", "# Tides\n" + "<b>high</b>\n" * 50)
    fetched = await fetch(workspace, "knowledge:a/k")
    assert repr(fetched) == "FetchedItem('knowledge:a/k', project)"
    assert "<b>high</b>" in str(fetched)
    assert "12 more lines" in str(fetched)
    assert "&lt;b&gt;high" in fetched._repr_html_()
