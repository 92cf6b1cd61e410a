import os
import sys
from collections.abc import Callable
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path

import pytest

from ryecore.errors import AmbiguousItem, ConfigError, InvalidItemId, ItemError, ItemNotFound
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import EXTENSIONS, Space, Spaces, discover_bundles, locate
from ryecore.lillux.witness import Evidence
from tests.workspace import Workspace

TOOL = ItemRef("tool", "acme/x")


def put(workspace: Workspace, name: str, space: str = "project") -> Path:
    return workspace.write(name, b"", space=space, sign=False)  # type: ignore[arg-type]


def test_the_project_beats_the_user_who_beats_the_system(
    workspace: Workspace, spaces: Spaces
) -> None:
    third = put(workspace, "tools/acme/x.py", "system")
    assert locate(TOOL, spaces).path == third
    second = put(workspace, "tools/acme/x.sh", "user")
    assert locate(TOOL, spaces).path == second
    first = put(workspace, "tools/acme/x.yaml")
    found = locate(TOOL, spaces)
    assert found.path == first
    assert found.relative == "acme/x.yaml"
    assert [(path, space.label) for path, space in found.shadowed] == [
        (second, "user"),
        (third, "system:acme"),
    ]


@pytest.mark.parametrize(
    ("kind", "folder", "extension"),
    [
        (kind, {"tool": "tools", "directive": "directives"}.get(kind, kind), extension)
        for kind, extensions in EXTENSIONS.items()
        for extension in extensions
    ],
)
def test_an_id_is_found_with_each_extension_of_its_kind(
    workspace: Workspace, spaces: Spaces, kind: str, folder: str, extension: str
) -> None:
    path = put(workspace, f"{folder}/x{extension}")
    assert locate(ItemRef(kind, "x"), spaces).path == path


def test_extensions_have_a_fixed_order() -> None:
    assert EXTENSIONS["tool"] == (
        *(".py", ".yaml", ".yml", ".js", ".ts", ".mjs", ".cjs", ".sh", ".toml", ".json"),
    )
    assert EXTENSIONS["directive"] == (".md",)


def test_added_extensions_come_behind_the_fixed_ones(workspace: Workspace, spaces: Spaces) -> None:
    path = put(workspace, "tools/acme/x.rb")
    with pytest.raises(ItemNotFound):
        locate(TOOL, spaces)
    assert locate(TOOL, spaces, more_extensions=(".rb",)).path == path
    other = put(workspace, "tools/acme/x.json")
    with pytest.raises(AmbiguousItem) as refused:
        locate(TOOL, spaces, more_extensions=(".rb",))
    assert refused.value.candidates == (str(other), str(path))


def test_an_extension_of_another_kind_does_not_count(workspace: Workspace, spaces: Spaces) -> None:
    put(workspace, "tools/acme/x.md")
    with pytest.raises(ItemNotFound):
        locate(TOOL, spaces)


def test_two_files_of_one_stem_are_refused_with_both_names(
    workspace: Workspace, spaces: Spaces
) -> None:
    shell, python = put(workspace, "tools/acme/x.sh"), put(workspace, "tools/acme/x.py")
    with pytest.raises(AmbiguousItem) as refused:
        locate(TOOL, spaces)
    assert refused.value.candidates == (str(python), str(shell))
    assert str(python) in str(refused.value)
    assert str(shell) in str(refused.value)
    shell.unlink()  # the next step: remove one
    assert locate(TOOL, spaces).path == python


def test_one_stem_in_two_spaces_is_no_ambiguity(workspace: Workspace, spaces: Spaces) -> None:
    put(workspace, "tools/acme/x.sh")
    put(workspace, "tools/acme/x.py", "user")
    put(workspace, "tools/acme/x.sh", "user")
    assert locate(TOOL, spaces).space.name == "project"


def test_not_found_lists_where_it_was_looked_for(spaces: Spaces) -> None:
    with pytest.raises(ItemNotFound, match="tool:acme/x was not found") as refused:
        locate(TOOL, spaces)
    assert isinstance(refused.value, LookupError)
    assert refused.value.item_id == "tool:acme/x"
    assert [place.partition(" ")[0] for place in refused.value.searched] == [
        *("project", "user", "system:ryecore", "system:acme"),
    ]
    assert all(place in refused.value.message for place in refused.value.searched)


