"""Documents signed as records: nobody takes one for another, and none follows a link."""

from pathlib import Path

import pytest

from ryecore import SigningKey
from ryecore.errors import LinkLeavesSpace, StateError
from ryecore.items.files import write_atomically
from ryecore.state.exports import (
    CAPABILITIES_FILE,
    CAPABILITIES_KIND,
    EXPORT_KIND,
    ExportFolder,
    document_holds,
    export_path,
    sign_document,
    write_capabilities,
)

KEY = SigningKey.generate()
THREAD = "acme/research-1739820456"


def test_an_export_is_attested_by_the_run_key_as_what_it_is_and_of_whom(tmp_path: Path) -> None:
    ExportFolder(tmp_path, "process").write(THREAD, "Hello.\n", KEY)
    content = export_path(tmp_path, THREAD).read_bytes()
    assert document_holds(EXPORT_KIND, THREAD, content, KEY.public)
    path = export_path(tmp_path, THREAD)
    assert path == tmp_path / "knowledge/agent/threads" / f"{THREAD}.md"
    assert path.stat().st_mode & 0o777 == 0o600
    assert not document_holds(CAPABILITIES_KIND, THREAD, content, KEY.public)
    assert not document_holds(EXPORT_KIND, "acme/other-1", content, KEY.public)
    assert not document_holds(EXPORT_KIND, THREAD, content, SigningKey.generate().public)
    assert not document_holds(EXPORT_KIND, THREAD, b"Hello.\n", KEY.public)
    for offset in range(len(content)):
        altered = bytearray(content)
        altered[offset] ^= 1
        assert not document_holds(EXPORT_KIND, THREAD, bytes(altered), KEY.public), offset
    assert document_holds("x", THREAD, sign_document("x", THREAD, "", KEY), KEY.public)


def test_an_export_replaces_the_one_before_and_follows_no_link(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    exports = ExportFolder(project, "process")
    exports.write(THREAD, "One.\n", KEY)
    exports.write(THREAD, "Two.\n", KEY)
    path = export_path(project, THREAD)
    assert path.read_text().endswith("Two.\n")
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    path.unlink()
    victim = elsewhere / "victim"
    write_atomically(victim, b"mine")
    path.symlink_to(victim)
    exports.write(THREAD, "Three.\n", KEY)
    assert victim.read_bytes() == b"mine"
    (project / "knowledge/agent/threads/more").symlink_to(elsewhere)
    with pytest.raises(LinkLeavesSpace):
        exports.write("more/research-1", "Four.\n", KEY)
    assert [file.name for file in elsewhere.iterdir()] == ["victim"]
    (project / "knowledge/agent/threads/plain").write_text("")
    with pytest.raises(StateError, match="can't be written"):
        exports.write("plain/research-1", "Five.\n", KEY)
    assert export_path(project, "a/b-1").name == "b-1.md"


def test_a_folder_that_became_a_link_is_not_written_to(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    exports, path = ExportFolder(project, "process"), export_path(project, THREAD)
    for _ in range(2):
        exports.write(THREAD, "One.\n", KEY)
    folder = path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(elsewhere)
    with pytest.raises(LinkLeavesSpace):
        exports.write(THREAD, "Two.\n", KEY)
    assert not list(elsewhere.iterdir())
    path.parent.unlink()
    exports.write(THREAD, "Three.\n", KEY)
    assert path.read_text().endswith("Three.\n")
    assert (folder / path.name).read_text().endswith("One.\n")


def test_git_ignores_exports_whatever_becomes_of_the_file_that_says_so(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    exports, ignore = (
        ExportFolder(project, "process"),
        project / "knowledge/agent/threads/.gitignore",
    )
    exports.write(THREAD, "One.\n", KEY)
    elsewhere.write_bytes(b"mine")

    def link() -> None:
        ignore.unlink()
        ignore.symlink_to(elsewhere)

    for change in (ignore.unlink, lambda: ignore.write_bytes(b"!*"), link):
        assert ignore.read_bytes() == b"*\n"
        change()
        exports.write(THREAD, "Two.\n", KEY)
    assert ignore.read_bytes() == b"*\n"
    assert not ignore.is_symlink()
    assert elsewhere.read_bytes() == b"mine"


def test_capabilities_are_attested_as_those_of_their_thread(tmp_path: Path) -> None:
    write_capabilities(tmp_path, THREAD, "Nothing.\n", KEY)
    content = (tmp_path / CAPABILITIES_FILE).read_bytes()
    assert document_holds(CAPABILITIES_KIND, THREAD, content, KEY.public)
    assert not document_holds(EXPORT_KIND, THREAD, content, KEY.public)
    with pytest.raises(StateError, match="can't be written"):
        write_capabilities(tmp_path / "missing", THREAD, "", KEY)
