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
    document_holds,
    export_path,
    sign_document,
    write_capabilities,
    write_export,
)

KEY = SigningKey.generate()
THREAD = "acme/research-1739820456"


def test_an_export_is_attested_by_the_run_key_as_what_it_is_and_of_whom(tmp_path: Path) -> None:
    content = write_export(tmp_path, THREAD, "Hello.\n", KEY, "process").read_bytes()
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
    write_export(project, THREAD, "One.\n", KEY, "process")
    path = write_export(project, THREAD, "Two.\n", KEY, "process")
    assert path.read_text().endswith("Two.\n")
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    path.unlink()
    victim = elsewhere / "victim"
    write_atomically(victim, b"mine")
    path.symlink_to(victim)
    write_export(project, THREAD, "Three.\n", KEY, "process")
    assert victim.read_bytes() == b"mine"
    (project / "knowledge/agent/threads/more").symlink_to(elsewhere)
    with pytest.raises(LinkLeavesSpace):
        write_export(project, "more/research-1", "Four.\n", KEY, "process")
    assert [file.name for file in elsewhere.iterdir()] == ["victim"]
    (project / "knowledge/agent/threads/plain").write_text("")
    with pytest.raises(StateError, match="can't be written"):
        write_export(project, "plain/research-1", "Five.\n", KEY, "process")
    assert export_path(project, "a/b-1").name == "b-1.md"


def test_capabilities_are_attested_as_those_of_their_thread(tmp_path: Path) -> None:
    write_capabilities(tmp_path, THREAD, "Nothing.\n", KEY, "process")
    content = (tmp_path / CAPABILITIES_FILE).read_bytes()
    assert document_holds(CAPABILITIES_KIND, THREAD, content, KEY.public)
    assert not document_holds(EXPORT_KIND, THREAD, content, KEY.public)
    with pytest.raises(StateError, match="can't be written"):
        write_capabilities(tmp_path / "missing", THREAD, "", KEY, "process")
