"""rye/file-system/edit: the one piece that is meant, and nothing else."""

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.system.tools import Serving, call


def edit(project: Path, old: str, new: str, **more: object) -> dict[str, object]:
    return call("edit", project, path="f", old_text=old, new_text=new, **more)


def test_replaces_the_one_occurrence(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\nd")
    assert edit(tmp_path, "b\nc", "b\nX\nY") == {
        "success": True,
        "path": "f",
        "replacements": 1,
        "first_changed_line": 3,
    }
    assert (tmp_path / "f").read_text() == "a\nb\nX\nY\nd"


def test_keeps_the_mode_and_leaves_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    (tmp_path / "f").chmod(0o755)
    edit(tmp_path, "a", "")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o755
    assert os.listdir(tmp_path) == ["f"]


def test_several_occurrences_are_refused_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\na\nx\nx x\n")
    result = edit(tmp_path, "x", "y")
    assert "occurs 4 times" in str(result["error"])
    assert "lines 1, 3, 4, 4." in str(result["error"])
    assert "replace_all" in str(result["error"])
    (tmp_path / "f").write_text("x\n" * 500)
    assert "occurs 500 times" in str(edit(tmp_path, "x", "y")["error"])


def test_occurrences_that_overlap_are_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("aaa")
    assert "occurs 2 times" in str(edit(tmp_path, "aa", "b")["error"])
    assert (tmp_path / "f").read_text() == "aaa"


def test_replaces_all(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("-\nx\nx x\n")
    result = edit(tmp_path, "x", "y", replace_all=True)
    assert (result["replacements"], result["first_changed_line"]) == (3, 2)
    assert (tmp_path / "f").read_text() == "-\ny\ny y\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\r\nb\r\nc", "a\nb", "a\nX\nb", "a\r\nX\r\nb\r\nc"),
        ("a\r\nb\r\nc", "b", "X\nY", "a\r\nX\r\nY\r\nc"),
        ("a\r\nb\r\nc", "c", "X\nY", "a\r\nb\r\nX\r\nY"),
        ("a\r\nb\r\nc", "b\n", "", "a\r\nc"),
        ("a\r\nb\r\nc", "\nb", "", "a\r\nc"),
        ("a\r\nb\r\nc", "a\r\nb", "a\nX", "a\r\nX\r\nc"),
        ("a\r\nb\r\nc", "a\r\nb", "a\r\nX", "a\r\nX\r\nc"),
        ("a\nb\r\nc\r\n", "a", "X\nY", "X\nY\nb\r\nc\r\n"),
        ("a\nb\r\nc\r\n", "b\nc", "X\nY", "a\nX\r\nY\r\n"),
        ("a\nb", "b", "X\n", "a\nX\n"),
        ("a\nb\n", "b\n", "X", "a\nX"),
    ],
)
def test_line_ends_and_a_missing_last_newline_are_kept(
    tmp_path: Path, before: str, old: str, new: str, after: str
) -> None:
    (tmp_path / "f").write_bytes(before.encode())
    assert edit(tmp_path, old, new)["success"]
    assert (tmp_path / "f").read_bytes() == after.encode()


def test_bytes_that_are_no_utf8_are_kept(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff a \xfe")
    assert edit(tmp_path, "a", "ü")["success"]
    assert (tmp_path / "f").read_bytes() == b"\xff \xc3\xbc \xfe"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("def other():\n  return 1", "From line 3 on only white space differs"),
        ("def other():\n    return 2", "alike from line 3 on, but line 4 is '    return 1'"),
        ("def othre():", "nearest is line 3: 'def other():'"),
        ("def other():\n    return 1\nmore", "line 5 is behind the end"),
        ("%&", "does not occur in 'f'. Read"),
    ],
)
def test_what_is_not_found_says_what_is_near(tmp_path: Path, old: str, said: str) -> None:
    (tmp_path / "f").write_text("import os\n\ndef other():\n    return 1")
    assert said in str(edit(tmp_path, old, "x")["error"])


def test_a_big_file_without_the_text_is_answered_soon(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("some line that is a bit alike\n" * 300000)
    assert "not occur" in str(edit(tmp_path, "some lime that was a bit alike", "x")["error"])


def test_two_edits_at_once_both_stand(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"<{number}>\n" for number in range(12)))

    def change(number: int) -> None:
        assert edit(tmp_path, f"<{number}>", f"[{number}]")["success"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(12)))
    assert (tmp_path / "f").read_text() == "".join(f"[{number}]\n" for number in range(12))


def test_a_failed_edit_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 3000)
    result = call(
        "edit",
        tmp_path,
        prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        path="f",
        old_text="a",
        new_text="bb",
        replace_all=True,
    )
    assert "Nothing was changed" in result["error"]
    assert (tmp_path / "f").read_text() == "a" * 3000
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        (b"a\0b", "a", "b"),
        (b"x" * (10 * 1024 * 1024 + 1), "x", "y"),
        (b"a", "a", "a"),
        (b"a", "", "b"),
        (b"a", "\ud800", "b"),
        (b"a\r\nb", "a\nb", "a\r\nb"),
    ],
)
def test_what_cannot_be_edited_is_an_error(
    tmp_path: Path, content: bytes, old: str, new: str
) -> None:
    (tmp_path / "f").write_bytes(content)
    assert edit(tmp_path, old, new)["success"] is False
    assert (tmp_path / "f").read_bytes() == content


def test_more_than_memory_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 90000)
    result = edit(tmp_path, "x", "y" * 90000, replace_all=True)
    assert "too much" in str(result["error"])


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    assert "'f' doesn't exist" in str(edit(tmp_path, "a", "b")["error"])
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def editing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Serving]]:
    project = tmp_path_factory.mktemp("project")
    with Serving("edit", project) as serving:
        yield project / "f", serving


TEXTS = st.text(alphabet="ab \n€", max_size=30)


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """A file, mostly a piece of it, and another text."""
    content = draw(TEXTS)
    start = draw(st.integers(0, len(content)))
    piece = content[start : draw(st.integers(start, min(start + 6, len(content))))]
    return content, draw(st.sampled_from([piece, draw(TEXTS)])), draw(TEXTS)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(case=edits(), every=st.booleans(), crlf=st.booleans())
def test_edit_is_what_replacing_in_the_text_is(
    editing: tuple[Path, Serving], case: tuple[str, str, str], every: bool, crlf: bool
) -> None:
    path, serving = editing
    content, old, new = case
    end = "\r\n" if crlf and "\n" in content else "\n"
    before = content.replace("\n", end).encode()
    path.write_bytes(before)
    result = serving.call(path="f", old_text=old, new_text=new, replace_all=every)
    count = content.count(old) if old else 0
    once = count == 1 and content.find(old, content.find(old) + 1) < 0
    if old and old != new and (once or (every and count)):
        after = content.replace(old, new)
        assert result["success"], result
        assert path.read_bytes() == after.replace("\n", end).encode()
        assert result["replacements"] == count
        pairs = zip(old + "\0", new + "\0", strict=False)
        same = next(index for index, (here, there) in enumerate(pairs) if here != there)
        changed = content.count("\n", 0, content.find(old) + same) + 1
        assert result["first_changed_line"] == changed
    else:
        assert not result["success"]
        assert path.read_bytes() == before
