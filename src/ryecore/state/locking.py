"""Wait for a lock that another process holds: bounded, interruptible, and naming the holder.

A wait is made of short sleeps between attempts, so that a signal, a cancellation or a deadline
ends it at once, and no thread is left behind in the kernel.

Source: ADR 024.
"""

import errno
import fcntl
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from threading import Event
from typing import Final, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel

from ryecore.errors import StateLocked
from ryecore.lillux.locks import describe_holders, find_lock_holders, release_advice
from ryecore.state.syncing import is_event_loop
from ryecore.state.workers import STATE_WORKERS

__all__ = ["LOCK_WAIT_S", "LockWait", "run_in_thread", "try_flock"]

T = TypeVar("T")
Values = TypeVarTuple("Values")

LOCK_WAIT_S: Final = 10.0
"""The longest wait for a lock, in seconds."""

LOOP_WAIT_S: Final = 1.0
"""The longest wait on the thread of an event loop, in seconds."""

_SHORTEST_S: Final = 0.0002
_LONGEST_S: Final = 0.01

_given_up: ContextVar[Event | None] = ContextVar("given_up", default=None)
"""Set once nobody awaits the worker thread any more that this context belongs to."""


class LockWait:
    """One wait for a lock: pauses between attempts, and an error once it has taken too long.

    Args:
        path: The locked file or folder, for the error.
        lock_files: The files whose locks may prevent it.
    """

    def __init__(self, path: Path, *lock_files: Path) -> None:
        self._path = path
        self._lock_files = lock_files or (path,)
        self._began = time.monotonic()
        self._pause_s = _SHORTEST_S
        self._most_s = LOOP_WAIT_S if is_event_loop() else LOCK_WAIT_S

    def pause(self) -> None:
        """Sleep a little, before the next attempt.

        Raises:
            StateLocked: It has taken too long, or the awaiting task was cancelled.
        """
        self._check(self._most_s)
        given_up = _given_up.get()
        if given_up is None:
            time.sleep(self._next_pause_s())
        elif given_up.wait(self._next_pause_s()):
            self._refuse()

    async def pause_async(self) -> None:
        """Sleep a little, before the next attempt; other tasks run meanwhile.

        Raises:
            StateLocked: It has taken too long.
        """
        self._check(LOCK_WAIT_S)
        await anyio.sleep(self._next_pause_s())

    def _next_pause_s(self) -> float:
        pause_s = self._pause_s
        self._pause_s = min(pause_s * 2, _LONGEST_S)
        return pause_s

    def _check(self, most_s: float) -> None:
        if time.monotonic() - self._began >= most_s:
            self._refuse()

    def _refuse(self) -> None:
        waited_s = time.monotonic() - self._began
        holders = find_lock_holders(*self._lock_files)
        raise StateLocked(
            f"{self._path} is locked by {describe_holders(holders)}. It was waited for "
            f"{waited_s:.1f} s; nothing was changed.",
            next_step=release_advice(holders),
            path=str(self._path),
            holders=holders,
            waited_s=waited_s,
        )


def try_flock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file, and return whether that went well at once.

    Raises:
        OSError: The file can't be locked at all.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


async def run_in_thread(work: Callable[[*Values], T], *values: *Values) -> T:
    """Run what uses state in a worker thread. A cancelled call gives up its waits for locks.

    Args:
        work: What is run.
        values: What it is called with.

    Returns:
        What it returns. A cancelled call still waits until the thread is done.
    """
    given_up = Event()
    done: list[T] = []
    failed: list[Exception] = []

    async def notice_cancellation() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            given_up.set()

    async with anyio.create_task_group() as group:
        group.start_soon(notice_cancellation)
        token = _given_up.set(given_up)
        try:
            done.append(await STATE_WORKERS.run(work, *values))
        except Exception as error:
            failed.append(error)
        finally:
            _given_up.reset(token)
            group.cancel_scope.cancel()
    if failed:
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise failed[0]
    return done[0]
