from pathlib import Path

import pytest

from ryecore.errors import ItemNotFound
from ryecore.items.paths import find_on_path, lies_inside, place_of, source_at
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import Spaces
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/p/.ai/tools/x.py", ("tool", "x.py")),
        ("/p/.ai/tools/acme/lib/__init__.py", ("tool", "acme/lib/__init__.py")),
        ("/p/.ai/directives/d.md", ("directive", "d.md")),
        ("/p/.ai/knowledge/k.yaml", ("knowledge", "k.yaml")),
        ("/p/.ai/config/agent/agent.yaml", ("config", "agent/agent.yaml")),
        ("/.ai/tools/x.py", ("tool", "x.py")),
        # The nearest `.ai` counts, so a project inside a space is a project of its own.
        ("/p/.ai/tools/inner/.ai/tools/x.py", ("tool", "x.py")),
        ("/p/.ai/tools/.ai/x.py", ("tool", ".ai/x.py")),
    ],
)
def test_a_files_place_is_its_identity(path: str, place: tuple[str, str]) -> None:
    assert place_of(Path(path)) == place


@pytest.mark.parametrize(
    "path",
    ["/p/x.py", "/p/.ai/x.py", "/p/.ai/state/x.py", "/p/.ai/tools", "/p/ai/tools/x.py", "/", "x"],
)
def test_elsewhere_is_no_item_and_the_error_says_where_items_stand(path: str) -> None:
    with pytest.raises(ItemNotFound, match="below a kind's folder") as refused:
        place_of(Path(path))
    for folder in (".ai/tools", ".ai/directives", ".ai/knowledge", ".ai/config"):
        assert folder in refused.value.next_step


def test_a_file_in_a_space_is_a_source(workspace: Workspace, spaces: Spaces) -> None:
    path = workspace.path("tools/acme/x.py", "user")
    source = source_at(path, spaces)
    assert source.ref == ItemRef("tool", "acme/x")
    assert source.relative == "acme/x.py"
    assert source.space == spaces.user
    assert source.kind_folder == workspace.path("tools", "user")


def test_a_path_that_only_looks_like_one_in_a_space_is_refused(
    workspace: Workspace, spaces: Spaces
) -> None:
    for path in (
        workspace.root / "project2/.ai/tools/x.py",
        workspace.project / ".ai/tools/../../../elsewhere/.ai/tools/x.py",
        workspace.path("tools/inner/.ai/tools/x.py"),
    ):
        with pytest.raises(ItemNotFound, match="doesn't stand in a space") as refused:
            source_at(path, spaces)
        assert str(workspace.project / ".ai") in refused.value.next_step


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
