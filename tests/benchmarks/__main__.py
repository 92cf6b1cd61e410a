"""The quick set: python -m tests.benchmarks [NAME ...]. Prints one JSON line a figure."""

import importlib
import sys

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
    for name in names or _QUICK:
        importlib.import_module(f"tests.benchmarks.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
