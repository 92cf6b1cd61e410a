"""A process that ends its whole group when the process that made it is gone.

What a server starts is nobody's child that could be told of by the kernel: `npx` starts node, and
node the server. So when a connector ends without having tidied up, even by SIGKILL, its guard kills
what is left of the group.
"""

import os
import signal
from contextlib import suppress
from typing import Final

__all__ = ["Guard"]

_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class Guard:
    """Made by the leader of a process group, before it has threads."""

    def __init__(self) -> None:
        self._pid, self._alive = 0, -1
        if os.getpgrp() != os.getpid():
            return  # somebody else's group, such as a shell's
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
        """Tell it that all is tidied up, and wait for its end."""
        if self._pid == 0:
            return
        with suppress(OSError):  # somebody has killed it
            os.write(self._alive, b".")
        os.close(self._alive)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0


def _watch(alive: int) -> None:
    """Wait for the end of the other side; runs in the guard, and never returns."""
    is_dismissed = False
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # or whoever reads them would wait for this process
            os.dup2(nothing, stream)
        is_dismissed = bool(os.read(alive, 1))
    finally:
        if not is_dismissed:
            os.killpg(0, signal.SIGKILL)
        os._exit(0)