@pytest.mark.parametrize("made", ["file", "folder"])
def test_a_link_out_of_the_kinds_folder_is_refused(
    workspace: Workspace, spaces: Spaces, made: str
) -> None:
    outside = workspace.root / "outside"
    outside.mkdir()
    (outside / "x.py").write_text("print()")
    folder = workspace.path("tools")
    folder.mkdir(parents=True)
    if made == "folder":
        (folder / "acme").symlink_to(outside)
    else:
        (folder / "acme").mkdir()
        (folder / "acme/x.py").symlink_to(outside / "x.py")
    with pytest.raises(InvalidItemId, match="leaves its folder") as refused:
        locate(TOOL, spaces)
    assert str(outside / "x.py") in str(refused.value)


def test_a_link_into_another_kinds_folder_is_refused(workspace: Workspace, spaces: Spaces) -> None:
    target = put(workspace, "knowledge/x.yaml")
    put(workspace, "tools/acme/y.py").with_name("x.yaml").symlink_to(target)
    with pytest.raises(InvalidItemId, match="leaves its folder"):
        locate(TOOL, spaces)


def test_a_link_within_the_kinds_folder_is_followed(workspace: Workspace, spaces: Spaces) -> None:
    target = put(workspace, "tools/acme/y.py")
    target.with_name("x.py").symlink_to("y.py")
    assert locate(TOOL, spaces).path == target.with_name("x.py")


def test_an_ai_folder_that_is_a_link_is_a_space_like_any_other(
    workspace: Workspace, spaces: Spaces
) -> None:
    put(workspace, "tools/acme/x.py")
    workspace.path("").rename(workspace.root / "dotfiles")
    workspace.path("").symlink_to(workspace.root / "dotfiles")
    assert locate(TOOL, spaces).path == workspace.path("tools/acme/x.py")


def test_links_in_a_circle_are_refused(workspace: Workspace, spaces: Spaces) -> None:
    path = put(workspace, "tools/acme/y.py").with_name("x.py")
    path.symlink_to("x.py")
    try:
        found = locate(TOOL, spaces)
    except ItemError:
        return
    with pytest.raises(OSError, match="symbolic links"):
        found.path.read_bytes()


