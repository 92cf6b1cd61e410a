import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ryecore.display.sanitize import is_visible
from ryecore.errors import (
    AmbiguousItem,
    BadSignature,
    ContentChanged,
    InputError,
    ItemNotFound,
    LinkLeavesSpace,
    SigningError,
    UnsignedItem,
)
from ryecore.items.signature import split_content
from ryecore.items.signing import find_files, sign_item
from ryecore.items.spaces import Spaces
from ryecore.lillux.keys import SigningKey
from ryecore.policy import CallContext
from tests.unit.items.helpers import PYTHON_TOOL, verify
from tests.workspace import Workspace


def put(
    workspace: Workspace, name: str, content: bytes = PYTHON_TOOL, space: str = "project"
) -> Path:
    return workspace.write(name, content, space=space, sign=False)  # type: ignore[arg-type]


def signed_by(workspace: Workspace, pattern: str) -> list[str]:
    return [one.relative for one in workspace.open().sign(pattern).signed]


def test_signing_an_item_says_what_was_signed(workspace: Workspace, spaces: Spaces) -> None:
    path = put(workspace, "tools/acme/x.py")
    report = workspace.open().sign("tool:acme/x")
    [one] = report.signed
    assert (one.kind, one.relative, one.path) == ("tool", "acme/x.py", path)
    assert one.signature.fingerprint == workspace.key.public.fingerprint
    assert report.to_dict()["status"] == "success"
    assert report.to_dict()["total"] == 1
    assert verify(spaces, path).integrity == one.signature.content_hash


@pytest.mark.parametrize(
    "pattern", ["tool:acme/x", "tool:acme/x.py", ".ai/tools/acme/x.py", "the absolute path"]
)
def test_an_item_is_named_by_ref_or_by_file(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    path = put(workspace, "tools/acme/x.py")
    monkeypatch.chdir(workspace.project)
    assert signed_by(workspace, str(path) if pattern.startswith("the") else pattern) == [
        "acme/x.py"
    ]


def test_user_space_is_signed_on_request(workspace: Workspace, spaces: Spaces) -> None:
    path = put(workspace, "tools/acme/x.py", space="user")
    with pytest.raises(ItemNotFound):
        workspace.open().sign("tool:acme/x")
    workspace.open().sign("tool:acme/x", space="user")
    assert verify(spaces, path).is_verified


def test_a_glob_recurses_and_takes_libraries_and_empty_files(
    workspace: Workspace, spaces: Spaces
) -> None:
    names = [
        *("acme/__init__.py", "acme/data.json", "acme/lib/__init__.py", "acme/lib/deep/er.py"),
        *("acme/lib/native.so", "acme/tool.sh", "acme/notes.txt"),
    ]
    for name in names:
        put(workspace, f"tools/{name}", b"" if name.endswith("__init__.py") else b"# x\n")
    put(workspace, "tools/other/y.py")
    assert signed_by(workspace, "tool:acme/*") == sorted(names)
    for name in names:
        assert verify(spaces, workspace.path(f"tools/{name}")).is_verified
    with pytest.raises(UnsignedItem):
        verify(spaces, workspace.path("tools/other/y.py"))


def test_a_glob_leaves_out_caches_package_folders_and_sidecars(workspace: Workspace) -> None:
    put(workspace, "tools/acme/x.json", b"{}")
    for folder in ("__pycache__", ".venv", "venv", "node_modules", ".git"):
        put(workspace, f"tools/acme/{folder}/y.py")
    assert signed_by(workspace, "tool:*") == ["acme/x.json"]
    assert signed_by(workspace, "tool:*") == ["acme/x.json"], "its sidecar is no item"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("tool:*", ["a/b/c.py", "a/d.sh", "e.py"]),
        ("tool:a/*", ["a/b/c.py", "a/d.sh"]),
        ("tool:*.py", ["a/b/c.py", "e.py"]),
        ("tool:?.py", ["e.py"]),
        ("tool:a/[bd]*", ["a/b/c.py", "a/d.sh"]),
    ],
)
def test_what_a_glob_matches(workspace: Workspace, pattern: str, expected: list[str]) -> None:
    for name in ("a/b/c.py", "a/d.sh", "e.py"):
        put(workspace, f"tools/{name}")
    assert signed_by(workspace, pattern) == expected


