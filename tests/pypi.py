"""Real programs from PyPI for tests, each in a virtual environment of its own, made once.

`python -m tests.pypi` makes all of them.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SETS: Final = Path(__file__).parent / "integration" / "pypi"
_INSTALLED: Final = Path(__file__).parents[1] / ".build" / "pypi"
_TIMEOUT_S: Final = 300
_UNREACHABLE: Final = re.compile(
    r"Temporary failure in name resolution|Connection refused|Network is unreachable"
    r"|Read timed out|No matching distribution found .*from versions: none"
)


def pypi_program(name: str) -> Path:
    """Have a program: what `tests/integration/pypi/NAME.txt` pins.

    Args:
        name: The package, and its program.

    Returns:
        The program.
    """
    found = _have(name)
    if isinstance(found, str):
        pytest.skip(found)
    return found / "bin" / name


@cache
def _have(name: str) -> Path | str:
    """The virtual environment, or why it can't be had; asked once, since pip tries for long."""
    pins = SETS / f"{name}.txt"
    digest = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:16]
    installed = _INSTALLED / digest
    _INSTALLED.mkdir(parents=True, exist_ok=True)
    with open(_INSTALLED / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Scripts name the environment's path, so it is made in place; a mark says that it is whole.
        if (installed / "whole").exists():
            return installed
        shutil.rmtree(installed, ignore_errors=True)
        make = [sys.executable, "-m", "venv", "--without-pip", installed]
        subprocess.run(make, check=True, timeout=_TIMEOUT_S)
        pip = [sys.executable, "-m", "pip", "--python", installed / "bin/python"]
        done = subprocess.run(
            [*pip, "install", "-q", "--no-deps", "--no-compile", "-r", pins],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode == 0:
            (installed / "whole").touch()
            return installed
    shutil.rmtree(installed, ignore_errors=True)
    if found := _UNREACHABLE.search(done.stderr):
        return f"pip can't reach its index from here ({found[0]})"
    pytest.fail(f"pip failed for {pins}:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    for _pins in sorted(SETS.glob("*.txt")):
        if isinstance(_found := _have(_pins.stem), str):
            print(f"Left out: tests with {_pins.stem}: {_found}.")
