"""rye/file-system/grep: matching lines, and an end even to a hopeless pattern."""

import os
from pathlib import Path

import pytest

from tests.unit.system.tools import Result, call


def make(project: Path, **files: str) -> None:
    for name, content in files.items():
        path = project / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def places(result: Result) -> list[tuple[str, int]]:
    return [(match["path"], match["line"]) for match in result["matches"]]


def test_finds_lines_with_their_surroundings(tmp_path: Path) -> None:
    make(tmp_path, f_txt="1\n2\r\nfoo 3\r\n4\n5\n6")
    assert call("grep", tmp_path, pattern=r"foo \d$", context=2) == {
        "success": True,
        "matches": [
            {
                "path": "f.txt",
                "line": 3,
                "text": "foo 3",
                "before": ["1", "2"],
                "after": ["4", "5"],
            }
        ],
        "truncated": False,
        "files_searched": 1,
        "skipped": {"binary": 0, "too_big": 0, "unreadable": 0},
        "notes": [],
    }


def test_context_ends_with_the_file(tmp_path: Path) -> None:
    make(tmp_path, f="x\ny\n")
    (match,) = call("grep", tmp_path, pattern="x", context=10)["matches"]
    assert (match["before"], match["after"]) == ([], ["y"])


def test_ignores_case_where_asked(tmp_path: Path) -> None:
    make(tmp_path, f="ÄB\n")
    assert places(call("grep", tmp_path, pattern="äb")) == []
    assert places(call("grep", tmp_path, pattern="äb", ignore_case=True)) == [("f", 1)]


def test_searches_a_tree_in_order_and_skips_what_is_not_the_projects(tmp_path: Path) -> None:
    make(
        tmp_path,
        b_py="x",
        a__c_txt="x",
        a__d_py="x",
        node_modules__m_js="",
    )
    for folder in (".git", "node_modules", ".venv", "a/__pycache__"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "f.py").write_text("x")
    assert places(call("grep", tmp_path, pattern="x")) == [
        ("a/c.txt", 1),
        ("a/d.py", 1),
        ("b.py", 1),
    ]
    assert places(call("grep", tmp_path, pattern="x", glob="*.py")) == [("a/d.py", 1), ("b.py", 1)]
    assert places(call("grep", tmp_path, pattern="x", glob="a/*")) == [
        ("a/c.txt", 1),
        ("a/d.py", 1),
    ]
    assert places(call("grep", tmp_path, pattern="x", path="a/d.py")) == [("a/d.py", 1)]
    assert places(call("grep", tmp_path, pattern="x", path=".git")) == [(".git/f.py", 1)]
    assert places(call("grep", tmp_path, pattern="x", glob=".git/**")) == [(".git/f.py", 1)]


def test_links_are_not_followed(tmp_path: Path) -> None:
    make(tmp_path, project__f="x", outside__f="x")
    (tmp_path / "project/link").symlink_to("../outside")
    (tmp_path / "project/file").symlink_to("../outside/f")
    (tmp_path / "project/circle").symlink_to(".")
    assert places(call("grep", tmp_path / "project", pattern="x")) == [("f", 1)]


def test_counts_what_it_skips(tmp_path: Path) -> None:
    make(tmp_path, text="x")
    (tmp_path / "binary").write_bytes(b"x\0")
    with (tmp_path / "big").open("w") as file:
        file.write("x\n")
        file.truncate(10 * 1024 * 1024 + 1)
    os.mkfifo(tmp_path / "fifo")
    result = call("grep", tmp_path, pattern="x")
    assert places(result) == [("text", 1)]
    assert result["files_searched"] == 1
    assert result["skipped"] == {"binary": 1, "too_big": 1, "unreadable": 0}


def test_invalid_utf8_is_searched(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff x\n")
    assert call("grep", tmp_path, pattern="x")["matches"][0]["text"] == "\ufffd x"


def test_says_what_it_left_out(tmp_path: Path) -> None:
    make(tmp_path, a="x\n" * 6, b="x\n" * 6)
    result = call("grep", tmp_path, pattern="x", limit=8)
    assert len(result["matches"]) == 8
    assert result["truncated"]
    assert "more than 8" in result["notes"][0]
    assert not call("grep", tmp_path, pattern="x", limit=12)["truncated"]


def test_the_result_is_bounded(tmp_path: Path) -> None:
    make(tmp_path, f=("x" * 5000 + "\n") * 2000)
    result = call("grep", tmp_path, pattern="x", limit=2000, context=10)
    assert result["truncated"]
    assert result["matches"][0]["text"] == "x" * 1000 + " [cut]"
    assert sum(len(str(match)) for match in result["matches"]) < 300 * 1024


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a(b", "position 1"),
        ("*", "position 0"),
        ("(?P<a>x)(?P<a>y)", "position"),
        ("x{99999999999}", "expression"),
        ("(" * 5000 + ")" * 5000, "expression"),
    ],
)
def test_a_bad_pattern_is_named_with_its_position(tmp_path: Path, pattern: str, said: str) -> None:
    result = call("grep", tmp_path, pattern=pattern)
    assert "regular expression" in result["error"]
    assert said in result["error"]


@pytest.mark.parametrize("pattern", ["(a+)+$", "a*a*a*$", "(a|aa)+$", "(?:a*b)*c"])
def test_a_catastrophic_pattern_is_ended(tmp_path: Path, pattern: str) -> None:
    make(tmp_path, f="a" * 1000000 + "b")
    result = call("grep", tmp_path, settings={"TIME_BOUND_S": 1}, pattern=pattern)
    assert "ended after 1 s" in result["error"]
    assert "Simplify the pattern" in result["error"]


def test_a_search_that_takes_too_long_keeps_what_it_found(tmp_path: Path) -> None:
    make(tmp_path, a="x", b="x")
    # The search itself ends at three quarters of the bound.
    result = call("grep", tmp_path, settings={"TIME_BOUND_S": 0.001}, pattern="x")
    assert not result["success"] or result["truncated"]


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    assert "'missing' doesn't exist" in call("grep", tmp_path, pattern="x", path="missing")["error"]
