import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.lillux import (
    TreeDigest,
    TreeFilter,
    digest_tree,
    list_tree,
    read_digest,
    read_files,
    sha256_file,
    stat_tree,
)
from ryecore.lillux.digests import sha256_hex


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.py", "a.yaml", "deep/er/c.py", "skipped/d.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize("size", [0, 1, 65536, 131072, 1_000_003])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    content = os.urandom(size)
    path.write_bytes(content)
    assert read_digest(path) == (content, sha256(content))
    assert sha256_file(path) == sha256(content)
    assert read_files([path, str(path)]) == [(content, sha256(content))] * 2


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"four")
    assert read_digest(path, max_bytes=4)[0] == b"four"
    with pytest.raises(OSError, match="File too large"):
        read_digest(path, max_bytes=3)
    with pytest.raises(OSError, match="File too large"):
        read_files([path], max_bytes=3)


@pytest.mark.parametrize("kind", ["fifo", "folder", "missing", "device"])
def test_what_is_no_regular_file_is_refused_and_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    for read in (read_digest, sha256_file, lambda path: read_files([path])):
        with pytest.raises(OSError, match="cannot") as failed:
            read(path)
        assert failed.value.filename == str(path)
    assert (kind == "missing") == (failed.type is FileNotFoundError)


def test_names_of_any_bytes(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.py")
    (tmp_path / name).write_bytes(b"x")
    assert list_tree(tmp_path) == [(name, "file")]
    assert sha256_file(tmp_path / name) == sha256(b"x")


def test_a_tree_is_listed_by_bytes_and_filtered(tree: Path) -> None:
    (tree / "link.py").symlink_to("b.py")
    (tree / "folder-link").symlink_to("deep")
    (tree / "dangling.py").symlink_to("nowhere")
    python = TreeFilter(extensions=(".py",), exclude_dirs=("skipped",))
    assert list_tree(tree, python) == [
        ("b.py", "file"),
        ("deep/er/c.py", "file"),
        ("link.py", "symlink"),
    ]
    flat = TreeFilter(recursive=False)
    assert [name for name, _ in list_tree(str(tree), flat)] == ["a.yaml", "b.py", "link.py"]


def test_the_digest_is_over_sorted_lines(tree: Path) -> None:
    names = ["a.yaml", "b.py", "deep/er/c.py", "skipped/d.py"]
    files = tuple((name, sha256(name.encode())) for name in names)
    lines = "".join(f"{digest}  {name}\n" for name, digest in files)
    assert digest_tree(tree) == TreeDigest(sha256(lines.encode()), files)


def test_many_files_in_parallel(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}").write_text(str(number))
    expected = [(f"{n:03}", sha256(str(n).encode())) for n in range(300)]
    assert list(digest_tree(tmp_path).files) == expected
    paths = [tmp_path / name for name, _ in expected]
    assert [digest for _, digest in read_files(paths)] == [digest for _, digest in expected]


def test_an_unreadable_file_is_named(tree: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (tree / "b.py").chmod(0)
    with pytest.raises(PermissionError) as failed:
        digest_tree(tree)
    assert failed.value.filename == str(tree / "b.py")


def test_the_fingerprint_notices_a_touch(tree: Path) -> None:
    before = stat_tree(tree)
    assert stat_tree(tree) == before
    os.utime(tree / "b.py", ns=(1, 1))
    assert stat_tree(tree) != before


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for look in (list_tree, stat_tree, digest_tree):
        with pytest.raises(FileNotFoundError) as failed:
            look(missing)
        assert failed.value.filename == str(missing)


@given(st.lists(st.binary(max_size=3000), max_size=3))
def test_the_digest_of_parts_is_that_of_them_joined(parts: list[bytes]) -> None:
    assert sha256_hex(*parts) == sha256(b"".join(parts))
