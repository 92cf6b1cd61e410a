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


async def fetch(house, ref, approve=None, **options):
    async with house.open(approve=approve) as rye:
        return await rye.fetch(ref, **options)


def model(*granted):
    return CallContext(capabilities=frozenset(granted))


async def test_an_item_of_each_kind_comes_with_its_text_and_what_it_says_of_itself(house):
    house.shell("a/t", "echo é", description="Says hello.", version="1.2.0")
    house.write("directives/a/d.md", "# Plan\n")
    house.write("knowledge/a/k.md", "---\ntitle: Tides\ntags: [sea]\n---\nHigh.\n")
    house.write("config/a/c.yaml", "a: 1\n")

    for kind, name, title in (
        ("tool", "t", "t"),
        ("directive", "d", "Plan"),
        ("knowledge", "k", "Tides"),
        ("config", "c", "c"),
    ):
        found = await fetch(house, f"{kind}:a/{name}")
        document = found.to_dict()
        assert document["content"] == found.path.read_text()
        assert "rye:signed:" in document["content"]
        assert document["status"] == "success"
        assert document["key_fp"] == house.key.public.fingerprint
        assert (document["type"], document["item_id"]) == (kind, f"{kind}:a/{name}")
        assert document["metadata"]["title"] == title
        assert document["source"] == "project"
        assert json.dumps(document)
    tool = (await fetch(house, "tool:a/t")).to_dict()
    assert tool["metadata"]["version"] == "1.2.0"
    assert tool["metadata"]["description"] == "Says hello."


async def test_a_file_that_is_no_text_comes_as_base64(house):
    house.write("knowledge/raw.md", b"\xff\xfe")
    document = (await fetch(house, "knowledge:raw")).to_dict()
    assert document["encoding"] == "base64"


async def test_each_space_can_be_asked_and_shadows_are_said(house):
    for space in ("project", "user", "system"):
        house.write("knowledge/k.md", f"in {space}\n", space=space)
    where = {space: house.path("knowledge/k.md", space) for space in ("project", "user")}

    first = await fetch(house, "knowledge:k")
    user = await fetch(house, "knowledge:k", source="user")

    assert first.path == where["project"]
    assert [space.label for _, space in first.shadows] == ["user", "system:acme"]
    assert user.path == where["user"]
    assert user.shadowed_by[0][0] == where["project"]
    assert [space.label for _, space in user.shadows] == ["system:acme"]
    with pytest.raises(ItemNotFound):
        await fetch(house, "knowledge:other", source="system")


async def test_what_does_not_verify_is_neither_read_nor_copied(house):
    path = house.write("knowledge/k.md", "secret\n")
    path.write_text(path.read_text() + "changed")
    house.write("knowledge/unsigned.md", "x", sign=False)

    with pytest.raises(ContentChanged) as refused:
        await fetch(house, "knowledge:k", destination="user")
    assert refused.value.to_dict()["error_type"] == "integrity"
    assert refused.value.to_dict()["item_id"] == "knowledge:k"
    with pytest.raises(UnsignedItem):
        await fetch(house, "knowledge:unsigned")
    assert not house.path("knowledge", "user").exists()


async def test_a_copy_keeps_its_bytes_its_place_and_its_signature(house):
    ref = house.shell("a/b/t", "echo hi")
    house.write("config/c.json", '{"a": 1}')

    for one in (ref, "config:c"):
        document = (await fetch(house, one, destination="user")).to_dict()
        copy = await fetch(house, one, source="user")
        assert document["copied_to"] == "user"
        assert document["destination_path"] == str(copy.path)
        assert document["destination_verified"] is True
        assert copy.path.read_bytes() == (await fetch(house, one)).path.read_bytes()
    assert house.path("config/c.json.sig", "user").is_file()


async def test_a_copy_never_replaces_another_file_unless_told_to(house):
    house.write("knowledge/k.md", "mine\n")
    there = house.write("knowledge/k.md", "other\n", space="user")
    before = there.read_bytes()

    with pytest.raises(InputError, match="another file"):
        await fetch(house, "knowledge:k", destination="user")
    assert there.read_bytes() == before
    await fetch(house, "knowledge:k", destination="user", overwrite=True)
    assert "mine" in there.read_text()
    again = await fetch(house, "knowledge:k", destination="user")
    assert again.copied is not None
    assert os.listdir(there.parent) == ["k.md"]


