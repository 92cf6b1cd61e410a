"""The ids of all tools, and that what is new is noticed."""

import shutil

from ryecore.items.spaces import Space, Spaces
from ryecore.search.listing import ToolListing
from tests.house import House


def listing(house: House) -> ToolListing:
    project, user = (Space(name, house.path("", name)) for name in ("project", "user"))
    return ToolListing(Spaces(project, user, ()), dict)


def test_tools_of_all_spaces_are_listed_once_and_nothing_else_is(house: House) -> None:
    house.shell("acme/b", "true")
    house.shell("acme/b", "true", space="user")
    house.shell("acme/sub/a", "true", space="user")
    house.write("tools/acme/notes.txt", "x", sign=False)
    house.write("tools/acme/.hidden.sh", "x", sign=False)
    house.write("tools/acme/node_modules/x.js", "x", sign=False)
    house.write("knowledge/acme/k.md", "# K\n")

    assert listing(house).ids() == ("acme/b", "acme/sub/a")


def test_a_tool_that_comes_is_renamed_or_goes_is_noticed(house: House) -> None:
    tools = listing(house)
    assert tools.ids() == ()
    house.shell("acme/a", "true")
    assert tools.ids() == ("acme/a",)
    assert tools.ids() is tools.ids()
    house.shell("acme/deep/er/b", "true")
    assert tools.ids() == ("acme/a", "acme/deep/er/b")
    house.path("tools/acme/a.sh").rename(house.path("tools/acme/c.sh"))
    assert tools.ids() == ("acme/c", "acme/deep/er/b")
    shutil.rmtree(house.path("tools"))
    assert tools.ids() == ()
