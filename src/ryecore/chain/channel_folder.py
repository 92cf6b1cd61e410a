"""The private folder of a host's pipes, and the removal of what killed hosts have left."""

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["ChannelFolder"]

_PREFIX: Final = "rye-calls-"


class ChannelFolder:
    """The private folder in which the pipes of an executor's calls are.

    It is locked for as long as it is used. One that nobody has locked is that of a host that was
    killed, and the next host removes it.
    """

    def __init__(self) -> None:
        self._folder: str | None = None
        self._lock = -1

    def make_pipe(self) -> str:
        """Make a pipe with a name of its own, and return its path.

        Raises:
            OSError: It can't be made.
        """
        for is_last in (False, True):
            if self._folder is None:
                self._make()
            path = f"{self._folder}/{os.urandom(16).hex()}"
            try:
                os.mkfifo(path, 0o600)
            except FileNotFoundError:  # somebody has cleared the temporary files
                self.close()
                if is_last:
                    raise
            else:
                return path
        raise AssertionError

    def close(self) -> None:
        """Remove the folder, which is empty once all calls have ended."""
        if self._folder is None:
            return
        with suppress(OSError):
            Path(self._folder).rmdir()
        self._folder = None
        os.close(self._lock)

    def _make(self) -> None:
        _sweep(tempfile.gettempdir())
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # another host looks whether it is left: it is made anew then
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._folder = folder


def _sweep(parent: str) -> None:
    """Remove the folders of hosts of this user that were killed."""
    with os.scandir(parent) as found:
        names = [one.name for one in found if one.name.startswith(_PREFIX)]
    for name in names:
        with suppress(OSError):  # it is another user's, or is used
            _remove_unlocked(f"{parent}/{name}")


def _remove_unlocked(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(descriptor):
            if stat.S_ISFIFO(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=descriptor)
        Path(folder).rmdir()
    finally:
        os.close(descriptor)