async def test_a_copy_that_would_make_the_id_ambiguous_is_refused(house):
    house.write("knowledge/k.md", "mine\n")
    house.write("knowledge/k.yaml", "a: 1\n", space="user")
    with pytest.raises(InputError, match="ambiguous"):
        await fetch(house, "knowledge:k", destination="user", overwrite=True)


async def test_a_copy_stays_inside_its_kinds_folder(house, tmp_path):
    house.write("knowledge/a/k.md", "x\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    house.path("knowledge", "user").mkdir(parents=True)
    house.path("knowledge/a", "user").symlink_to(outside)
    with pytest.raises((LinkLeavesSpace, InvalidItemId), match="link"):
        await fetch(house, "knowledge:a/k", destination="user", overwrite=True)
    assert os.listdir(outside) == []


async def test_a_copy_that_is_not_trusted_where_it_lands_says_so(house):
    stranger = SigningKey.generate()
    house.write("knowledge/k.md", "x\n", space="system", key=stranger)
    with pytest.raises(IntegrityError):
        await fetch(house, "knowledge:k", destination="project")
    document = (
        await fetch(house, "tool:rye/bash", source="system", destination="project")
    ).to_dict()
    assert document["destination_verified"] is False
    assert "not trusted" in document["warnings"][0]


async def test_a_folder_that_cannot_be_written_is_a_clear_error(house):
    house.write("knowledge/k.md", "x\n")
    house.path("knowledge", "user").write_text("a file, no folder")
    with pytest.raises(ItemError, match="can't be written"):
        await fetch(house, "knowledge:k", destination="user")


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
async def test_bad_input_is_refused_with_a_next_step(house, ref, options):
    house.write("knowledge/k.md", "x\n")
    with pytest.raises((InputError, ItemError)) as refused:
        await fetch(house, ref, **options)
    assert refused.value.next_step


async def test_two_files_of_one_id_are_ambiguous(house):
    house.write("knowledge/k.md", "x\n")
    house.write("knowledge/k.yaml", "a: 1\n")
    with pytest.raises(AmbiguousItem):
        await fetch(house, "knowledge:k")


async def test_a_model_needs_the_capability_and_learns_nothing_without_it(house):
    house.write("knowledge/a/k.md", "x\n")
    granted = await fetch(house, "knowledge:a/k", ctx=model("rye.fetch.knowledge.a.*"))
    assert granted.path.exists()
    for name in ("k", "nothing"):
        with pytest.raises(InputError, match=r"capability rye\.fetch\.knowledge\.a\."):
            await fetch(house, f"knowledge:a/{name}", ctx=model("rye.execute.*"))


async def test_a_copy_for_a_model_needs_the_hosts_approval_of_exactly_that(house):
    house.write("knowledge/k.md", "one line\n")
    asked = []

    async def answer(request):
        asked.append(request)
        return len(asked) > 1

    wish = {"destination": "user", "ctx": model("rye.fetch.*")}
    with pytest.raises(NotApproved, match="nobody is there"):
        await fetch(house, "knowledge:k", **wish)
    with pytest.raises(NotApproved, match="refused"):
        await fetch(house, "knowledge:k", approve=answer, **wish)
    assert not house.path("knowledge/k.md", "user").exists()
    done = await fetch(house, "knowledge:k", approve=answer, **wish)

    (file,) = asked[1].files
    assert (asked[1].action, asked[1].space) == ("copy", "user")
    assert asked[1].call_id == wish["ctx"].call_id
    assert (file.item_id, file.state) == ("knowledge:k.md", "new")
    assert file.path == done.copied.path
    assert file.content_hash == done.item.integrity
    assert "one line" in file.preview


async def test_an_item_shows_itself_in_a_notebook(house):
    house.write("knowledge/a/k.md", "# Tides\n" + "<b>high</b>\n" * 50)
    fetched = await fetch(house, "knowledge:a/k")
    assert repr(fetched) == "FetchedItem('knowledge:a/k', project)"
    assert "<b>high</b>" in str(fetched)
    assert "12 more lines" in str(fetched)
    assert "&lt;b&gt;high" in fetched._repr_html_()
