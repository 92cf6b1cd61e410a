"""Verifying by glob."""

import pytest

from ryecore import CallContext
from ryecore.errors import (
    AmbiguousItem,
    ContentChanged,
    InputError,
    InvalidItemId,
    ItemNotFound,
)
from tests.workspace import Workspace


def test_a_glob_verifies_libraries_too_and_lists_what_does_not_hold(workspace: Workspace) -> None:
    workspace.shell("acme/good", "true")
    workspace.write("tools/acme/deep/lib.py", "x = 1\n")
    changed = workspace.write("tools/acme/changed.py", "x = 1\n")
    changed.write_text(changed.read_text() + "x = 2\n")
    report = workspace.open().verify_all("tool:acme/*")
    assert [item.source.relative for item in report.verified] == [
        "acme/deep/lib.py",
        "acme/good.sh",
    ]
    ((path, refusal),) = report.failed
    assert path == changed
    assert isinstance(refusal, ContentChanged)
    assert report.to_dict()["status"] == "error"
    assert report.to_dict()["total"] == 3


def test_the_user_space_is_looked_through_where_asked(workspace: Workspace) -> None:
    workspace.write("tools/mine.py", "", space="user")
    assert len(workspace.open().verify_all("tool:*", space="user").verified) == 1
    with pytest.raises(ItemNotFound):
        workspace.open().verify_all("tool:mine*")


def test_system_space_is_no_place_of_ones_own(workspace: Workspace) -> None:
    with pytest.raises(InputError, match="'system' space"):
        workspace.open().verify_all("tool:*", space="system")  # type: ignore[arg-type]


def test_a_bare_id_means_what_it_means_to_execute(workspace: Workspace) -> None:
    workspace.shell("acme/one", "true")
    workspace.write("directives/acme/one.md", "A directive.\n")
    workspace.write("directives/acme/two.md", "A directive.\n")
    rye = workspace.open()
    assert rye.verify("acme/two").source.ref.kind == "directive"
    assert rye.sign("acme/two").signed[0].kind == "directive"
    for call in (rye.verify, rye.sign):
        with pytest.raises(AmbiguousItem, match=r"both directive:acme/one and tool:acme/one"):
            call("acme/one")


@pytest.mark.anyio
async def test_a_caller_sees_only_what_its_capabilities_name(workspace: Workspace) -> None:
    ref = workspace.shell("acme/good", "true")
    weak = CallContext(capabilities=frozenset({"rye.fetch.tool.other.*"}))
    reader = CallContext(capabilities=frozenset({"rye.fetch.tool.acme.*"}))
    async with workspace.open() as rye:
        assert rye.verify(ref, ctx=reader).is_verified
        assert rye.verify_all("tool:acme/*", ctx=reader).verified
        for refused in (
            lambda: rye.verify(ref, ctx=weak),
            lambda: rye.verify_all("tool:acme/*", ctx=weak),
        ):
            with pytest.raises(InputError, match=r"rye\.fetch\.tool\.acme\.good"):
                refused()
        for inspect in (rye.trace, rye.schema):
            with pytest.raises(InputError, match=r"rye\.execute\.tool\.acme\.good") as refusal:
                await inspect(ref, ctx=reader)
            assert refusal.value.item_id == ref


@pytest.mark.parametrize("ref", ["tool:acme/there", "tool:acme/missing", "tool:acme/there.sh"])
def test_who_may_not_read_an_item_learns_nothing_of_it(workspace: Workspace, ref: str) -> None:
    workspace.shell("acme/there", "true")
    weak = CallContext(capabilities=frozenset({"rye.fetch.tool.other.*"}))
    with pytest.raises(InputError, match=r"lacks the capability rye\.fetch\.tool\.acme\."):
        workspace.open().verify(ref, ctx=weak)


def test_a_model_names_items_and_no_files(workspace: Workspace) -> None:
    workspace.shell("acme/there", "true")
    reader = CallContext(capabilities=frozenset({"rye.fetch.*"}))
    path = str(workspace.path("tools/acme/there.sh"))
    assert workspace.open().verify("tool:acme/there.sh", ctx=reader).is_verified
    with pytest.raises(InvalidItemId):
        workspace.open().verify(path, ctx=reader)
