import hashlib
from pathlib import Path

import pytest

from ryecore.items.evidence import Evidence
from ryecore.lillux import TreeFilter, TreeStat, stat_tree


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
