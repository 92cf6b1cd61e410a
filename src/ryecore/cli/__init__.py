"""The `rye` command: its commands, their options, and their output."""

import gc
import sys
from typing import Final

__all__ = ["main"]

_COLLECT_AFTER: Final = 100_000
"""The number of new objects, by default 700, after which Python looks for garbage."""


def main() -> None:
    """Run the command; see `rye --help`."""
    # Most commands end before their garbage is worth a collection, and imports make many objects.
    gc.set_threshold(_COLLECT_AFTER)
    try:
        from ryecore.cli.commands import rye  # noqa: PLC0415 - `rye` is also a library
    except KeyboardInterrupt:  # before there is anything to stop
        sys.exit("\nAborted!")

    try:
        sys.exit(rye.main(standalone_mode=True))
    except OSError as problem:  # commands report it themselves, but click prints help
        from ryecore.cli.output import is_output_lost  # noqa: PLC0415 - only after a failure

        if not is_output_lost(problem):
            raise
        sys.exit(1)
    finally:
        # All that is left ends with the process: the interpreter's last collections, which would
        # walk through every object of it, pass over what is frozen.
        gc.freeze()