def test_an_item_is_found_without_reading_its_folder_however_large_that_is(
    workspace: Workspace, spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(workspace, "tools/acme/x.py")

    def refuse(path: object) -> list[str]:
        raise AssertionError(f"{path} was listed")

    monkeypatch.setattr(os, "listdir", refuse)
    assert locate(TOOL, spaces).path == path


def test_a_folder_that_cannot_be_searched_is_an_item_error(
    workspace: Workspace, spaces: Spaces
) -> None:
    workspace.path("").mkdir()
    workspace.path("tools").symlink_to("tools")
    with pytest.raises(ItemError, match="can't be searched") as refused:
        locate(TOOL, spaces)
    assert "you may read" in refused.value.next_step


@pytest.mark.parametrize("item_id", ["../../outside/x", "a/../acme/x", "/x", "acme/x.y"])
def test_a_ref_that_was_made_by_hand_is_checked_too(
    workspace: Workspace, spaces: Spaces, item_id: str
) -> None:
    put(workspace, "tools/acme/x.py")
    (workspace.root / "outside").mkdir()
    (workspace.root / "outside/x.py").write_text("print()")
    with pytest.raises(InvalidItemId):
        locate(ItemRef("tool", item_id), spaces)


NOTHING, EMPTY, OTHERS, A_FILE = "no .ai", "an empty folder", "other tools", "a file in its place"


@pytest.mark.parametrize("before", [NOTHING, EMPTY, OTHERS, A_FILE])
@pytest.mark.parametrize("extension", [".py", ".json"])
def test_a_file_that_newly_shadows_is_noticed(
    workspace: Workspace, spaces: Spaces, before: str, extension: str
) -> None:
    put(workspace, "tools/acme/x.py", "user")
    if before == EMPTY:
        workspace.path("tools/acme").mkdir(parents=True)
    elif before == OTHERS:
        put(workspace, "tools/acme/other.py")
    elif before == A_FILE:
        put(workspace, "tools/acme")
    evidence = Evidence()
    assert locate(TOOL, spaces, evidence=evidence).space.name == "user"
    witness = evidence.witness()
    assert witness.holds()
    if before == A_FILE:
        workspace.path("tools/acme").unlink()
        assert witness.holds()
    put(workspace, f"tools/acme/x{extension}")
    assert not witness.holds()
    assert not evidence.witness().holds(), "nor where it came before the witness was taken"


def test_a_second_file_of_the_stem_is_noticed(workspace: Workspace, spaces: Spaces) -> None:
    put(workspace, "tools/acme/x.py")
    evidence = Evidence()
    locate(TOOL, spaces, evidence=evidence)
    witness = evidence.witness()
    put(workspace, "tools/acme/x.sh")
    assert not witness.holds()


def test_a_file_in_a_later_space_changes_no_decision(workspace: Workspace, spaces: Spaces) -> None:
    put(workspace, "tools/acme/x.py")
    evidence = Evidence()
    locate(TOOL, spaces, evidence=evidence)
    witness = evidence.witness()
    put(workspace, "tools/acme/x.py", "user")
    assert witness.holds()


def test_from_a_space_on_only_itself_and_later_ones_are_searched(spaces: Spaces) -> None:
    names = {
        name: [space.label for space in spaces.from_space(name)]
        for name in ("project", "user", "system")
    }
    assert names == {
        "project": ["project", "user", "system:ryecore", "system:acme"],
        "user": ["user", "system:ryecore", "system:acme"],
        "system": ["system:ryecore", "system:acme"],
    }


def test_every_bundle_counts_as_system(spaces: Spaces) -> None:
    assert [space.precedence for space in spaces] == [3, 2, 1, 1]
    assert [space.is_built_in for space in spaces] == [False, False, True, False]


def test_a_project_cannot_call_itself_built_in(tmp_path: Path) -> None:
    assert not Space("project", tmp_path, "ryecore").is_built_in


def offers_a_bundle() -> dict[str, str]:
    return {"bundle_id": "acme", "root_path": "/opt/acme"}


def offers_an_ai_folder() -> dict[str, str]:
    return {"bundle_id": "zebra", "root_path": "/opt/zebra/.ai"}


def claims_to_be_built_in() -> dict[str, str]:
    return {"bundle_id": "ryecore", "root_path": "/opt/evil"}


def offers_nothing() -> dict[str, str]:
    return {}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package whose entry points, by name, are functions of this module."""

    def install(folder: str = "offering-1.0.dist-info", **points: str) -> None:
        lines = [f"{name} = {__name__}:{value}\n" for name, value in points.items()]
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "METADATA").write_text("Name: offering\nVersion: 1.0\n")
        (tmp_path / folder / "entry_points.txt").write_text("[rye.bundles]\n" + "".join(lines))
        monkeypatch.syspath_prepend(tmp_path / Path(folder).parent)

    return install


@pytest.mark.parametrize("folder", ["offering-1.0.dist-info", "offering.egg/EGG-INFO"])
def test_installed_bundles_follow_the_built_in_one_by_name(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    install(folder, z="offers_an_ai_folder", a="offers_a_bundle")
    monkeypatch.syspath_prepend(tmp_path)
    built_in, *others = discover_bundles()
    assert built_in.is_built_in
    assert [(space.label, str(space.root)) for space in others] == [
        ("system:acme", "/opt/acme/.ai"),
        ("system:zebra", "/opt/zebra/.ai"),
    ]


def test_no_package_takes_the_place_of_the_built_in_bundle(install: Callable[..., None]) -> None:
    install(a="claims_to_be_built_in")
    assert [str(space.root).endswith("/ryecore/system/.ai") for space in discover_bundles()] == [
        True
    ]


@pytest.mark.parametrize("value", ["offers_nothing", "is_not_there"])
def test_a_bundle_that_cannot_be_loaded_is_named(install: Callable[..., None], value: str) -> None:
    install(broken=value)
    with pytest.raises(ConfigError, match="'broken'") as refused:
        discover_bundles()
    assert "uninstall the package" in refused.value.next_step


def test_a_finder_of_another_kind_is_asked_for_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    class Offering(Distribution):
        def read_text(self, filename: str) -> str | None:
            points = f"[rye.bundles]\na = {__name__}:offers_a_bundle\n"
            return {"METADATA": "Name: offering\n", "entry_points.txt": points}.get(filename)

        def locate_file(self, path: object) -> Path:  # type: ignore[override]
            return Path(str(path))

    class Finder(DistributionFinder):
        def find_spec(self, *_: object) -> None: ...

        def find_distributions(self, context: object = None) -> list[Distribution]:  # type: ignore[override]
            return [Offering()]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])

    assert [space.bundle for space in discover_bundles()] == ["ryecore", "acme"]
