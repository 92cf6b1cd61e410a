"""Package folders: linked, and verified only where a signed lock vouches for them."""

from pathlib import Path

import pytest

from ryecore.errors import AnchorError, SigningError
from ryecore.items.packages import lock_packages
from tests.workspace import Workspace

READS_PACKAGE = """
def execute(params, project_path):
    import os
    with open(os.path.join(os.path.dirname(__file__), ".venv", "package.txt")) as file:
        return file.read()
"""


@pytest.fixture
def packages(workspace: Workspace) -> Path:
    workspace.python("acme/tool", READS_PACKAGE)
    workspace.write("tools/acme/__init__.py", "")
    folder = workspace.path("tools/acme/.venv")
    folder.mkdir()
    (folder / "package.txt").write_text("one")
    return folder


def test_a_package_folder_is_linked_and_counts_as_unverified(
    workspace: Workspace, packages: Path
) -> None:
    done = workspace.execute("tool:acme/tool")
    assert (done.data, done.metadata.get("deps")) == ("one", "unverified")


def test_a_signed_lock_makes_it_verified(workspace: Workspace, packages: Path) -> None:
    lock_packages(packages, workspace.key)
    done = workspace.execute("tool:acme/tool")
    assert done.data == "one"
    assert "deps" not in done.metadata


@pytest.mark.parametrize("change", ["altered", "added"])
def test_a_folder_that_changed_since_it_was_locked_is_refused(
    workspace: Workspace, packages: Path, change: str
) -> None:
    lock_packages(packages, workspace.key)
    with workspace.sync() as rye:
        rye.execute("tool:acme/tool").raise_for_status()
        name = "package.txt" if change == "altered" else "more.txt"
        (packages / name).write_text("two")
        with pytest.raises(AnchorError, match=r"rye sign --packages .*\.venv"):
            rye.execute("tool:acme/tool")
        lock_packages(packages, workspace.key)
        assert rye.execute("tool:acme/tool").success


@pytest.fixture
def linked_package(workspace: Workspace, packages: Path) -> Path:
    """A package folder in which one package is a link to another folder of it."""
    store = packages / "store" / "one"
    store.mkdir(parents=True)
    (store / "index.txt").write_text("one")
    link = packages / "one"
    link.symlink_to("store/one")
    return link


@pytest.mark.parametrize("change", ["added", "led elsewhere"])
def test_a_link_to_a_folder_is_part_of_what_is_locked(
    workspace: Workspace, packages: Path, linked_package: Path, change: str
) -> None:
    lock_packages(packages, workspace.key)
    assert "deps" not in workspace.execute("tool:acme/tool").metadata
    if change == "added":
        (packages / "two").symlink_to("store/one")
    else:
        (packages / "store" / "two").mkdir()
        linked_package.unlink()
        linked_package.symlink_to("store/two")
    with pytest.raises(AnchorError, match="not as it was"):
        workspace.execute("tool:acme/tool")


def test_a_folder_with_a_link_that_leaves_it_is_not_locked(
    workspace: Workspace, packages: Path
) -> None:
    outside = workspace.project / "evil"
    outside.mkdir()
    (packages / "evil").symlink_to(outside)
    with pytest.raises(SigningError, match=rf"{packages}/evil is a link .* {outside}"):
        lock_packages(packages, workspace.key)


def test_a_link_that_leaves_a_locked_folder_later_is_refused(
    workspace: Workspace, packages: Path
) -> None:
    lock_packages(packages, workspace.key)
    (packages / "evil").symlink_to(workspace.project)
    with pytest.raises(AnchorError, match=rf"{packages}/evil is a link"):
        workspace.execute("tool:acme/tool")


def test_an_environments_own_interpreter_may_be_a_link_that_leaves_it(
    workspace: Workspace, packages: Path
) -> None:
    (packages / "bin").mkdir()
    (packages / "bin" / "python").symlink_to("/usr/bin/env")
    lock_packages(packages, workspace.key)
    assert "deps" not in workspace.execute("tool:acme/tool").metadata


def test_a_link_to_a_module_that_leaves_node_modules_is_not_locked(workspace: Workspace) -> None:
    # Node resolves what such a module imports from the place that the link leads to.
    folder = workspace.path("tools/acme/node_modules")
    folder.mkdir(parents=True)
    module = workspace.project / "module.js"
    module.write_text("")
    (folder / "module.js").symlink_to(module)
    with pytest.raises(SigningError, match="is a link"):
        lock_packages(folder, workspace.key)
