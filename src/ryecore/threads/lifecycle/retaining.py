"""Prune ended threads behind a run's end, at most once a day, where signed configuration says so.

Source: ADR 027.
"""

import os
import time
from contextlib import suppress
from typing import Final

from ryecore.errors import RyeError
from ryecore.notices import warn
from ryecore.state.locking import run_in_thread
from ryecore.threads.host import ThreadHost
from ryecore.threads.planner.retention import retention

__all__ = ["prune_when_due"]

_EVERY_S: Final = 86_400
_MOST_S: Final = 2.0
_MARK: Final = ".pruned-at"


async def prune_when_due(host: ThreadHost) -> None:
    """Prune what the configuration doesn't keep, unless that was done within a day.

    It takes at most two seconds; what is left waits for the next run's end. That it fails is a
    warning, and never a run's failure.

    Args:
        host: What the threads of the Rye have in common.
    """
    try:
        await run_in_thread(_prune, host)
    except RyeError as error:
        warn(f"Ended threads could not be pruned: {error}")


def _prune(host: ThreadHost) -> None:
    kept = retention(host.planner)
    if kept is None:
        return
    mark = host.store.folder / _MARK
    with suppress(OSError):
        if 0 <= time.time() - mark.stat().st_mtime < _EVERY_S:
            return
    began, pruning = time.monotonic(), host.store.pruning
    pruning.finish()
    for family in pruning.plan(kept).families:
        if time.monotonic() - began > _MOST_S:
            return  # the mark stays old, so the next end goes on
        pruning.prune(family)
    with suppress(OSError):
        mark.touch(mode=0o600)
        os.utime(mark)
