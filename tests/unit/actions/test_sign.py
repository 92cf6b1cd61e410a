"""Signing and verifying, for the person whose key it is."""

import pytest

from ryecore import CallContext, Rye
from ryecore.errors import (
    AmbiguousItem,
    ContentChanged,
    InputError,
    InvalidItemId,
    ItemNotFound,
    RyeError,
    SigningError,
    UnsignedItem,
)

TOOL = "# __executor_id__ = 'rye/core/runtimes/bash/bash'\necho signed\n"


@pytest.fixture
def rye(workspace):
    with workspace.sync() as opened:
        yield opened


def test_one_item_is_signed_by_its_ref_and_runs_then(workspace, rye):
    workspace.write("tools/a/t.sh", TOOL, sign=False)
    with pytest.raises(UnsignedItem, match="rye sign tool:a/t"):
        rye.execute("tool:a/t")
    report = rye.sign("tool:a/t")
    assert [one.relative for one in report.signed] == ["a/t.sh"]
    assert rye.execute("tool:a/t").data["stdout"] == "signed\n"


def test_the_error_names_the_very_command_that_mends_it(workspace, rye):
    workspace.write("tools/a/t.sh", TOOL, sign=False, space="user")
    with pytest.raises(UnsignedItem, match="rye sign tool:a/t --user"):
        rye.execute("tool:a/t")
    rye.sign("tool:a/t", space="user")
    assert rye.execute("tool:a/t").success


@pytest.mark.parametrize("pattern", ["tool:a/t.sh", "path"])
def test_one_item_is_signed_by_its_file(workspace, rye, pattern):
    path = workspace.write("tools/a/t.sh", TOOL, sign=False)
    rye.sign(str(path) if pattern == "path" else pattern)
    assert rye.verify(str(path)).is_verified
    assert rye.verify("tool:a/t.sh").is_verified
    assert rye.verify("tool:a/t").is_verified
    assert rye.verify("a/t").is_verified


def test_a_glob_recurses_and_takes_libraries_and_empty_files(workspace, rye):
    for name in ("a/t.sh", "a/lib/__init__.py", "a/lib/deep/x.py", "b/other.sh"):
        workspace.write(f"tools/{name}", "" if name.endswith(".py") else TOOL, sign=False)
    report = rye.sign("tool:a/*")
    assert sorted(one.relative for one in report.signed) == [
        "a/lib/__init__.py",
        "a/lib/deep/x.py",
        "a/t.sh",
    ]
    assert report.to_dict()["total"] == 3
    with pytest.raises(UnsignedItem):
        rye.verify("tool:b/other")


def test_a_glob_signs_what_it_can_and_reports_the_rest(workspace, rye):
    workspace.write("tools/a/fine.sh", TOOL, sign=False)
    bom = workspace.write("tools/a/bom.sh", b"\xef\xbb\xbf" + TOOL.encode(), sign=False)
    report = rye.sign("tool:a/*")
    assert [one.relative for one in report.signed] == ["a/fine.sh"]
    assert report.failed[0][0] == bom
    assert report.to_dict()["status"] == "error"
    assert str(bom) in report.to_dict()["failed"][0]["path"]
    with pytest.raises(SigningError, match="byte order mark"):
        rye.sign("tool:a/bom")


@pytest.mark.parametrize("pattern", ["tool:a/nowhere", "tool:a/*", "nonsense", "banana:a", ""])
def test_what_matches_nothing_is_an_error(rye, pattern):
    with pytest.raises(ItemNotFound):
        rye.sign(pattern)


def test_an_id_of_two_files_is_not_guessed(workspace, rye):
    workspace.write("tools/a/t.sh", TOOL, sign=False)
    workspace.write("tools/a/t.py", "", sign=False)
    with pytest.raises((AmbiguousItem, RyeError)):
        rye.verify("tool:a/t")
    with pytest.raises(AmbiguousItem):
        rye.sign("tool:a/t")


