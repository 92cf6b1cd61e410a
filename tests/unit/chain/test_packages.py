"""Package folders: linked, and verified only where a signed lock vouches for them."""

from pathlib import Path

import pytest

from ryecore.errors import AnchorError
from ryecore.items.packages import lock_packages
from tests.house import House

READS_PACKAGE = """
def execute(params, project_path):
    import os
    with open(os.path.join(os.path.dirname(__file__), ".venv", "package.txt")) as file:
        return file.read()
"""


@pytest.fixture
def packages(house: House) -> Path:
    house.python("acme/tool", READS_PACKAGE)
    house.write("tools/acme/__init__.py", "")
    folder = house.path("tools/acme/.venv")
    folder.mkdir()
    (folder / "package.txt").write_text("one")
    return folder


def test_a_package_folder_is_linked_and_counts_as_unverified(house: House, packages: Path) -> None:
    done = house.execute("tool:acme/tool")
    assert (done.data, done.metadata.get("deps")) == ("one", "unverified")


def test_a_signed_lock_makes_it_verified(house: House, packages: Path) -> None:
    lock_packages(packages, house.key)
    done = house.execute("tool:acme/tool")
    assert done.data == "one"
    assert "deps" not in done.metadata


@pytest.mark.parametrize("change", ["altered", "added"])
def test_a_folder_that_changed_since_it_was_locked_is_refused(
    house: House, packages: Path, change: str
) -> None:
    lock_packages(packages, house.key)
    with house.sync() as rye:
        rye.execute("tool:acme/tool").raise_for_status()
        name = "package.txt" if change == "altered" else "more.txt"
        (packages / name).write_text("two")
        with pytest.raises(AnchorError, match=r"rye sign --packages .*\.venv"):
            rye.execute("tool:acme/tool")
        lock_packages(packages, house.key)
        assert rye.execute("tool:acme/tool").success
