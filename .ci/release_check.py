"""Say whether this repository can be released, by its own graph, .ai/tools/house/release.yaml.

    make release-check [TAG=v1.2.3]

It exits with 0 where it can, with 1 where a check has found something, with 2 where none was made.
Who runs it trusts the key that this checkout's files are sealed with, for this one run.
"""

import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import anyio

from ryecore import Rye
from ryecore.errors import ConfigError, RyeError

ROOT = Path(__file__).resolve().parents[1]


def sealing_key() -> str:
    """The public key that stands beside the sealed files, as PEM.

    Raises:
        ConfigError: There is none, or more than one.
    """
    keys = [*(ROOT / ".ai/config/keys/trusted").glob("*.toml")]
    if len(keys) != 1:
        raise ConfigError(f"{ROOT} is sealed with {len(keys)} keys.", next_step="Run: make seal")
    return str(tomllib.loads(keys[0].read_text())["public_key"]["pem"])


async def check(inputs: dict[str, str]) -> tuple[bool, str]:
    """Run the graph.

    Returns:
        Whether all is well, and the report.
    """
    environ = {**os.environ, "RYE_PYTHON": sys.executable}  # where ryecore is installed
    async with Rye.open(ROOT, trusted_keys=[sealing_key()], environ=environ) as rye:
        done = await rye.graphs.run("tool:house/release", inputs)
    if done.failed is None:
        return True, str(done.data["output"]["report"])
    where = "" if done.failed.node == "report" else f"The check '{done.failed.node}' failed: "
    return False, f"{where}{done.failed.message}"


def main(tags: Sequence[str]) -> int:
    """Print the report; return the exit code."""
    try:
        is_well, report = anyio.run(check, {"tag": tags[0]} if tags else {})
    except RyeError as refusal:
        print(refusal, file=sys.stderr)
        return 2
    print(report)
    return 0 if is_well else 1


if __name__ == "__main__":
    raise SystemExit(main([tag for tag in sys.argv[1:] if tag]))
