import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore.lillux import TreeFilter, TreeStat, Witness, stat_tree
from ryecore.lillux.witness import Evidence

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


def see(evidence: Evidence, path: Path, content: bytes = b"x") -> None:
    path.write_bytes(content)
    evidence.file(str(path), hashlib.sha256(content).hexdigest())


def test_what_was_seen_holds_until_it_changes(tmp_path: Path) -> None:
    evidence = Evidence()
    see(evidence, tmp_path / "a")
    evidence.absent(str(tmp_path / "b"))
    evidence.absent(str(tmp_path / "no/such/folder/c"))
    for name, then in (("a", b"y"), ("b", b""), ("no", b"")):
        witness = evidence.witness()
        assert witness.holds()
        (tmp_path / name).write_bytes(then)
        assert not witness.holds()
        (tmp_path / name).write_bytes(b"x") if name == "a" else (tmp_path / name).unlink()


def test_a_relative_path_that_was_absent_is_asked_again_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    evidence = Evidence()
    evidence.absent("no/such/file")
    witness = evidence.witness()
    assert witness.holds()
    (tmp_path / "no").mkdir()
    assert not witness.holds()


def test_the_soonest_end_counts() -> None:
    evidence, other = Evidence(), Evidence()
    assert evidence.expires_at is None
    for end in ("2027-01-01T00:00:00Z", None, "2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z"):
        evidence.until(end)
    assert evidence.expires_at == "2026-01-01T00:00:00Z"
    other.until("2025-01-01T00:00:00Z")
    evidence.add(other)
    assert evidence.expires_at == "2025-01-01T00:00:00Z"
    evidence.add(Evidence())
    assert evidence.expires_at == "2025-01-01T00:00:00Z"


def test_what_may_not_be_remembered_stays_so() -> None:
    evidence, other = Evidence(), Evidence()
    assert evidence.may_remember
    other.never_remember()
    evidence.add(other)
    evidence.add(Evidence())
    assert not evidence.may_remember


def test_evidence_takes_over_all_that_another_decision_saw(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for change in ("file", "absent", "tree/new"):
        evidence, other = Evidence(), Evidence()
        see(other, tmp_path / "file")
        other.absent(str(tmp_path / "absent"))
        every = TreeFilter()
        tree = str(tmp_path / "tree")
        other.tree(TreeStat(tree, every, stat_tree(tree, every)))
        evidence.add(other)
        witness = evidence.witness()
        assert witness.holds()
        (tmp_path / change).write_bytes(b"changed")
        assert not witness.holds(), change
        (tmp_path / change).unlink()


def test_files_that_a_tree_stands_for_are_left_out_and_their_like_named_neighbours_are_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree2").mkdir()
    other, evidence = Evidence(), Evidence()
    see(other, tmp_path / "tree/a")
    see(other, tmp_path / "tree2/a")
    evidence.add(other, but_files_below=str(tmp_path / "tree"))
    witness = evidence.witness()
    (tmp_path / "tree/a").write_bytes(b"changed")
    assert witness.holds()
    (tmp_path / "tree2/a").write_bytes(b"changed")
    assert not witness.holds()