def test_a_glob_never_signs_key_files(workspace: Workspace) -> None:
    """Whoever signs a key file trusts its key; that is not done by the way."""
    planted = put(workspace, "config/keys/trusted/0123456789abcdef.toml", b"x = 1\n")
    put(workspace, "config/agent/agent.yaml", b"x: 1\n")
    assert signed_by(workspace, "config:*") == ["agent/agent.yaml"]
    with pytest.raises(ItemNotFound):
        workspace.open().sign("config:keys/*")
    assert planted.read_bytes() == b"x = 1\n"


def test_a_key_file_is_signed_only_by_its_name(workspace: Workspace) -> None:
    put(workspace, "config/keys/trusted/0123456789abcdef.toml", b"x = 1\n")
    name = "keys/trusted/0123456789abcdef"
    assert signed_by(workspace, f"config:{name}") == [f"{name}.toml"]


def test_the_signing_key_itself_is_never_touched(workspace: Workspace) -> None:
    private = workspace.keys.folder / "private_key.pem"
    before = private.read_bytes()
    with pytest.raises(ItemNotFound):
        workspace.open().sign("config:*", space="user")
    assert private.read_bytes() == before
    assert not private.with_name("private_key.pem.sig").exists()


def test_what_cannot_be_signed_is_reported_and_the_rest_is_signed(
    workspace: Workspace, spaces: Spaces
) -> None:
    good = put(workspace, "tools/acme/good.py")
    bom = put(workspace, "tools/acme/bom.py", b"\xef\xbb\xbfx = 1\n")
    fifo = workspace.path("tools/acme/fifo.py")
    os.mkfifo(fifo)
    outside = workspace.root / "outside.py"
    outside.write_bytes(b"mine")
    link = workspace.path("tools/acme/link.py")
    link.symlink_to(outside)
    report = workspace.open().sign("tool:acme/*")
    assert [one.path for one in report.signed] == [good]
    failed = dict(report.failed)
    assert set(failed) == {bom, fifo, link}
    assert "byte order mark" in failed[bom]
    assert "plain file" in failed[fifo]
    assert "link that leaves" in failed[link]
    assert report.to_dict()["status"] == "error"
    assert report.to_dict()["total"] == 4
    assert verify(spaces, good).is_verified
    assert outside.read_bytes() == b"mine"


def test_one_item_that_cannot_be_signed_is_an_error(workspace: Workspace) -> None:
    put(workspace, "tools/acme/bom.py", b"\xef\xbb\xbfx = 1\n")
    with pytest.raises(SigningError, match="byte order mark"):
        workspace.open().sign("tool:acme/bom")


def test_a_sidecar_that_is_a_link_out_is_not_written_through(workspace: Workspace) -> None:
    path = put(workspace, "tools/acme/x.json", b"{}")
    precious = workspace.root / "precious"
    precious.write_bytes(b"mine")
    path.with_name("x.json.sig").symlink_to(precious)
    with pytest.raises(LinkLeavesSpace) as refused:
        workspace.open().sign("tool:acme/x")
    assert (refused.value.path.name, refused.value.leads_to) == ("x.json.sig", precious)
    assert "Put the file or folder itself" in refused.value.next_step
    assert precious.read_bytes() == b"mine"


def test_a_file_behind_a_linked_folder_is_not_signed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = workspace.root / "outside"
    outside.mkdir()
    (outside / "x.py").write_bytes(b"mine")
    workspace.path("tools").mkdir(parents=True)
    workspace.path("tools/acme").symlink_to(outside)
    with pytest.raises(ItemNotFound):
        workspace.open().sign("tool:*")
    with pytest.raises(LinkLeavesSpace):
        workspace.open().sign(str(workspace.path("tools/acme/x.py")))
    assert (outside / "x.py").read_bytes() == b"mine"