@pytest.mark.parametrize("granted", [frozenset(), frozenset({"rye.sign.tool.a.t", "*"})])
def test_a_model_cannot_sign(workspace, granted):
    path = workspace.write("tools/a/t.sh", TOOL, sign=False)
    with pytest.raises(InputError, match="not for a model"):
        workspace.open().sign("tool:a/t", ctx=CallContext(capabilities=granted))
    assert path.read_text() == TOOL


def test_without_a_key_the_error_says_how_to_make_one(workspace, rye):
    workspace.write("tools/a/t.sh", TOOL, sign=False)
    (workspace.keys.folder / "private_key.pem").unlink()
    with pytest.raises(SigningError, match="rye keys generate"):
        rye.sign("tool:a/t")


def test_verifying_says_who_signed_and_what(workspace, rye):
    path = workspace.write("tools/a/t.sh", TOOL)
    item = rye.verify("tool:a/t")
    assert item.fingerprint == workspace.key.public.fingerprint
    assert len(item.integrity) == 64
    path.write_text(path.read_text() + "more\n")
    with pytest.raises(ContentChanged) as refusal:
        rye.verify("tool:a/t")
    assert refusal.value.item_id == "tool:a/t"


def test_verifying_an_item_of_system_space_works_too(rye):
    assert rye.verify("tool:rye/core/runtimes/bash/bash").source.space.name == "system"


@pytest.mark.parametrize("ref", ["tool:../x", "tool:a/../../config/x.yaml", "tool:a\0.sh"])
def test_verifying_never_leaves_the_kinds_folder(workspace, rye, ref):
    workspace.write("config/x.yaml", {"a": 1})
    with pytest.raises((InvalidItemId, ItemNotFound)):
        rye.verify(ref)


@pytest.mark.parametrize("ref", ["", "x" * 5000, "tool:" + "x" * 5000 + ".sh", "a\0b", "~nobody"])
def test_nonsense_is_one_clear_error(rye, ref):
    for verb in (rye.verify, rye.sign):
        with pytest.raises(RyeError):
            verb(ref)


def test_a_path_that_goes_up_and_down_again_names_the_same_file(workspace, monkeypatch):
    path = workspace.write("tools/a/t.sh", TOOL, sign=False)
    monkeypatch.chdir(path.parent)
    rye = workspace.open()
    assert rye.sign("../a/t.sh").signed[0].relative == "a/t.sh"
    assert rye.verify("../../tools/a/t.sh").is_verified
    assert Rye.open("../../..").project == workspace.project


def test_a_report_prints_short_and_draws_itself_in_a_notebook(workspace, rye):
    path = workspace.write("tools/a/t.sh", TOOL, sign=False)
    workspace.write("tools/a/broken.yaml", "version: [", sign=False)
    report = rye.sign("tool:a/*")
    lines = str(report).splitlines()
    assert lines[2] == f"✓ tool:a/t.sh  {path}"
    assert lines[1].startswith("  ! signed, but won't run: ")
    assert lines[3] == f"2 of 2 signed with the key {report.signed[0].signature.fingerprint}"
    assert "tool:a/t.sh" in report._repr_html_()
    assert repr(report) == "SignReport(2 signed, 0 failed)"
    (warning,) = report.to_dict()["warnings"]
    assert "broken.yaml is signed, but won't run: " in warning


def test_what_was_verified_prints_and_draws_its_verdict(workspace, rye):
    path = workspace.write("tools/a/t.sh", TOOL)
    workspace.write("tools/a/unsigned.sh", TOOL, sign=False)
    report = rye.verify_all("tool:a/*")
    assert str(report).splitlines()[0] == f"✓ tool:a/t  verified  {path}"
    assert "  next: " in str(report)
    assert "1 of 2 verified" in report._repr_html_()
    assert repr(report) == "VerifyReport(1 verified, 1 failed)"
    item = rye.verify("tool:a/t")
    assert str(item).splitlines()[1] == f"  file  {path}"
    assert item.integrity in item._repr_html_()
