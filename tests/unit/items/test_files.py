import errno
import os
import stat
from pathlib import Path

import pytest

from ryecore import _native
from ryecore.items.files import write_atomically


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=["durable", "exchanged", "renamed"])
def durable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a write is durable; else as file systems do it that exchange files, or can't."""
    if request.param == "renamed":
        monkeypatch.setattr(_native, "exchange_files", lambda *_: False)
    return bool(request.param == "durable")


def test_a_file_is_made_or_replaced_whole(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "x"
    write_atomically(path, b"one", durable=durable)
    assert path.read_bytes() == b"one"
    before = path.open("rb")
    write_atomically(path, b"two", durable=durable)
    assert path.read_bytes() == b"two"
    with before:
        assert before.read() == b"one", "who has it open still sees the old one"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("had", [0o600, 0o640, 0o755, 0o444])
def test_a_file_keeps_its_mode_unless_another_is_given(tmp_path: Path, had: int) -> None:
    path = tmp_path / "x"
    path.touch()
    path.chmod(had)
    write_atomically(path, b"1")
    assert mode(path) == had
    write_atomically(path, b"2", mode=0o600)
    assert mode(path) == 0o600


def test_a_new_file_is_made_within_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert mode(tmp_path / "x") == 0o640


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path, *, durable: bool) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("precious")
    write_atomically(tmp_path / "link", b"new", durable=durable)
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert (tmp_path / "link").read_bytes() == b"new"


def test_a_dangling_link_makes_no_file_elsewhere(tmp_path: Path, *, durable: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    write_atomically(tmp_path / "link", b"new", durable=durable)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_must_be_new_replaces_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "a file system without hard links")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    write_atomically(tmp_path / "x", b"first", mode=0o600, replace=False)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "x", b"second", replace=False)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "link", b"second", replace=False)
    assert (tmp_path / "x").read_bytes() == b"first"
    assert mode(tmp_path / "x") == 0o600
    assert sorted(os.listdir(tmp_path)) == ["link", "x"]


@pytest.mark.root
def test_a_full_disk_leaves_the_old_file_and_nothing_else(small_disk: Path) -> None:
    path = small_disk / "x"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"n" * 200_000)
    assert path.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["x"]


def test_what_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path, *, durable: bool) -> None:
    (tmp_path / "folder/below").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "folder", b"x", durable=durable)
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["below"]


def test_only_what_shall_survive_the_loss_of_power_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    write_atomically(tmp_path / "x", b"one", durable=durable)
    assert (tmp_path / "x").read_bytes() == b"one"
    assert len(calls) == durable
