"""Holders of file locks, for errors that name them."""

import fcntl
import os
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ryecore.display.sanitize import replace_controls
from ryecore.frozen import frozen

__all__ = ["LockHolder", "describe_holders", "find_lock_holders", "is_locked", "release_advice"]

_MAX_COMMAND: Final = 80
_STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "a zombie",
    "X": "dead",
    "I": "idle",
}
_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""

_OFD_GETLK: Final = 36


@frozen
class LockHolder:
    """A process that holds a lock; its command line is cut, and empty if it is unreadable."""

    pid: int
    command: str
    state: str
    running_s: float | None

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped by a signal or a debugger, and needs somebody to continue it."""
        return self.state.startswith("stopped")

    @property
    def is_self(self) -> bool:
        """Whether it is the calling process."""
        return self.pid == os.getpid()

    def to_dict(self) -> dict[str, object]:
        """Return the holder as a JSON-ready object."""
        running_s = None if self.running_s is None else round(self.running_s, 1)
        return {
            "pid": self.pid,
            "command": self.command,
            "state": self.state,
            "running_s": running_s,
        }


def find_lock_holders(*paths: Path, shared_too: bool = False) -> tuple[LockHolder, ...]:
    """Return the processes that hold a lock of any of these files, as `/proc/locks` lists them.

    A process of another pid namespace, such as another container, is not listed there. Shared
    locks exclude only writers.
    """
    files: dict[int, tuple[int, Path]] = {}
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            files[status.st_ino] = (status.st_dev, path)
    pids: dict[int, None] = {}
    for pid, device, inode in _listed_locks(shared_too):
        if inode in files:
            known_device, path = files[inode]
            # A layered file system reports another device to stat than to /proc/locks.
            if device == known_device or _has_open(pid, path):
                pids[pid] = None
    return tuple(_holder(pid) for pid in pids)


def is_locked(path: Path, start: int = 0, length: int = 0) -> bool:
    """Return whether any process, of any container, holds a POSIX lock in a range of a file.

    The file must not be one whose POSIX locks the calling process relies on: closing any
    descriptor of a file gives all of them up. A `length` of 0 bytes reaches to the end.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(descriptor, _OFD_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


def describe_holders(holders: Iterable[LockHolder]) -> str:
    """Return the holders of a lock as a part of a sentence: `process 12 (rye), which is ...`."""
    described: list[str] = []
    for one in holders:
        command = f" ({one.command})" if one.command else ""
        name = f"this process itself, {one.pid}" if one.is_self else f"process {one.pid}{command}"
        described.append(f"{name}, which is {one.state}")
    return " and ".join(described) or "a process that can't be seen from here"


def release_advice(holders: Iterable[LockHolder]) -> str:
    """Return the next step for a caller that waits for a lock."""
    found = tuple(holders)
    stopped = [str(one.pid) for one in found if one.is_stopped]
    if stopped:
        pids = " ".join(stopped)
        return f"Continue it (kill -CONT {pids}) or end it (kill -KILL {pids}), then try again."
    others = [str(one.pid) for one in found if not one.is_self]
    if others:
        return f"Wait until it is done, or end it (kill {' '.join(others)}), then try again."
    if found:
        return "Another part of this program writes: try again when it is done."
    return "Look for it in the other containers that use this project, then try again."


def _listed_locks(shared_too: bool) -> Iterator[tuple[int, int, int]]:
    """Yield the pid, device and inode of each lock that is held; waiting ones are left out."""
    with suppress(OSError), open("/proc/locks", encoding="ascii", errors="replace") as file:
        for line in file:
            fields = line.split()
            if "->" in fields or not (shared_too or "WRITE" in fields):
                continue
            with suppress(ValueError, IndexError):
                major, minor, inode = fields[5].split(":")
                pid = int(fields[4])
                if pid > 0:  # -1: a lock of an open file, such as SQLite's of other builds
                    yield pid, os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _has_open(pid: int, path: Path) -> bool:
    wanted = os.path.realpath(path)
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for descriptor in os.listdir(folder):
            with suppress(OSError):
                if os.readlink(f"{folder}/{descriptor}") == wanted:  # noqa: PTH115
                    return True
    return False


def _holder(pid: int) -> LockHolder:
    state, running_s = "gone; what it started may keep the file open", None
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        fields = stat[stat.rindex(b")") + 2 :].split()
        state = _STATES.get(fields[0].decode(), "alive")
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        running_s = max(time.clock_gettime(time.CLOCK_BOOTTIME) - started_s, 0.0)
    return LockHolder(pid, _command_of(pid), state, running_s)


def _command_of(pid: int) -> str:
    with suppress(OSError):
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()[: 4 * _MAX_COMMAND]
        raw = raw or Path(f"/proc/{pid}/comm").read_bytes()
        text = raw.replace(b"\0", b" ").decode(errors="replace").strip()
        shown = replace_controls(text)
        return shown if len(shown) <= _MAX_COMMAND else f"{shown[: _MAX_COMMAND - 1]}…"
    return ""
