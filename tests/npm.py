"""Real npm packages for tests, pinned by a lock file and installed once.

`python -m tests.npm` installs all of them.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SETS: Final = Path(__file__).parent / "integration" / "node"
_INSTALLED: Final = ROOT / ".build" / "npm"
_TIMEOUT_S: Final = 300
# What npm says when it couldn't reach a registry; any other failure is one of the tests.
_UNREACHABLE: Final = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH"
    r"|ERR_SOCKET_TIMEOUT|ENOTCACHED)\b"
)


def npm_set(name: str) -> Path:
    """Have a set of packages: what `tests/integration/node/NAME/package-lock.json` pins.

    The folder is shared by all runs of the tests: whoever wants to change it makes a copy.

    Args:
        name: The set, such as `tsx` or `mcp`.

    Returns:
        The folder that holds the set's `node_modules`.
    """
    found = npm_folder(name)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def npm_program(name: str, program: str) -> Path:
    """A program of a set, such as `npm_program("tsx", "tsx")`."""
    return npm_set(name) / "node_modules" / ".bin" / program


@cache
def npm_folder(name: str) -> Path | str:
    """The folder of a set, or why it can't be had; asked once, since npm tries for long."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "Node and npm are not installed here; CI installs them"
    source = SETS / name
    pinned = [(source / file).read_bytes() for file in ("package.json", "package-lock.json")]
    installed = _INSTALLED / hashlib.sha256(b"\0".join(pinned)).hexdigest()[:16]
    _INSTALLED.mkdir(parents=True, exist_ok=True)
    with open(_INSTALLED / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return installed if installed.is_dir() else _install(source, installed)


def _install(source: Path, installed: Path) -> Path | str:
    """Install beside the place, and put it there whole: a run may be killed at any time."""
    temporary = installed.with_name(f".new-{installed.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=temporary,
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if done.returncode == 0:
        temporary.rename(installed)
        return installed
    shutil.rmtree(temporary, ignore_errors=True)
    if found := _UNREACHABLE.search(done.stderr):
        return f"npm can't reach its registry from here ({found[0]})"
    pytest.fail(f"npm ci failed for {source}:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    for _set in sorted(one.name for one in SETS.iterdir()):
        if isinstance(_found := npm_folder(_set), str):
            print(f"Left out: tests with the npm packages of {_set}: {_found}.")
