"""The `rye` command: its commands, their options, and their output."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; see `rye --help`."""
    try:
        from ryecore.cli.commands import rye  # noqa: PLC0415 - `rye` is also a library
    except KeyboardInterrupt:  # before there is anything to stop
        sys.exit("\nAborted!")

    sys.exit(rye.main(standalone_mode=True))
