"""The ids of all tools, and that what is new is noticed."""

import shutil
from pathlib import Path

import pytest

from ryecore.items.spaces import Space, Spaces
from ryecore.search import walk as walk_module
from ryecore.search.walk import ItemListing
from tests.workspace import Workspace


def listing(workspace: Workspace) -> ItemListing:
    project, user = (Space(name, workspace.path("", name)) for name in ("project", "user"))
    return ItemListing(Spaces(project, user, ()), "tool", dict)


def test_tools_of_all_spaces_are_listed_once_and_nothing_else_is(workspace: Workspace) -> None:
    workspace.shell("acme/b", "true")
    workspace.shell("acme/b", "true", space="user")
    workspace.shell("acme/sub/a", "true", space="user")
    workspace.write("tools/acme/notes.txt", "x", sign=False)
    workspace.write("tools/acme/.hidden.sh", "x", sign=False)
    workspace.write("tools/acme/node_modules/x.js", "x", sign=False)
    workspace.write("knowledge/acme/k.md", "# K\n")

    assert listing(workspace).ids() == ("acme/b", "acme/sub/a")


def test_a_tool_that_comes_is_renamed_or_goes_is_noticed(workspace: Workspace) -> None:
    tools = listing(workspace)
    assert tools.ids() == ()
    workspace.shell("acme/a", "true")
    assert tools.ids() == ("acme/a",)
    workspace.shell("acme/deep/er/b", "true")
    assert tools.ids() == ("acme/a", "acme/deep/er/b")
    workspace.path("tools/acme/a.sh").rename(workspace.path("tools/acme/c.sh"))
    assert tools.ids() == ("acme/c", "acme/deep/er/b")
    shutil.rmtree(workspace.path("tools"))
    assert tools.ids() == ()


def test_the_tools_of_a_category_are_listed_from_its_folders_alone(workspace: Workspace) -> None:
    tools = listing(workspace)
    workspace.shell("acme/a", "true")
    workspace.shell("acmes/b", "true")
    assert tools.ids("acme") == ("acme/a",)
    assert tools.ids("other") == ()
    workspace.shell("other/deep/c", "true", space="user")
    workspace.shell("acme/sub/d", "true", space="user")
    assert tools.ids("other") == ("other/deep/c",)
    assert tools.ids("acme") == ("acme/a", "acme/sub/d")
    assert tools.ids() == ("acme/a", "acme/sub/d", "acmes/b", "other/deep/c")
    workspace.path("tools/link").symlink_to("acmes")
    assert tools.ids("link") == ()
    workspace.path("tools/link").unlink()
    workspace.path("tools/acmes").rename(workspace.path("tools/link"))
    assert tools.ids("link") == ("link/b",)


def test_a_listing_of_unchanged_folders_reads_no_stat_of_a_file(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tools a folder has, their list costs the stat of the folder."""
    monkeypatch.setattr(walk_module, "GRAIN_NS", -1)
    for number in range(20):
        workspace.shell(f"acme/t{number}", "true")
    tools = listing(workspace)
    assert len(tools.ids()) == 20
    paths: list[str] = []
    facts = walk_module._facts

    def noting(path: str) -> object:
        paths.append(path)
        return facts(path)

    monkeypatch.setattr(walk_module, "_facts", noting)
    with monkeypatch.context() as patch:
        patch.delattr(walk_module.os, "scandir")
        assert len(tools.ids()) == 20
    project, user = (str(workspace.path("tools", name)) for name in ("project", "user"))
    assert paths == [f"{project}/", f"{project}/acme/", f"{user}/"]


def test_a_link_that_begins_or_ceases_to_lead_to_a_tool_is_noticed(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk_module, "GRAIN_NS", -1)
    workspace.shell("acme/a", "true")
    workspace.path("tools/venv").mkdir()
    target = workspace.path("tools/venv/b.sh")
    workspace.path("tools/b.sh").symlink_to(target)
    tools = listing(workspace)
    assert tools.ids() == ("acme/a",)
    target.write_text("true")
    assert tools.ids() == ("acme/a", "b")
    target.unlink()
    target.symlink_to(tmp_path)
    assert tools.ids() == ("acme/a",)


def test_a_folder_that_changed_just_now_is_listed_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may come within the same tick of the file system's clock."""
    monkeypatch.setattr(walk_module, "GRAIN_NS", 3600 * 10**9)
    workspace.shell("acme/a", "true")
    tools = listing(workspace)
    assert tools.ids() == ("acme/a",)
    folder = workspace.path("tools/acme")
    monkeypatch.setattr(walk_module, "_facts", lambda path: (0, 0, 0, folder.stat().st_ctime_ns))
    workspace.shell("acme/b", "true")
    assert tools.ids() == ("acme/a", "acme/b")
