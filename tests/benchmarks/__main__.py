"""The quick set: python -m tests.benchmarks [NAME ...]. Prints one JSON line a figure."""

import importlib
import sys
from importlib.util import find_spec

_QUICK = (
    "checkpoints",
    "spawn",
    "concurrency",
    "palette",
    "verification",
    "governed",
    "importing",
    "ledger",
    "search",
    "threads",
    "tools",
    "transcript",
    "turns",
)


def main(names: list[str]) -> None:
    """Run benchmarks by name; all of the quick set by default."""
    unknown = [name for name in names if not name.isidentifier() or not find_spec(_module(name))]
    if unknown:
        sys.exit(f"No benchmark is named {', '.join(unknown)}: tests/benchmarks has one a module.")
    for name in names or _QUICK:
        importlib.import_module(_module(name)).run()


def _module(name: str) -> str:
    return f"tests.benchmarks.{name}"


if __name__ == "__main__":
    main(sys.argv[1:])
