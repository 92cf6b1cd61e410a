"""Tests of spaces: files of their own, never through a link, removed whole."""

import hashlib
import os
from pathlib import Path

import pytest

from ryecore.node.content import CallerContent
from ryecore.node.problems import NodeProblem
from ryecore.node.spaces import RunSpace, make_space, remove_left_spaces, remove_space
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile


@pytest.fixture
def content(tmp_path: Path) -> CallerContent:
    return CallerContent(tmp_path / "data" / "caller")


def file(content: CallerContent, path: str, data: bytes = b"data", **more: bool) -> SnapshotFile:
    sha256 = content.put(data)
    return SnapshotFile("project", path, sha256, len(data), **more)


def made(content: CallerContent, *files: SnapshotFile) -> RunSpace:
    ordered = sorted(files, key=lambda one: (one.space, one.path))
    return make_space(Snapshot(tuple(ordered)), content, trust="caller")


def test_a_space_has_copies_that_its_runs_may_change(content: CallerContent) -> None:
    files = (file(content, "a/b/data.csv"), file(content, "run.sh", b"#!", executable=True))
    one, other = made(content, *files), made(content, *files)
    path = one.project / "a/b/data.csv"
    assert path.read_bytes() == b"data"
    assert path.stat().st_nlink == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert (one.project / "run.sh").stat().st_mode & 0o777 == 0o700
    path.write_bytes(b"changed")
    assert content.open(files[0].sha256).read() == b"data"
    assert (other.project / "a/b/data.csv").read_bytes() == b"data"
    assert (one.is_unchanged(), other.is_unchanged()) == (False, True)


@pytest.mark.parametrize(
    "path",
    [
        ".ai/state/keys/run_key.pem",
        ".ai/cache/sealed/x",
        ".ai/state",
        ".ai/config/keys/signing/private_key.pem",
    ],
)
def test_a_snapshot_brings_no_state_and_no_key_that_signs(
    content: CallerContent, path: str
) -> None:
    for space in ("project", "user"):
        one = SnapshotFile(space, path, content.put(b"x"), 1)  # type: ignore[arg-type]
        with pytest.raises(NodeProblem) as refused:
            made(content, one)
        assert refused.value.problem.type == "invalid"
    assert not list(content.folder.glob("spaces/*"))


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a//b", "a/../../b", "a\\b", "."])
def test_a_path_never_leaves_its_space(content: CallerContent, path: str) -> None:
    with pytest.raises(NodeProblem):
        made(content, file(content, path))


def test_an_object_that_the_disk_damaged_is_never_run(content: CallerContent) -> None:
    one = file(content, "tool.py", b"print(1)")
    path = Path(content.path_of(one.sha256))
    path.chmod(0o600)
    path.write_bytes(b"print(2)")
    used = content.used_bytes
    with pytest.raises(NodeProblem) as refused:
        made(content, one)
    assert refused.value.problem.type == "failed"
    assert not list(content.folder.glob("spaces/*"))
    assert content.used_bytes == used


def test_a_space_counts_for_the_quota_until_it_is_removed(content: CallerContent) -> None:
    one = file(content, "data", b"x" * 1000)
    used = content.used_bytes
    space = made(content, one)
    assert content.used_bytes == used + 4096
    content.max_bytes = used + 6000
    with pytest.raises(NodeProblem) as refused:
        made(content, one)
    assert refused.value.problem.type == "no_room"
    remove_space(space, content)
    assert content.used_bytes == used


def test_a_space_is_removed_whole_and_nothing_behind_its_links(
    content: CallerContent, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    space = made(content, file(content, "a/data"))
    (space.project / "link").symlink_to(outside)
    os.mkfifo(space.project / "fifo")
    (space.project / "a/data").chmod(0)
    (space.project / "a").chmod(0o500)
    remove_space(space, content)
    assert not space.folder.exists()
    assert (outside / "mine").read_text() == "mine"


def test_only_the_spaces_that_runs_use_outlive_a_restart(content: CallerContent) -> None:
    one = file(content, "data")
    kept, left = made(content, one), made(content, one)
    remove_left_spaces(content.folder.parent, {("caller", kept.folder.name)})
    assert kept.folder.exists()
    assert not left.folder.exists()


def test_a_change_in_each_place_is_seen(content: CallerContent) -> None:
    first = file(content, "a/data")
    for change in ("new", "a/new", ".ai/tools/new", ".ai/new", "sub/.ai/state/new"):
        space = made(content, first)
        path = space.project / change
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("new")
        assert not space.is_unchanged(), change
        changes = space.changes(space.stats(), content)
        assert [one.path for one in changes] == []  # as before these stats
        (new,) = space.changes({}, content)
        assert (new.path, new.base_sha256) == (change, None)
        assert new.sha256 == hashlib.sha256(b"new").hexdigest()
    for own in (".ai/state/threads/x", ".ai/cache/x"):
        space = made(content, first)
        (space.project / own).parent.mkdir(parents=True)
        (space.project / own).write_text("own")
        assert space.is_unchanged(), own
        assert space.changes({}, content) == ()
