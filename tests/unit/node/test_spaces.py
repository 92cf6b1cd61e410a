"""Tests of spaces: files of their own, never through a link, removed whole."""

import hashlib
import os
from pathlib import Path

import pytest

from ryecore.node.content import CallerContent
from ryecore.node.files import size_of_tree
from ryecore.node.problems import NodeProblem
from ryecore.node.spaces import RunSpace, make_space, remove_left_spaces, remove_space
from ryecore.remote.protocol.pieces import Piece
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
    used = content.quota.used_bytes
    with pytest.raises(NodeProblem) as refused:
        made(content, one)
    assert refused.value.problem.type == "failed"
    assert not list(content.folder.glob("spaces/*"))
    assert content.quota.used_bytes == used - 4096
    snapshot = Snapshot((one,))
    (missing,) = content.take(snapshot)
    assert content.snapshot(snapshot.id) is None
    content.store([Piece(missing.sha256, 8, 0, b"print(1)")])
    assert content.snapshot(snapshot.id) == snapshot


def test_a_snapshot_whose_object_was_removed_is_missing_from_then_on(
    content: CallerContent,
) -> None:
    one = file(content, "data")
    snapshot = Snapshot((one,))
    assert content.take(snapshot) == ()
    Path(content.path_of(one.sha256)).unlink()
    with pytest.raises(NodeProblem, match="gone from the node") as refused:
        made(content, one)
    assert "pushes it again" in refused.value.problem.next_step
    assert content.snapshot(snapshot.id) is None


def test_a_space_counts_for_the_quota_until_it_is_removed(content: CallerContent) -> None:
    one = file(content, "data", b"x" * 1000)
    used = content.quota.used_bytes
    space = made(content, one)
    assert content.quota.used_bytes == used + 4096
    content.quota.max_bytes = used + 6000
    with pytest.raises(NodeProblem) as refused:
        made(content, one)
    assert refused.value.problem.type == "no_room"
    remove_space(space, content)
    assert content.quota.used_bytes == used


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


def test_a_space_that_a_tool_nested_deeper_than_any_path_is_measured_and_removed(
    content: CallerContent,
) -> None:
    space = made(content, file(content, "a/data"))
    below = os.open(space.project, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("four", dir_fd=below)
        above, below = below, os.open("four", os.O_RDONLY, dir_fd=below)
        os.close(above)
    with open(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below), "w") as deepest:
        deepest.write("x")
    os.close(below)
    for _ in range(3):  # one in another, so that opening the first is not enough
        space.project.joinpath("a").rename(space.project / "b")
        space.project.joinpath("a").mkdir()
        space.project.joinpath("b").chmod(0)
        space.project.joinpath("b").rename(space.project / "a/b")
        space.project.joinpath("a").chmod(0)
    assert size_of_tree(content.folder) > 0
    remove_left_spaces(content.folder.parent, ())
    assert not space.folder.exists()


def test_only_the_spaces_that_runs_use_outlive_a_restart(content: CallerContent) -> None:
    one = file(content, "data")
    kept, left = made(content, one), made(content, one)
    remove_left_spaces(content.folder.parent, {("caller", kept.folder.name)})
    assert kept.folder.exists()
    assert not left.folder.exists()


def test_a_change_in_each_place_is_seen(content: CallerContent, tmp_path: Path) -> None:
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
        own_folder = (space.project / own).parent
        own_folder.rename(tmp_path / own_folder.name)
        own_folder.symlink_to(tmp_path)
        assert space.is_unchanged() == (own_folder.name == "threads"), own
