import errno
import mmap
import os
import stat
from pathlib import Path

import pytest

from ryecore import _native
from ryecore.items.files import replace_and_keep, write_atomically, write_into


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


class _Replaced:
    """A file that was replaced, and a place for what is written into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "x"
        self.path.write_bytes(b"old content")
        self.path.chmod(0o600)
        self.inode = self.path.stat().st_ino
        self.other = folder / "y"

    def write(self, content: bytes = b"other") -> None:
        """Replace the file, and write another one into it."""
        replaced = replace_and_keep(str(self.path), b"new")
        assert replaced is not None
        write_into(replaced, str(self.other), content)
        assert self.path.read_bytes() == b"new"
        assert self.other.read_bytes() == content
        assert mode(self.path) == mode(self.other) == 0o600

    @property
    def is_reused(self) -> bool:
        """Whether the other file is the replaced one."""
        return self.other.stat().st_ino == self.inode


@pytest.mark.parametrize("content", [b"short", b"much longer than the old content", b""])
def test_a_replaced_file_becomes_another_one(tmp_path: Path, content: bytes) -> None:
    replaced = _Replaced(tmp_path)
    replaced.write(content)
    assert replaced.is_reused
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_a_replaced_file_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    replaced = _Replaced(tmp_path)
    replaced.other.write_bytes(b"older")
    with replaced.other.open("rb") as older:
        replaced.write()
        assert older.read() == b"older"
    assert replaced.is_reused
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


@pytest.mark.parametrize("how", ["r", "r+", "map"])
def test_a_replaced_file_that_is_open_keeps_its_content(tmp_path: Path, how: str) -> None:
    replaced = _Replaced(tmp_path)
    with replaced.path.open("rb+" if how == "r+" else "rb") as file:
        seen = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if how == "map" else file
        if how == "map":
            file.close()
        replaced.write()
        assert seen.read() == b"old content"
    assert not replaced.is_reused
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_a_replaced_file_with_another_name_keeps_its_content(tmp_path: Path) -> None:
    replaced = _Replaced(tmp_path)
    os.link(replaced.path, tmp_path / "backup")
    replaced.write()
    assert (tmp_path / "backup").read_bytes() == b"old content"
    assert not replaced.is_reused


def test_a_replaced_file_that_others_may_read_becomes_none_that_is_private(tmp_path: Path) -> None:
    replaced = _Replaced(tmp_path)
    replaced.path.chmod(0o644)
    replaced.write()
    assert not replaced.is_reused


@pytest.mark.parametrize("kind", ["missing", "link", "fifo"])
def test_only_a_plain_file_is_kept_when_it_is_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "link":
        path.symlink_to("elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    assert replace_and_keep(str(path), b"new") is None
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_system_that_exchanges_no_names_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "exchange_files", lambda *_: False)
    (tmp_path / "x").write_bytes(b"old")
    assert replace_and_keep(str(tmp_path / "x"), b"new") is None
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.root
def test_a_replaced_file_becomes_none_of_another_file_system(
    tmp_path: Path, small_disk: Path
) -> None:
    replaced = _Replaced(tmp_path)
    replaced.other = small_disk / "y"
    replaced.write()
    assert sorted(os.listdir(tmp_path)) == ["disk", "x"]
    assert os.listdir(small_disk) == ["y"]


def test_only_what_shall_survive_the_loss_of_power_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    write_atomically(tmp_path / "x", b"one", durable=durable)
    assert (tmp_path / "x").read_bytes() == b"one"
    assert len(calls) == durable