def test_a_link_within_the_folder_becomes_a_file_of_its_own(
    workspace: Workspace, spaces: Spaces
) -> None:
    target = put(workspace, "tools/acme/x.py")
    link = target.with_name("y.py")
    link.symlink_to("x.py")
    assert signed_by(workspace, "tool:acme/*") == ["acme/x.py", "acme/y.py"]
    assert verify(spaces, target).is_verified
    assert verify(spaces, link).is_verified


@pytest.mark.parametrize("linked", ["", "tools"])
def test_a_user_space_of_links_is_the_users_own_and_signed(
    workspace: Workspace, spaces: Spaces, linked: str
) -> None:
    path = put(workspace, "tools/acme/x.py", space="user")
    folder = Path(str(workspace.path(linked, "user")).rstrip("/"))
    folder.rename(workspace.root / "dotfiles")
    folder.symlink_to(workspace.root / "dotfiles")
    report = workspace.open().sign("tool:*", space="user")
    assert [one.relative for one in report.signed] == ["acme/x.py"]
    assert verify(spaces, path).is_verified


@pytest.mark.parametrize("linked", ["", "tools", "tools/acme"])
def test_no_glob_is_signed_through_a_link_that_leaves_the_project(
    workspace: Workspace, linked: str
) -> None:
    mine = put(workspace, "tools/acme/x.py", space="user")
    workspace.path(linked).parent.mkdir(parents=True, exist_ok=True)
    Path(str(workspace.path(linked)).rstrip("/")).symlink_to(workspace.path(linked, "user"))
    with pytest.raises((LinkLeavesSpace, ItemNotFound)):
        workspace.open().sign("tool:*")
    with pytest.raises(LinkLeavesSpace):
        workspace.open().sign(str(workspace.path("tools/acme/x.py")))
    assert mine.read_bytes() == PYTHON_TOOL


@pytest.mark.parametrize(
    "name",
    [
        "x\n- tool:ok.py",
        "x\u202eyp.exe",
        "x\u200b",
        "x\u2028",
        "\x1b[2J",
        "x\u3164",
        "x\ufe0f",
        "x\u2800",
    ],
)
def test_a_name_that_shows_as_something_else_is_not_signed(workspace: Workspace, name: str) -> None:
    path = put(workspace, f"tools/acme/{name}.py")
    with pytest.raises(SigningError, match="bidirectional") as refused:
        workspace.open().sign("tool:acme/*")
    assert all(map(is_visible, str(refused.value)))
    assert path.read_bytes() == PYTHON_TOOL


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o755, 0o400, 0o700])
def test_a_file_keeps_its_mode(workspace: Workspace, mode: int) -> None:
    path = put(workspace, "tools/acme/x.sh", b"#!/bin/sh\n")
    path.chmod(mode)
    workspace.open().sign("tool:acme/x")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert b"rye:signed:" in path.read_bytes()


def test_nothing_of_the_work_stays_behind(workspace: Workspace) -> None:
    put(workspace, "tools/acme/x.py")
    put(workspace, "tools/acme/y.json", b"{}")
    workspace.open().sign("tool:*")
    assert sorted(os.listdir(workspace.path("tools/acme"))) == ["x.py", "y.json", "y.json.sig"]


def test_what_a_killed_signer_left_is_not_signed(workspace: Workspace) -> None:
    put(workspace, "tools/acme/x.py")
    dies_while_it_writes = (
        "import os, pathlib, signal, sys\n"
        "from ryecore.items.files import write_atomically\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(pathlib.Path(sys.argv[1]), b'half of it')\n"
    )
    path = workspace.path("tools/acme/x.py")
    subprocess.run([sys.executable, "-c", dies_while_it_writes, str(path)], check=False)
    assert len(list(path.parent.iterdir())) == 2, "the killed writer left its temporary file"
    assert signed_by(workspace, "tool:acme/*") == ["acme/x.py"]


def test_a_folder_that_cannot_be_searched_is_said(workspace: Workspace) -> None:
    workspace.path("tools").parent.mkdir(parents=True)
    workspace.path("tools").symlink_to("tools")  # a link to itself
    with pytest.raises(SigningError, match="can't be searched"):
        workspace.open().sign("tool:acme/*")


