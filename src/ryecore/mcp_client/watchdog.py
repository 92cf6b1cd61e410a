"""The watchdog of a connector: a process that kills their group when the connector dies.

The kernel can't tie a server's own children to the connector: `npx` starts node, and node the
server. So when a connector ends without having cleaned up, even by SIGKILL, its watchdog kills the
rest of the group.
"""

import os
import signal
from contextlib import suppress
from typing import Final

__all__ = ["Watchdog"]

_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class Watchdog:
    """A watchdog over the group that this process leads. Made before there are threads."""

    def __init__(self) -> None:
        self._pid, self._alive = 0, -1
        if os.getpgrp() != os.getpid():
            return  # the group of another process, such as a shell
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            _watch(read)
        os.close(read)
        self._pid, self._alive = pid, write

    @property
    def leads_group(self) -> bool:
        """Whether this process leads a group of its own, which it may signal."""
        return self._pid != 0

    def dismiss(self) -> None:
        """Dismiss the watchdog, as all is cleaned up, and wait for its end."""
        if self._pid == 0:
            return
        with suppress(OSError):  # it was killed
            os.write(self._alive, b".")
        os.close(self._alive)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0


def _watch(alive: int) -> None:
    """Wait in the watchdog for the end of the connector; never return."""
    is_dismissed = False
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # else their readers would wait for this process
            os.dup2(nothing, stream)
        is_dismissed = bool(os.read(alive, 1))
    finally:
        if not is_dismissed:
            os.killpg(0, signal.SIGKILL)
        os._exit(0)
