"""rye/file-system/list and glob: what is there, in a fixed order, bounded."""

import os
import resource
from pathlib import Path

import pytest

from tests.unit.system.tools import Result, call


def make(project: Path, *paths: str) -> None:
    for path in paths:
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(path)


def paths(result: Result) -> list[str]:
    return [entry["path"] for entry in result["entries"]]


def test_list_shows_each_kind(tmp_path: Path) -> None:
    make(tmp_path, "b/inner", "c", ".hidden")
    (tmp_path / "a").symlink_to("/etc")
    os.mkfifo(tmp_path / "d")
    result = call("list", tmp_path)
    assert result == {
        "success": True,
        "path": ".",
        "entries": [
            {"path": "a", "type": "symlink", "size_bytes": None},
            {"path": "b", "type": "directory", "size_bytes": None},
            {"path": "c", "type": "file", "size_bytes": 1},
            {"path": "d", "type": "other", "size_bytes": None},
        ],
        "truncated": False,
        "notes": [],
    }


def test_list_goes_as_deep_as_is_said_and_not_through_links(tmp_path: Path) -> None:
    make(tmp_path, "a/b/c/d", "a.txt", ".git/x")
    (tmp_path / "a/up").symlink_to("..")
    assert paths(call("list", tmp_path, depth=2)) == ["a", "a/b", "a/up", "a.txt"]
    assert paths(call("list", tmp_path, depth=5, path="a")) == [
        "a/b",
        "a/b/c",
        "a/b/c/d",
        "a/up",
    ]
    hidden = paths(call("list", tmp_path, depth=2, include_hidden=True))
    assert hidden[:2] == [".git", ".git/x"]


def test_list_says_what_it_left_out(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number:03}" for number in range(20)))
    result = call("list", tmp_path, limit=5)
    assert paths(result) == ["000", "001", "002", "003", "004"]
    assert result["truncated"]
    assert "first 5" in result["notes"][0]
    assert not call("list", tmp_path, limit=20)["truncated"]


def test_list_of_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "f")
    assert "isn't a folder" in call("list", tmp_path, path="f")["error"]
    assert "'missing' doesn't exist" in call("list", tmp_path, path="missing")["error"]


def test_a_name_that_is_no_utf8_is_shown_escaped(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/a\xff", os.O_CREAT))
    assert paths(call("list", tmp_path)) == ["a\\udcff"]
    assert call("glob", tmp_path, pattern="*")["files"] == ["a\\udcff"]


TREE = (
    "a.py",
    "b.txt",
    "src/a.py",
    "src/deep/er/c.py",
    "src/deep/d.pyc",
    ".github/ci.yml",
    ".git/config.py",
    "node_modules/m/x.py",
    "src/__pycache__/y.py",
    ".venv/z.py",
)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/a.py", "src/deep/er/c.py"]),
        ("src/**", ["src/a.py", "src/deep/d.pyc", "src/deep/er/c.py"]),
        ("src/**/er/*.py", ["src/deep/er/c.py"]),
        ("**/deep/**/*.py", ["src/deep/er/c.py"]),
        ("./src//a.py", ["src/a.py"]),
        ("src/?.[pq]y", ["src/a.py"]),
        ("**/*.yml", [".github/ci.yml"]),
        ("node_modules/**/*.py", ["node_modules/m/x.py"]),
        ("**/__pycache__/*", ["src/__pycache__/y.py"]),
        (".git/*", [".git/config.py"]),
        ("src", []),
        ("*.PY", []),
    ],
)
def test_glob_patterns(tmp_path: Path, pattern: str, found: list[str]) -> None:
    make(tmp_path, *TREE)
    result = call("glob", tmp_path, pattern=pattern)
    assert (result["files"], result["truncated"]) == (found, False)


def test_glob_searches_below_a_folder(tmp_path: Path) -> None:
    make(tmp_path, *TREE)
    result = call("glob", tmp_path, pattern="*.py", path="node_modules/m")
    assert result["files"] == ["node_modules/m/x.py"]


@pytest.mark.parametrize("pattern", ["../*", "a/../b", "/etc/*", "a\0", "/", "."])
def test_a_pattern_that_leads_out_is_refused(tmp_path: Path, pattern: str) -> None:
    assert "as a pattern" in call("glob", tmp_path, pattern=pattern)["error"]


def test_glob_shows_links_to_files_inside_and_follows_none(tmp_path: Path) -> None:
    project = tmp_path / "project"
    make(project, "real/f")
    make(tmp_path, "outside/f")
    for name, target in (
        ("in", "real/f"),
        ("out", "../outside/f"),
        ("folder", "real"),
        ("beyond", "../outside"),
        ("gone", "missing"),
        ("circle", "."),
    ):
        (project / name).symlink_to(target)
    assert call("glob", project, pattern="**")["files"] == ["in", "real/f"]


def test_glob_says_what_it_left_out(tmp_path: Path) -> None:
    make(tmp_path, *(f"{number:03}" for number in range(20)))
    result = call("glob", tmp_path, pattern="*", limit=5)
    assert result["files"] == ["000", "001", "002", "003", "004"]
    assert result["truncated"]
    assert "more than 5" in result["notes"][0]


def test_glob_is_bounded_in_time(tmp_path: Path) -> None:
    make(tmp_path, "a/b")
    result = call("glob", tmp_path, settings={"TIME_BOUND_S": -1}, pattern="**")
    assert result["truncated"]
    assert "search in a folder below" in result["notes"][0]


def test_a_hard_glob_is_no_trap(tmp_path: Path) -> None:
    make(tmp_path, "a" * 200)
    assert call("glob", tmp_path, pattern="*a" * 90 + "b")["files"] == []
    make(tmp_path, "/".join("a" * 100))
    assert call("glob", tmp_path, pattern="**/a/" * 60 + "b")["files"] == []


def test_a_tree_deeper_than_open_files_allow(tmp_path: Path) -> None:
    make(tmp_path, "/".join("d" * 100) + "/f")
    result = call("glob", tmp_path, prepare=few_files, pattern="**/f")
    assert len(result["files"]) == 1


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_named(tmp_path: Path) -> None:
    make(tmp_path, "closed/f", "open/f")
    (tmp_path / "closed").chmod(0)
    result = call("glob", tmp_path, pattern="**")
    (tmp_path / "closed").chmod(0o700)
    assert result["files"] == ["open/f"]
    assert "closed" in result["notes"][0]
