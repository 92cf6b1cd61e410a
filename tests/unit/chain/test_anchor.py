"""The root of a tool's dependency tree."""

from pathlib import Path

import pytest

from ryecore.chain.layout import find_anchor
from ryecore.chain.spec import AnchorSpec
from ryecore.errors import AnchorError
from ryecore.lillux.witness import Evidence

MARKERS = ("__init__.py", "pyproject.toml")


@pytest.fixture
def kind_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "p/.ai/tools"
    (folder / "a/b/c").mkdir(parents=True)
    return folder


def find(kind_folder: Path, **declared: object) -> Path | None:
    spec = AnchorSpec(**{"enabled": True, "markers_any": MARKERS} | declared)
    return find_anchor(spec, kind_folder / "a/b/c/tool.py", kind_folder, Evidence())


def test_auto_without_a_marker_is_no_anchor(kind_folder):
    assert find(kind_folder) is None


def test_auto_takes_the_tools_own_folder_where_a_marker_is_there(kind_folder):
    (kind_folder / "a/b/c/pyproject.toml").touch()
    (kind_folder / "a/__init__.py").touch()
    assert find(kind_folder) == kind_folder / "a/b/c"


def test_auto_takes_the_nearest_folder_above_up_to_the_kinds_folder(kind_folder):
    (kind_folder / "__init__.py").touch()
    assert find(kind_folder) == kind_folder
    (kind_folder / "a/__init__.py").touch()
    assert find(kind_folder) == kind_folder / "a"


def test_auto_never_looks_above_the_kinds_folder(kind_folder):
    for folder in (kind_folder.parent, kind_folder.parents[1]):
        (folder / "pyproject.toml").touch()
    assert find(kind_folder) is None


def test_always_needs_no_marker(kind_folder):
    (kind_folder / "a/__init__.py").touch()
    assert find(kind_folder, mode="always") == kind_folder / "a/b/c"
    assert find(kind_folder, mode="always", root="tool_parent") == kind_folder / "a/b"


@pytest.mark.parametrize("declared", [{"mode": "never"}, {"enabled": False}])
def test_never_and_not_enabled_are_no_anchor(kind_folder, declared):
    (kind_folder / "a/b/c/__init__.py").touch()
    assert find(kind_folder, **declared) is None


def test_the_whole_project_is_no_anchor(kind_folder):
    with pytest.raises(AnchorError, match="outside"):
        find(kind_folder, mode="always", root="project_path")


def test_a_parent_above_the_kinds_folder_is_refused(kind_folder):
    spec = AnchorSpec(enabled=True, mode="always", root="tool_parent")
    with pytest.raises(AnchorError, match="outside"):
        find_anchor(spec, kind_folder / "tool.py", kind_folder, Evidence())


def test_a_folder_whose_name_begins_like_the_kinds_folder_is_outside(tmp_path):
    kind_folder, twin = tmp_path / ".ai/tools", tmp_path / ".ai/tools-twin"
    kind_folder.mkdir(parents=True)
    twin.mkdir()
    (twin / "__init__.py").touch()
    spec = AnchorSpec(enabled=True, markers_any=MARKERS)
    assert find_anchor(spec, twin / "tool.py", kind_folder, Evidence()) is None


def test_absent_markers_are_evidence(kind_folder):
    evidence = Evidence()
    spec = AnchorSpec(enabled=True, markers_any=MARKERS)
    find_anchor(spec, kind_folder / "a/b/c/tool.py", kind_folder, evidence)
    assert evidence.witness().holds()
    (kind_folder / "a/pyproject.toml").touch()
    assert not evidence.witness().holds()


def test_the_marker_that_was_found_is_evidence(kind_folder):
    marker = kind_folder / "a/pyproject.toml"
    marker.touch()
    evidence = Evidence()
    spec = AnchorSpec(enabled=True, markers_any=MARKERS)
    find_anchor(spec, kind_folder / "a/b/c/tool.py", kind_folder, evidence)
    assert evidence.witness().holds()
    marker.unlink()
    assert not evidence.witness().holds()
