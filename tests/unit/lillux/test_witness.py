import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore.lillux import TreeFilter, TreeStat, Witness, stat_tree

PYTHON = TreeFilter(extensions=(".py",))


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.py").touch()
    fingerprint = stat_tree(tmp_path / "tree", PYTHON)
    return Witness(
        files=[(tmp_path / "file", hashlib.sha256(b"content").hexdigest())],
        absent=[str(tmp_path / "absent"), tmp_path / "file/below", tmp_path / "no/folder/file"],
        trees=[TreeStat(str(tmp_path / "tree"), PYTHON, fingerprint)],
    )


def test_it_holds(tmp_path: Path, witness: Witness) -> None:
    (tmp_path / "tree/unfiltered.txt").touch()
    (tmp_path / "elsewhere").touch()
    assert witness.holds()
    assert witness.broken() is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("file", lambda root: (root / "file").write_bytes(b"c0ntent")),
        ("file", lambda root: (root / "file").unlink()),
        ("file", lambda root: ((root / "file").unlink(), os.mkfifo(root / "file"))),
        ("absent", lambda root: (root / "absent").touch()),
        ("absent", lambda root: (root / "absent").symlink_to("nowhere")),
        ("no/folder/file", lambda root: os.makedirs(root / "no/folder/file")),
        ("tree", lambda root: (root / "tree/b.py").touch()),
        ("tree", lambda root: os.utime(root / "tree/a.py", ns=(1, 1))),
    ],
)
def test_the_first_difference_is_named(
    tmp_path: Path, witness: Witness, name: str, change: Callable[[Path], object]
) -> None:
    change(tmp_path)
    assert not witness.holds()
    assert witness.broken() == str(tmp_path / name)


def test_same_size_and_times_do_not_hide_a_change(tmp_path: Path, witness: Witness) -> None:
    file = tmp_path / "file"
    stat = file.stat()
    file.write_bytes(b"c0ntent")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert witness.broken() == str(file)


def test_without_anything_it_holds() -> None:
    assert Witness().holds()


def test_a_digest_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="64 lower-case hex"):
        Witness(files=[("/etc/passwd", "abc")])
