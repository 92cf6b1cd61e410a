"""Say whether this repository can be released, by its own graph, .ai/tools/house/release.yaml.

    make release-check [TAG=v1.2.3]

It exits with 0 where it can, with 1 where a check has found something, with 2 where none was made.
Who runs it trusts the key that this checkout's files are sealed with, for this one run.
"""

import os
import sys
import tomllib
from pathlib import Path

import anyio

from ryecore import Rye
from ryecore.errors import RyeError

ROOT = Path(__file__).resolve().parents[1]


async def check(inputs: dict[str, str]) -> int:
    """Run the graph, and print its report."""
    (key,) = (ROOT / ".ai/config/keys/trusted").glob("*.toml")
    pem = tomllib.loads(key.read_text())["public_key"]["pem"]
    environ = {**os.environ, "RYE_PYTHON": sys.executable}  # where ryecore is installed
    async with Rye.open(ROOT, trusted_keys=[pem], environ=environ) as rye:
        done = await rye.graphs.run("tool:house/release", inputs)
    if done.failed is not None:
        where = "" if done.failed.node == "report" else f"The check '{done.failed.node}' failed: "
        print(f"{where}{done.failed.error}")
        return 1
    print(done.data["output"]["report"])
    return 0


if __name__ == "__main__":
    tags = sys.argv[1:2]
    try:
        raise SystemExit(anyio.run(check, {"tag": tags[0]} if tags and tags[0] else {}))
    except RyeError as refusal:
        raise SystemExit(print(refusal, file=sys.stderr) or 2) from None
