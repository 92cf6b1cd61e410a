"""A file system with little room, for tests of what happens when it is full."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill_disk", "mount_small_disk"]


@contextmanager
def mount_small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system on a folder; where that isn't permitted, the test is skipped.

    Args:
        folder: The folder, which is made unless it is there.
        size: How much room it has, such as `64k`.
    """
    folder.mkdir(exist_ok=True)
    command = [shutil.which("mount") or "false", "-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
    if subprocess.run([*command, str(folder)], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield folder
    finally:
        # What the test has killed may still be ending, with files of it open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_disk(disk: Path) -> Path:
    """Write until there is no room, and return the file that takes it all."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (65536, 4096, 512, 1):
            while True:
                try:
                    os.write(descriptor, b"x" * size)
                except OSError:
                    break
    finally:
        os.close(descriptor)
    return filler