def test_signing_again_replaces_the_line(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    path.write_bytes(path.read_bytes().replace(b"hello", b"goodbye"))
    with pytest.raises(ContentChanged):
        verify(spaces, path)
    workspace.open().sign("tool:acme/x")
    assert path.read_bytes().count(b"rye:signed:") == 1
    assert verify(spaces, path).is_verified


def test_another_key_replaces_the_line_too(workspace: Workspace) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL)
    other = SigningKey.generate()
    sign_item(path, other)
    assert path.read_bytes().count(b"rye:signed:") == 1
    assert other.public.fingerprint.encode() in path.read_bytes()


@pytest.mark.parametrize("pattern", ["acme/x", "thing:x", "tool:", "", "tool", ":x"])
def test_what_names_nothing_is_refused(workspace: Workspace, spaces: Spaces, pattern: str) -> None:
    with pytest.raises(ItemNotFound, match="names no items") as refused:
        find_files(spaces.project, pattern)
    assert "tool:acme/name" in refused.value.next_step


def test_what_matches_nothing_is_said_with_where_was_looked(workspace: Workspace) -> None:
    for pattern in ("tool:acme/x", "tool:acme/*", "config:*"):
        with pytest.raises(ItemNotFound, match="matches no file in project space") as refused:
            workspace.open().sign(pattern)
        assert str(workspace.project) in refused.value.next_step


def test_a_misspelt_id_is_said_with_those_that_come_near(workspace: Workspace) -> None:
    put(workspace, "tools/acme/report.py")
    for name in ("acme/reprot", "acme/reprot.py"):
        with pytest.raises(ItemNotFound) as refused:
            workspace.open().sign(f"tool:{name}")
        assert refused.value.next_step == "Did you mean tool:acme/report?"
    with pytest.raises(ItemNotFound) as refused:
        workspace.open().sign("tool:acme/reprot*")
    assert "Did you mean" not in refused.value.next_step


def test_a_glob_matches_with_the_extension_and_without(workspace: Workspace) -> None:
    for name in ("acme/report.py", "acme/sub/report.sh", "acme/reports.py"):
        put(workspace, f"tools/{name}")
    assert signed_by(workspace, "tool:*/report") == ["acme/report.py", "acme/sub/report.sh"]
    assert signed_by(workspace, "tool:acme/repor?") == ["acme/report.py"]
    assert signed_by(workspace, "tool:*.sh") == ["acme/sub/report.sh"]
    assert signed_by(workspace, "tool:acme/report*") == [
        "acme/report.py",
        "acme/reports.py",
    ]


def test_what_matches_nothing_but_another_kind_has_is_named(workspace: Workspace) -> None:
    put(workspace, "knowledge/acme/terms.md")
    for pattern in ("tool:acme/terms", "acme/terms"):
        with pytest.raises(ItemNotFound) as refused:
            workspace.open().sign(pattern)
        assert refused.value.next_step == "Did you mean knowledge:acme/terms?"


def test_two_files_of_one_stem_are_refused_and_the_next_step_works(workspace: Workspace) -> None:
    both = (put(workspace, "tools/acme/x.py"), put(workspace, "tools/acme/x.sh"))
    with pytest.raises(AmbiguousItem) as refused:
        workspace.open().sign("tool:acme/x")
    assert refused.value.candidates == tuple(map(str, both))
    assert "with its extension" in refused.value.next_step
    assert signed_by(workspace, "tool:acme/x.sh") == ["acme/x.sh"]


def test_a_library_beside_a_tool_of_its_stem_is_no_ambiguity(workspace: Workspace) -> None:
    put(workspace, "tools/acme/x.py")
    put(workspace, "tools/acme/x.so", b"\x7fELF")
    assert signed_by(workspace, "tool:acme/x") == ["acme/x.py"]


