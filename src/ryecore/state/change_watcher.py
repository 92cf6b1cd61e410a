"""The watching of a folder of state for changes."""

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio

from ryecore.lillux.watching import Watcher, watch

__all__ = ["ChangeWatcher", "signal_change"]

_LOOK_EVERY_S: Final = 1.0


class ChangeWatcher:
    """Waits for changes of a thread, for one task at a time.

    The kernel reports them, for as many folders as a user may watch at once (128 on most machines,
    for all of that user's programs). Watchers beyond that check every second.
    """

    def __init__(self, folder: Path) -> None:
        self._watcher: Watcher | None
        try:
            self._watcher = watch(folder)
        except OSError:
            self._watcher = None

    async def changed(self, timeout_s: float) -> None:
        """Wait for a change, or until it is time to check without one."""
        if self._watcher is not None:
            try:
                await self._watcher.changed(timeout_s)
                return
            except OSError:
                self.close()
        await anyio.sleep(min(timeout_s, _LOOK_EVERY_S))

    def close(self) -> None:
        """Stop watching."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def signal_change(path: str, content: bytes = b"") -> None:
    """Write a file that others watch. A failure is ignored: nobody relies on it alone.

    A link of a clone isn't followed, and a FIFO isn't waited for.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
