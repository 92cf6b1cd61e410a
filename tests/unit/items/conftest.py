"""What the tests of items share."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ryecore.items.spaces import Space, Spaces, built_in_space
from ryecore.lillux.keys import SigningKey
from tests.house import House


@pytest.fixture
def spaces(house: House) -> Spaces:
    """The spaces of the house, with a third-party bundle beside the built-in one."""
    return Spaces(
        Space("project", house.project / ".ai"),
        Space("user", house.user / ".ai"),
        (built_in_space(), Space("system", house.root / "bundle" / ".ai", "acme")),
    )


@pytest.fixture
def stranger() -> SigningKey:
    """A key that nobody knows."""
    return SigningKey.generate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, where one may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)
