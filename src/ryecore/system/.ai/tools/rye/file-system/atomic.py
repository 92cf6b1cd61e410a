# rye:signed:2026-11-28T17:20:55Z:a1169e73c81c806be8fc91ec1f1a06316744ae4ef93f9bfd1b36fbaa057918a3:UbxJ_Xqmpc-S8bR5RT0-vIFhgulE-llISKSVxa3h5K3X6TtneXrWuIloeUq_wQSkK_ZAZx0SQLQjKgkwgsgTDA:a50d0ff255b90b74
"""Replacing a file in one step: at every moment there is the old content or the new one."""

from __future__ import annotations

import os
import signal
import sys
import time

from answers import Refused
from confined import require_regular

LOCK_WAIT_S = 10.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def lock(folder: int) -> None:
    """Wait until no other file tool changes a file in this folder.

    The lock goes with the descriptor. Without it, of two edits of one file at the same time the
    later would undo the earlier.
    """
    import fcntl

    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Refused(
                    f"Its folder is locked by {_holder_of(folder)} for more than "
                    f"{LOCK_WAIT_S:.0f} s; nothing was changed. Let that process go on or end it, "
                    "then try again."
                ) from None
            time.sleep(0.005)
        except OSError:
            return  # a file system without locks: each change is still whole
        else:
            return


def _holder_of(folder: int) -> str:
    inode = str(os.fstat(folder).st_ino)
    try:
        with open("/proc/locks", encoding="ascii") as file:
            for line in file:
                fields = line.split()
                if "->" not in fields and fields[-3].endswith(f":{inode}"):
                    return f"process {fields[-4]}"
    except (OSError, IndexError):
        pass
    return "another process"


def existing(folder: int, name: str, shown: str) -> os.stat_result | None:
    """Return the status of the file to replace; None if it doesn't exist.

    It must be a regular file that can be written; errors call it `shown`.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    require_regular(status, shown)
    if not os.access(name, os.W_OK, dir_fd=folder):
        raise Refused(f"{shown!r} is read-only; change its mode first if it is to be written.")
    return status


def replace(
    folder: int, name: str, pieces: Iterable[bytes], before: os.stat_result | None, shown: str
) -> int:
    """Write a file beside its name and move it there once it is whole and on disk; return its size.

    The mode and owner of `before` are kept; None means that there must be no file yet. After a
    failure, nothing is left of the new file. Errors call it `shown`.
    """
    # A tool that is told to end cleans up as well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    temporary = f".rye-{os.urandom(8).hex()}.tmp"
    try:
        size = _write(folder, temporary, pieces, before)
        if before is not None or not _linked(folder, temporary, name):
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise Refused(f"{shown!r} exists already; nothing was changed.") from None
    except OSError as failure:
        raise Refused(
            f"{shown!r} could not be written: {failure.strerror}. Nothing was changed."
        ) from failure
    finally:
        _remove(folder, temporary)
    return size


def _write(folder: int, name: str, pieces: Iterable[bytes], before: os.stat_result | None) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    size = 0
    with open(os.open(name, flags, 0o666, dir_fd=folder), "wb", buffering=0) as file:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[file.write(rest) :]
            size += len(piece)
        if before is not None:
            _give(file.fileno(), before)
            os.fchmod(file.fileno(), before.st_mode & 0o777)
        os.fsync(file.fileno())
    return size


def _give(descriptor: int, before: os.stat_result) -> None:
    """Give a file the owner that it had before, where that may be done."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except PermissionError:
        return  # only root may give files away


def _linked(folder: int, temporary: str, name: str) -> bool:
    """Give a new file its name, failing where it is taken as a rename would not."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise
    except OSError:
        return False  # a file system without hard links
    return True


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return  # it has its real name
