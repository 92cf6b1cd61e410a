"""Prune ended threads after a run, at most once a day, where signed configuration says so.

A run is a thread, a graph's run, or a tool that ran in a process of its own.

Source: ADR 027.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from ryecore.display.notices import warn
from ryecore.errors import RyeError
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore
    from ryecore.threads.planner.planning import DirectivePlanner

__all__ = ["AutomaticPruning"]

_EVERY_S: Final = 86_400
_LOOK_EVERY_S: Final = 60.0
_MOST_S: Final = 2.0
_MARK: Final = "pruned-at"


class AutomaticPruning:
    """Prunes what signed configuration doesn't keep, for all runs of one Rye.

    Args:
        store: Opens the project's threads.
        planner: Reads the configuration.
    """

    def __init__(self, store: "Callable[[], ThreadStore]", planner: "DirectivePlanner") -> None:
        self._store = store
        self._planner = planner
        self._look_at = 0.0

    async def __call__(self) -> None:
        """Prune, unless that was done within a day. Called behind each run's end.

        One family is removed at least, and others for two seconds, in a worker thread; what is left
        waits for the next run's end. The configuration is looked at once a minute at most. That it
        fails is a warning, and never a run's failure.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_EVERY_S  # of many ends at once, one looks
        try:
            # Whoever closes the Rye right behind the run's end, as commands do, waits for it.
            with anyio.CancelScope(shield=True):
                if not await run_in_thread(self._prune):
                    self._look_at = 0.0
        except RyeError as error:
            warn(f"Ended threads could not be pruned: {error}")

    def _prune(self) -> bool:
        """Prune for a while; whether nothing is left to prune."""
        kept = self._planner.retention()
        if kept is None:
            return True
        store = self._store()
        mark = store.private_folder / _MARK
        with suppress(OSError):
            if 0 <= time.time() - mark.stat().st_mtime < _EVERY_S:
                return True
        pruning = store.pruning
        pruning.finish()
        families = pruning.plan(kept, measures=False).families
        began = time.monotonic()
        for number, family in enumerate(families):
            if number and time.monotonic() - began > _MOST_S:
                return False  # the mark stays old, so that the next run's end continues
            pruning.prune(family)
        with suppress(OSError):
            mark.touch(mode=0o600)
            os.utime(mark)
        return True
