"""The audit log: a record of each execute, written to a file or passed to a function.

A record of the beginning has to be written before anything runs. One of an end may come late: it
is kept until it can be written.

Source: ADR 036.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

from ryecore.convert.json_text import make_encoder
from ryecore.display.sanitize import warn
from ryecore.errors import AuditError, ConfigError
from ryecore.lillux.event_loop import run_in_thread, shielded
from ryecore.policy.execution import AuditRecord

__all__ = ["Audit", "AuditFile", "AuditLog", "audit_path"]

Audit: TypeAlias = Callable[[AuditRecord], Awaitable[None] | None]
"""Takes a record, at once or awaited. What it raises refuses the execute that is to begin."""

_encode: Final = make_encoder()
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MAX_WAITING: Final = 1_000


def audit_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of an audit log's file, its folder without links.

    Raises:
        ConfigError: Its folder doesn't exist.
    """
    named = Path(path).expanduser()
    try:
        folder = named.parent.resolve(strict=True)
    except (OSError, RuntimeError):
        folder = None
    if folder is None or not folder.is_dir() or not named.name:
        raise ConfigError(
            f"The audit log {os.fspath(path)!r} has no folder to lie in.",
            next_step="Make the folder, for its owner alone: install -d -m 700 FOLDER",
        )
    return str(folder / named.name)


class AuditFile:
    """The file of an audit log: a JSON line for each record, for any number of processes.

    It is opened for each line, so that it may be renamed or removed at any time.

    Args:
        path: The file, as `audit_path` returns it.
        is_synced: Whether each line is to survive the loss of power.
    """

    def __init__(self, path: str, *, is_synced: bool = False) -> None:
        self._path = path
        self._folder = os.path.dirname(path)
        self._is_synced = is_synced

    def __call__(self, record: AuditRecord) -> Awaitable[None] | None:
        """Append a record, at once unless it waits for the disk."""
        line = f"{_encode(record.to_dict())}\n".encode("ascii")
        if self._is_synced:
            return run_in_thread(self._append, line)
        self._append(line)
        return None

    def _append(self, line: bytes) -> None:
        if os.path.realpath(self._folder) != self._folder:
            raise OSError(f"{self._folder} has become a link")
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is not a regular file")
            # One write appends as a whole, after those of other processes.
            _write_whole(descriptor, line)
            begin = os.lseek(descriptor, 0, os.SEEK_CUR) - len(line)
            if begin and os.pread(descriptor, 1, begin - 1) != b"\n":
                # A full disk or a kill has left a part of a line, of which this one is the end.
                _write_whole(descriptor, line)
            if self._is_synced:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def __str__(self) -> str:
        return self._path


class AuditLog:
    """The audit log of one Rye.

    Args:
        target: Takes the records: an `AuditFile`, or a function of the host.
    """

    def __init__(self, target: Audit) -> None:
        self._target = target
        self._waiting: deque[AuditRecord] = deque()

    async def write(self, record: AuditRecord, *, must: bool) -> None:
        """Write a record, after those that could not be written before.

        Args:
            record: The record.
            must: Whether to refuse if it can't be written; else it is kept, and written later.

        Raises:
            AuditError: It had to be written, and could not be.
        """
        try:
            while self._waiting:
                await self._put_waiting(self._waiting.popleft())
            await self._put(record)
        except Exception as problem:
            why = f"{self._name} can't be written: {_reason(problem)}."
            if must:
                raise AuditError(
                    f"{why} Nothing runs without a record of it.",
                    next_step="Make room, or correct its path and permissions; then call again.",
                ) from problem
            later = "is written later, if this process lives on"
            if len(self._waiting) < _MAX_WAITING:
                self._waiting.append(record)
            else:
                later = f"is lost: {_MAX_WAITING:,} others wait already"
            warn(f"{why} The record of {record.ref} {later}.")

    async def _put_waiting(self, record: AuditRecord) -> None:
        try:
            await self._put(record)
        except BaseException:
            self._waiting.appendleft(record)
            raise

    async def _put(self, record: AuditRecord) -> None:
        waits = self._target(record)
        if waits is not None:
            with shielded():  # else a cancelled one may be written, and begin nothing
                await waits

    @property
    def _name(self) -> str:
        target = self._target
        return f"The audit log {target}" if isinstance(target, AuditFile) else "The audit log"


def _write_whole(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reason(problem: Exception) -> str:
    """Return why, without the words of a host's own error."""
    if not isinstance(problem, OSError):
        return type(problem).__name__
    if problem.errno == errno.ELOOP:
        return "it is a link"
    return problem.strerror or str(problem)
