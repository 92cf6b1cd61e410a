"""The folders of projects that travelled: held while in use, and removed when old or too much."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ryecore.errors import StoreError
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile
from ryecore.remote.travelled import prune_projects, take_project
from ryecore.remote.travelling import prune_snapshots
from ryecore.state.folder_objects import FolderObjects


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "objects")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "travelled"


def put(objects: FolderObjects, files: Mapping[str, bytes]) -> str:
    """Store a snapshot of these files; its id."""
    listed = [
        SnapshotFile("project", path, objects.put(content), len(content), executable=False)
        for path, content in files.items()
    ]
    snapshot = Snapshot(tuple(listed))
    return objects.below("lists").put(snapshot.to_bytes(), sha256=snapshot.id)


def unused_for(path: Path, seconds: float) -> None:
    """Let the last use of a folder be that long ago."""
    at = time.time() - seconds
    os.utime(path, (at, at))


def test_a_folder_that_nobody_used_for_long_is_removed(
    objects: FolderObjects, folder: Path
) -> None:
    old, new = (put(objects, {"a.txt": one}) for one in (b"old", b"new"))
    for snapshot in (old, new):
        take_project(objects, snapshot, folder).close()
    unused_for(folder / old, 100)

    assert prune_projects(folder, max_unused_s=60) == (old,)
    assert [one.name for one in folder.iterdir()] == [new]
    with take_project(objects, old, folder) as held:  # it is made again
        assert (held.path / "a.txt").read_bytes() == b"old"


def test_what_a_run_holds_stays_and_the_oldest_others_go_beyond_the_size(
    objects: FolderObjects, folder: Path
) -> None:
    snapshots = [put(objects, {"a.bin": bytes([one]) * 1000}) for one in range(3)]
    held = take_project(objects, snapshots[0], folder)
    for age, snapshot in ((20, snapshots[1]), (10, snapshots[2])):
        take_project(objects, snapshot, folder).close()
        unused_for(folder / snapshot, age)
    unused_for(held.path, 1_000)

    assert prune_projects(folder, max_unused_s=60, max_total_bytes=2_000) == (snapshots[1],)
    assert (held.path / "a.bin").exists()
    held.close()
    assert prune_projects(folder, max_total_bytes=0) == (snapshots[2], snapshots[0])
    assert list(folder.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_is_not_ours_stays(
    objects: FolderObjects, folder: Path
) -> None:
    for name in (".making-abc", ".removing-abc", ".making-new", "mine"):
        (folder / name).mkdir(parents=True)
        if name != ".making-new":
            unused_for(folder / name, 2 * 86_400)

    assert prune_projects(folder, max_unused_s=0, max_total_bytes=0) == ()
    assert {one.name for one in folder.iterdir()} == {".making-new", "mine"}


def test_snapshots_that_were_used_long_ago_go_with_the_files_that_no_other_names(
    objects: FolderObjects, folder: Path
) -> None:
    common = {"common.txt": b"common"}
    old = put(objects, common | {"a.txt": b"old"})
    waiting = put(objects, {"a.txt": b"waiting"})
    for space in (objects, objects.below("lists")):
        for one in space.list():
            unused_for(Path(space.root, one.sha256[:2], one.sha256), 100)
    new = put(objects, common)  # which names a file that was stored long ago

    gone = prune_snapshots(objects, used_before_s=time.time() - 60, kept={waiting})

    assert sorted(one.size_bytes for one in gone if one.sha256 != old) == [len(b"old")]
    for snapshot, text in ((waiting, "waiting"), (new, "common")):
        with take_project(objects, snapshot, folder) as held:
            assert [one.read_text() for one in held.path.iterdir()] == [text]
    with pytest.raises(StoreError, match="no object"):
        take_project(objects, old, folder)


def test_a_link_in_place_of_a_folder_is_neither_used_nor_followed(
    objects: FolderObjects, folder: Path, tmp_path: Path
) -> None:
    snapshot = put(objects, {"a.txt": b"whole"})
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    folder.mkdir()
    (folder / snapshot).symlink_to(other)

    with pytest.raises(OSError, match=r"\S"):
        take_project(objects, snapshot, folder)

    assert prune_projects(folder, max_unused_s=0, max_total_bytes=0) == ()
    assert (other / "kept").exists()
