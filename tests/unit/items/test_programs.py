"""Where a program's name leads to, and whether that lies inside a folder."""

from pathlib import Path

from ryecore.items.programs import find_on_path, lies_inside


def program(path: Path, *, mode: int = 0o755) -> Path:
    """A program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_lies_inside_is_asked_by_components_and_with_links_resolved(tmp_path):
    project, twin = tmp_path / "project", tmp_path / "project-twin"
    program(project / "bin/x")
    program(twin / "bin/x")
    (tmp_path / "link").symlink_to(project / "bin/x")
    (project / "out").symlink_to(twin / "bin/x")
    (tmp_path / "other-name").symlink_to(project)
    assert lies_inside(str(project / "bin/x"), project)
    assert not lies_inside(str(twin / "bin/x"), project)
    assert lies_inside(str(tmp_path / "link"), project)
    assert lies_inside(str(project / "out"), project)
    assert lies_inside(str(twin / ".." / "project" / "bin/x"), project)


def test_a_project_opened_by_another_name_has_the_same_inside(tmp_path):
    real, alias = tmp_path / "real", tmp_path / "alias"
    (real / "bin").mkdir(parents=True)
    alias.symlink_to(real)
    # a virtual environment's python is a link to one outside
    (real / "bin/python").symlink_to("/bin/sh")
    assert lies_inside(str(real / "bin/python"), alias)
    assert lies_inside(str(alias / "bin/python"), real)


def test_relative_entries_of_the_path_count_for_nothing(tmp_path, monkeypatch):
    program(tmp_path / "bin/x")
    monkeypatch.chdir(tmp_path)
    assert not list(find_on_path("x", "bin::."))
    assert not list(find_on_path("bin/x", str(tmp_path)))
    assert list(find_on_path("x", f"bin:{tmp_path}/bin")) == [f"{tmp_path}/bin/x"]


def test_a_folder_or_a_file_without_permission_is_no_program(tmp_path):
    (tmp_path / "x").mkdir()
    program(tmp_path / "y", mode=0o644)
    assert not list(find_on_path("x", str(tmp_path)))
    assert not list(find_on_path("y", str(tmp_path)))