@pytest.mark.parametrize("name", ["../x.py", "tools/../../x.py", "x.py"])
def test_a_file_outside_a_kinds_folder_is_refused(workspace: Workspace, name: str) -> None:
    path = workspace.project / name
    (workspace.project / "tools").mkdir(exist_ok=True)
    path.write_bytes(b"x")
    with pytest.raises(ItemNotFound, match="below a kind's folder"):
        workspace.open().sign(str(path))
    assert path.read_bytes() == b"x"


def test_a_pattern_cannot_leave_its_folder(workspace: Workspace) -> None:
    (workspace.project / ".ai").mkdir()
    (workspace.project / ".ai/x.py").write_bytes(b"x")
    (workspace.project / ".ai/tools").mkdir()
    with pytest.raises(ItemNotFound):
        workspace.open().sign("tool:../x")
    with pytest.raises(ItemNotFound):
        workspace.open().sign("tool:../*")


def test_a_model_cannot_sign(workspace: Workspace) -> None:
    path = put(workspace, "tools/acme/x.py")
    for granted in (frozenset[str](), frozenset({"*"}), frozenset({"rye.sign.tool.acme.x"})):
        with pytest.raises(InputError, match="not for a model"):
            workspace.open().sign("tool:acme/x", ctx=CallContext(capabilities=granted))
    assert path.read_bytes() == PYTHON_TOOL


def test_without_a_key_nothing_is_signed(workspace: Workspace) -> None:
    path = put(workspace, "tools/acme/x.py")
    (workspace.keys.folder / "private_key.pem").unlink()
    with pytest.raises(SigningError, match="There is no signing key"):
        workspace.open().sign("tool:acme/x")
    assert path.read_bytes() == PYTHON_TOOL


def test_a_reader_sees_the_old_file_or_the_new_one(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.write("tools/acme/x.py", PYTHON_TOOL * 2000)
    expected = split_content(path.read_bytes(), None).before.partition(b"\n")[2]
    stop, seen = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            seen.append(path.read_bytes().partition(b"\n")[2] == expected)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20):
            workspace.sign(path)
    finally:
        stop.set()
        reader.join()
    assert seen
    assert all(seen)


def test_a_read_only_folder_is_said_and_the_file_stays(
    workspace: Workspace, small_disk: Path
) -> None:
    """A full disk stands for every reason not to write."""
    folder = small_disk / ".ai/tools"
    folder.mkdir(parents=True)
    path = folder / "x.py"
    path.write_bytes(b"# " + b"x" * 40_000)
    with pytest.raises(SigningError, match="No space left") as refused:
        sign_item(path, workspace.key)
    assert refused.value.next_step
    assert path.read_bytes() == b"# " + b"x" * 40_000
    assert os.listdir(folder) == ["x.py"]


def test_a_runtimes_file_type_is_signed_in_its_own_comment(
    workspace: Workspace, spaces: Spaces
) -> None:
    workspace.yaml("rye/core/runtimes/lua/lua", tool_type="runtime", file_types={".lua": "--"})
    path = put(workspace, "tools/acme/x.lua", b"#!/usr/bin/env lua\nprint(1)\n")
    workspace.open().sign("tool:acme/x.lua")
    assert path.read_bytes().splitlines()[1].startswith(b"-- rye:signed:")
    assert workspace.open().verify("tool:acme/x").is_verified
    moved = path.rename(path.with_name("y.lua"))
    with pytest.raises(BadSignature):
        workspace.open().verify("tool:acme/y")
    assert moved.exists()


def test_signing_again_removes_what_a_killed_signing_left(workspace: Workspace) -> None:
    path = workspace.path("tools/acme/tool.py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PYTHON_TOOL)
    workspace.open().sign("tool:acme/tool")
    old = path.with_name(".tool.py.0123456789ab")
    fresh, others = path.with_name(".tool.py.ba9876543210"), path.with_name(".x.py.0123456789ab")
    for one in (old, fresh, others):
        one.write_text("half")
    for one in (old, others):
        os.utime(one, (0, 0))
    workspace.open().sign("tool:acme/tool")
    assert not old.exists()
    assert fresh.exists(), "another process may be writing it"
    assert others.exists(), "it is another file's"
