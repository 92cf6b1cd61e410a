"""Snapshots: which lists of files a node takes."""

import hashlib
import json

import pytest
from attrs import evolve

from ryecore.remote.protocol import snapshots
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile, check_snapshot

EMPTY = hashlib.sha256(b"").hexdigest()


def file(path: str, space: str = "project") -> SnapshotFile:
    return SnapshotFile(space, path, EMPTY, 0)  # type: ignore[arg-type]


def test_the_id_is_the_digest_of_its_json_with_sorted_keys() -> None:
    snapshot = Snapshot((file(".ai/tools/é.py"), file(".ai/a", "user")))
    document = json.loads(snapshot.to_bytes())
    assert document["files"][0] == {
        "space": "project",
        "path": ".ai/tools/é.py",
        "sha256": EMPTY,
        "size_bytes": 0,
        "executable": False,
    }
    again = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    assert snapshot.id == hashlib.sha256(again).hexdigest()
    assert check_snapshot(snapshot) is None


@pytest.mark.parametrize(
    "paths",
    [
        ["../outside"], ["/etc/passwd"], ["a/../b"], ["a//b"], ["a/."], [""], ["a\\..\\b"],
        ["a\nb"], ["a\0b"], ["x" * 1025], ["\ud800"], ["b", "a"], ["a", "a"], ["a", "a/b"],
        ["a", "a.b", "a/b"], ["x" * 256], ["a/" + "\u00e9" * 128], [".ai"],
    ],
)  # fmt: skip
def test_a_list_that_could_write_elsewhere_is_refused(paths: list[str]) -> None:
    assert check_snapshot(Snapshot(tuple(map(file, paths)))) is not None


def test_a_name_may_be_as_long_as_a_file_system_takes() -> None:
    assert check_snapshot(Snapshot((file(f"{'x' * 255}/{'y' * 255}"),))) is None


def test_a_list_that_makes_many_folders_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path is short; together 16 MiB of them would take millions of folders, and gigabytes."""
    monkeypatch.setattr(snapshots, "MAX_FOLDERS", 1000)
    deep = [file(f"{at}/" + "a/" * 500 + "f") for at in range(3)]
    assert check_snapshot(Snapshot(tuple(deep[:1]))) is None
    assert "folders" in str(check_snapshot(Snapshot((*deep, file("../up")))))


def test_what_is_no_hash_or_size_is_refused() -> None:
    one = file("a")
    assert check_snapshot(Snapshot((evolve(one, sha256="../../etc/passwd"),))) is not None
    assert check_snapshot(Snapshot((evolve(one, size_bytes=-1),))) is not None
    assert check_snapshot(Snapshot((one,), version=2)) is not None
