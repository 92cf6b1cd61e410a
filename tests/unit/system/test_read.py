"""rye/file-system/read: a part of a text file, whatever its size."""

import resource
from pathlib import Path

import pytest

from tests.matrix import IS_SOAK
from tests.unit.system.tools import call

KIB = 1024


def test_reads_a_file_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("a\r\nb ü\n\nlast".encode())
    assert call("read", tmp_path, path="f") == {
        "success": True,
        "path": "f",
        "content": "a\r\nb ü\n\nlast",
        "first_line": 1,
        "last_line": 4,
        "total_lines": 4,
        "truncated": False,
        "size_bytes": 13,
        "notes": [],
    }


def test_reads_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    result = call("read", tmp_path, path="f")
    assert (result["content"], result["total_lines"], result["last_line"]) == ("", 0, 0)


@pytest.mark.parametrize("end", ["", "\n"])
def test_reads_a_part_by_offset_and_limit(tmp_path: Path, end: str) -> None:
    (tmp_path / "f").write_text("\n".join(map(str, range(1, 101))) + end)
    part = call("read", tmp_path, path="f", offset=99, limit=1)
    assert (part["content"], part["first_line"], part["last_line"]) == ("99\n", 99, 99)
    assert (part["total_lines"], part["truncated"]) == (100, True)
    assert "offset 100" in part["notes"][0]
    last = call("read", tmp_path, path="f", offset=100, limit=5)
    assert (last["content"], last["truncated"], last["total_lines"]) == ("100" + end, False, 100)
    behind = call("read", tmp_path, path="f", offset=101)
    assert "only 100 lines" in behind["error"]


def test_numbers_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    result = call("read", tmp_path, path="f", offset=2, line_numbers=True)
    assert result["content"] == "     2\tb\n"


def test_content_is_bounded_and_read_on_without_a_gap(tmp_path: Path) -> None:
    lines = [f"{number} " + "ü" * 400 + "\n" for number in range(1, 401)]
    (tmp_path / "f").write_text("".join(lines))
    content, offset = "", 1
    while True:
        part = call("read", tmp_path, path="f", offset=offset)
        assert len(part["content"].encode()) <= 100 * KIB
        content += part["content"]
        assert part["total_lines"] == 400
        if not part["truncated"]:
            break
        offset = part["last_line"] + 1
    assert content == "".join(lines)


@pytest.mark.parametrize("letter", ["x", "ü", "€", "😀"])
def test_a_long_line_is_cut_and_that_is_said(tmp_path: Path, letter: str) -> None:
    (tmp_path / "f").write_text(f"{letter * 2000}\n{letter * 2001}\n{letter * 90000}\r\nend")
    result = call("read", tmp_path, path="f")
    assert result["content"] == f"{letter * 2000}\n" * 3 + "end"
    assert result["truncated"]
    assert result["notes"] == ["Cut at 2000 characters: lines 2, 3."]
    assert result["total_lines"] == 4


def test_invalid_utf8_is_replaced_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"good \xef\xbf\xbd\nbad \xff\n")
    result = call("read", tmp_path, path="f")
    assert result["content"] == "good \ufffd\nbad \ufffd\n"
    assert result["notes"] == ["Bytes that aren't UTF-8 are shown as \ufffd in: line 2."]


@pytest.mark.parametrize(
    ("head", "guess"),
    [
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"%PDF-1.7\n", "PDF"),
        (b"PK\x03\x04", "ZIP"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"abc\0def", "binary"),
    ],
)
def test_a_binary_file_is_refused_with_its_size_and_a_guess(
    tmp_path: Path, head: bytes, guess: str
) -> None:
    (tmp_path / "f").write_bytes(head)
    result = call("read", tmp_path, path="f")
    assert guess in result["error"]
    assert f"{len(head)} bytes" in result["error"]


@pytest.mark.parametrize("start", ["text\n" * 4000, "x" * 9000])
def test_a_large_file_is_not_held_in_memory(tmp_path: Path, start: str) -> None:
    size = KIB**3 if IS_SOAK else KIB**3 // 2
    with (tmp_path / "f").open("w") as file:
        file.write(start)
        file.truncate(size)
    limit = 256 * KIB * KIB
    result = call(
        "read",
        tmp_path,
        prepare=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        path="f",
    )
    assert result["size_bytes"] == size
    assert result["total_lines"] == start.count("\n") + 1
    assert result["truncated"]


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    assert "rye/file-system/list" in call("read", tmp_path, path="missing")["error"]
