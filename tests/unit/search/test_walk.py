"""The ids of all tools, and that what is new is noticed."""

import shutil

from ryecore.items.spaces import Space, Spaces
from ryecore.search.walk import ToolListing
from tests.workspace import Workspace


def listing(workspace: Workspace) -> ToolListing:
    project, user = (Space(name, workspace.path("", name)) for name in ("project", "user"))
    return ToolListing(Spaces(project, user, ()), dict)


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
    assert tools.ids() is tools.ids()
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
