"""rye/file-system/write: whole or not at all."""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.system.tools import call, environment, loader

KIB = 1024


def test_writes_a_new_file_and_its_folders(tmp_path: Path) -> None:
    result = call("write", tmp_path, path="a/b/f", content="ü\r\n")
    assert result == {"success": True, "path": "a/b/f", "size_bytes": 4, "created": True}
    assert (tmp_path / "a/b/f").read_bytes() == "ü\r\n".encode()
    assert os.listdir(tmp_path / "a/b") == ["f"]


def test_a_missing_folder_is_refused_where_none_is_to_be_made(tmp_path: Path) -> None:
    assert not call("write", tmp_path, path="a/f", content="", create_dirs=False)["success"]
    assert os.listdir(tmp_path) == []


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    def umask() -> None:
        os.umask(0o027)

    call("write", tmp_path, prepare=umask, path="f", content="")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640


def test_overwriting_keeps_the_mode(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "f").chmod(0o751)
    result = call("write", tmp_path, path="f", content="new")
    assert result["created"] is False
    assert (tmp_path / "f").read_text() == "new"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o751


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_overwriting_keeps_the_owner(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    os.chown(tmp_path / "f", 1234, 2345)
    call("write", tmp_path, path="f", content="new")
    status = (tmp_path / "f").stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_stays(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "f").chmod(0o444)
    assert "read-only" in call("write", tmp_path, path="f", content="new")["error"]


def test_create_fails_where_a_file_is(tmp_path: Path) -> None:
    assert call("write", tmp_path, path="f", content="first", mode="create")["created"]
    assert "exists" in call("write", tmp_path, path="f", content="2", mode="create")["error"]
    assert (tmp_path / "f").read_text() == "first"


def test_one_of_many_creators_wins(tmp_path: Path) -> None:
    def create(number: int) -> bool:
        result = call("write", tmp_path, path="f", content=str(number), mode="create")
        return bool(result["success"])

    with ThreadPoolExecutor(4) as pool:
        won = [number for number, made in enumerate(pool.map(create, range(8))) if made]
    assert (tmp_path / "f").read_text() == str(won[0])
    assert len(won) == 1


def test_append_adds_at_the_end_or_makes_the_file(tmp_path: Path) -> None:
    assert call("write", tmp_path, path="f", content="a\n", mode="append")["created"]
    result = call("write", tmp_path, path="f", content="b\n", mode="append")
    assert (result["created"], result["size_bytes"]) == (False, 4)
    assert (tmp_path / "f").read_text() == "a\nb\n"


def test_no_append_is_lost_among_many(tmp_path: Path) -> None:
    def append(number: int) -> None:
        assert call("write", tmp_path, path="f", content=f"{number}\n", mode="append")["success"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(12)))
    assert sorted(map(int, (tmp_path / "f").read_text().split())) == list(range(12))


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    with (tmp_path / "f").open() as before:
        call("write", tmp_path, path="f", content="new")
        assert before.read() == "old"


def test_a_link_is_followed_to_its_file_and_stays(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "link").symlink_to("f")
    assert call("write", tmp_path, path="link", content="new")["path"] == "f"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "f").read_text() == "new"


def too_big() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * KIB, 4 * KIB))


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_a_write_that_fails_half_way_leaves_the_old_file_alone(tmp_path: Path, mode: str) -> None:
    (tmp_path / "f").write_text("old")
    result = call("write", tmp_path, prepare=too_big, path="f", content="x" * 9000, mode=mode)
    assert "Nothing was changed" in result["error"]
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_new_file_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    assert not call("write", tmp_path, prepare=too_big, path="f", content="x" * 9000)["success"]
    assert os.listdir(tmp_path) == []


def test_one_that_is_told_to_end_leaves_no_other_file(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w") as file:
        file.truncate(KIB**3)  # takes long to copy
    document = {"path": "f", "content": "x", "mode": "append"}
    with subprocess.Popen(
        loader("write", tmp_path), stdin=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(document) + "\n")
        process.stdin.flush()
        while len(os.listdir(tmp_path)) < 2:
            assert process.poll() is None
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").stat().st_size == KIB**3


@pytest.mark.root
def test_a_full_disk_leaves_the_old_file_and_no_other(small_disk: Path) -> None:
    (small_disk / "f").write_text("old")
    result = call("write", small_disk, path="f", content="x" * 100 * KIB)
    assert "No space left" in result["error"]
    assert (small_disk / "f").read_text() == "old"
    assert os.listdir(small_disk) == ["f"]
    assert call("write", small_disk, path="f", content="x" * 8 * KIB)["success"]


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("sub", {}),
        ("new/", {}),
        (".", {}),
        ("f/below", {}),
        ("new", {"content": "\ud800"}),
        ("new", {"content": 1}),
        ("new", {"mode": "other"}),
        ("new", {"create_dirs": "yes"}),
    ],
)
def test_what_cannot_be_written_is_an_error(
    tmp_path: Path, path: str, params: dict[str, object]
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "f").touch()
    assert not call("write", tmp_path, path=path, **{"content": "", **params})["success"]
    assert sorted(os.listdir(tmp_path)) == ["f", "sub"]


def test_a_folder_that_another_process_has_locked_is_refused_with_its_number(
    tmp_path: Path,
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    script = (
        "import atomic, os, sys; from answers import Refused; atomic.LOCK_WAIT_S = 0.05\n"
        "try: atomic.lock(os.open(sys.argv[1], os.O_RDONLY))\n"
        "except Refused as error: print(error)\n"
    )
    try:
        said = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.close(folder)
    assert f"locked by process {os.getpid()}" in said.stdout
