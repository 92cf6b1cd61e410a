"""Waits for a disk, a change or another process's lock, without blocking an event loop.

Blocking work runs in worker threads. Their limit is separate from anyio's, which is the host's: a
burst of waits here doesn't delay the host's work, and the host's work doesn't delay the renewal of
a lease.

With machine durability, a write on an event loop's thread goes to the operating system at once, and
to the disk before its effect: the code that causes the effect awaits `synced`. On any other thread
a write is synced before it returns.

A wait for a lock is bounded and names the holder. It is made of short sleeps between attempts, so
that a signal, a cancellation or a deadline ends it at once, and no thread is left in the kernel.

Source: ADR 024; ADR 028; decision 38.
"""

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.lowlevel import RunVar

from ryecore.errors import StateLocked
from ryecore.lillux.locks import describe_holders, find_lock_holders, release_advice
from ryecore.lillux.watching import Watcher, watch
from ryecore.state.model import Durability

__all__ = [
    "INLINE_BYTES",
    "LOCK_WAIT_S",
    "STATE_WORKERS",
    "SYNC_WORKERS",
    "ChangeWatcher",
    "GroupSync",
    "LockWait",
    "WorkerPlace",
    "Workers",
    "is_blocking",
    "is_event_loop",
    "pause",
    "run_blocking",
    "run_in_thread",
    "run_off_loop",
    "signal_change",
    "try_flock",
]

T = TypeVar("T")
Values = TypeVarTuple("Values")


class Workers:
    """A limited pool of worker threads for each event loop; work beyond the limit waits."""

    def __init__(self, name: str, most: int) -> None:
        self._most = most
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(name)

    async def run(self, work: Callable[[*Values], T], *values: *Values) -> T:
        """Run a function in a worker thread. A cancelled caller waits until it is done."""
        limiter = self._limiter_here()
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=limiter)

    async def take_place(self) -> "WorkerPlace":
        """Take the place of a worker, for what the event loop itself awaits."""
        limiter = self._limiter_here()
        place = WorkerPlace(limiter)
        try:
            limiter.acquire_on_behalf_of_nowait(place)
        except anyio.WouldBlock:
            await limiter.acquire_on_behalf_of(place)
        return place

    def _limiter_here(self) -> anyio.CapacityLimiter:
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._most)
            self._limiter.set(limiter)
        return limiter


class WorkerPlace:
    """The place of a worker, which somebody else has taken."""

    __slots__ = ("_limiter",)

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self._limiter = limiter

    def leave(self) -> None:
        """Leave it to a worker."""
        self._limiter.release_on_behalf_of(self)


SYNC_WORKERS: Final = Workers("ryecore_syncs", 32)
"""Workers for syncs, and for reading and writing files, which never wait for a lock."""

STATE_WORKERS: Final = Workers("ryecore_state", 32)
"""Workers for uses of the registry, which may wait for a lock."""


INLINE_BYTES: Final = 128 * 1024
"""The most that an event loop reads of a file itself, which takes a few milliseconds."""


def is_event_loop() -> bool:
    """Return whether this code runs in a task of an event loop, which a wait would block."""
    asyncio = sys.modules.get("asyncio")
    with suppress(RuntimeError):
        if asyncio is not None and asyncio.current_task() is not None:
            return True  # in a tenth of the time that anyio takes for its answer
    with suppress(RuntimeError):
        return anyio.get_current_task() is not None
    return False


def is_blocking() -> bool:
    """Return whether this code runs under `run_blocking`, so that it may not await anything."""
    return _is_blocking.get()


async def run_off_loop(
    durability: Durability,
    work: Callable[[*Values], T],
    *values: *Values,
    size_bytes: int = 0,
) -> T:
    """Call a function that writes or reads files, in a worker thread if it may take long.

    With process durability no write waits for the disk, so a call for few bytes is made on
    this thread, which is faster.
    """
    is_short = durability == "process" and size_bytes <= INLINE_BYTES
    if is_short or _is_blocking.get():
        return work(*values)
    return await SYNC_WORKERS.run(work, *values)


class _Running(Protocol):
    """A sync that was begun."""

    async def finish(self) -> None: ...


class _Sync:
    """A sync of an event loop, which finishes it in the first task that waits for it."""

    __slots__ = ("covered", "ended", "failure", "running")

    def __init__(self, running: _Running, covered: int) -> None:
        self.running = running
        self.covered = covered  # the number of writes before it
        self.ended: anyio.Event | None = None  # while a task finishes it
        self.failure: Exception | None = None


_running: Final[RunVar[dict["GroupSync", _Sync]]] = RunVar("ryecore_running_syncs")
"""The current syncs of an event loop."""


def _running_syncs() -> "dict[GroupSync, _Sync]":
    running = _running.get(None)
    if running is None:
        running = {}
        _running.set(running)
    return running


class GroupSync:
    """Syncs one file, beside the event loop if one runs. Writers that wait share a sync.

    Args:
        sync: Syncs it, and returns once that is done.
        begin: Begins a sync on an event loop.
    """

    def __init__(self, sync: Callable[[], None], begin: Callable[[], _Running]) -> None:
        self._sync = sync
        self._begin = begin
        self._lock = Lock()
        self._written = 0
        self._synced = 0

    @property
    def is_behind(self) -> bool:
        """Whether a write isn't synced yet."""
        return self._synced < self._written

    def after_write(self) -> None:
        """Count a write; off an event loop, sync it before returning."""
        self._written += 1
        if not is_event_loop():
            self._sync_until(self._written)

    def begin(self) -> None:
        """Begin on an event loop to sync what was written so far, unless a sync is running.

        The caller works on meanwhile, and awaits `synced` before the effect.
        """
        running = _running_syncs()
        if self.is_behind and self not in running:
            running[self] = self._begun()

    def _begun(self) -> _Sync:
        covered = self._written
        return _Sync(self._begin(), covered)

    async def synced(self) -> None:
        """Wait until all writes so far are synced. A failed sync is raised to all who wait for it.

        A sync is never interrupted: the caller that began it is cancelled after it. No effect
        follows whose intent waited here.
        """
        until = self._written
        if self._synced >= until:
            return
        if _is_blocking.get():
            self._sync_until(until)
            return
        running = _running_syncs()
        while self._synced < until:
            current = running.get(self)
            if current is None:
                current = running[self] = self._begun()
            if current.ended is None:
                await self._finish(current, running)
                continue
            await current.ended.wait()
            if current.failure is not None:
                raise current.failure
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def _finish(self, current: _Sync, running: "dict[GroupSync, _Sync]") -> None:
        """Wait for one sync, which all tasks of this loop share."""
        ended = current.ended = anyio.Event()
        try:
            with anyio.CancelScope(shield=True):
                await current.running.finish()
            self._synced = max(self._synced, current.covered)
        except Exception as problem:
            current.failure = problem
            raise
        except BaseException:  # asyncio's own cancel() passes a shield: another task finishes it
            current.ended = None
            raise
        finally:
            if current.ended is not None:
                del running[self]
            ended.set()

    def _sync_until(self, until: int) -> None:
        with self._lock:
            if self._synced >= until:
                return  # by the sync of another writer that waited
            covered = self._written
            self._sync()
            self._synced = max(self._synced, covered)


LOCK_WAIT_S: Final = 10.0
"""The longest wait for a lock, in seconds."""

LOOP_WAIT_S: Final = 1.0
"""The longest wait on the thread of an event loop, in seconds."""

_SHORTEST_S: Final = 0.0002
_LONGEST_S: Final = 0.01
"""The bounds of an awaited wait's pauses, which grow: many tasks of one loop may wait."""

_NEWCOMER_PAUSE_S: Final = 0.001
_FAIR_AFTER_S: Final = 0.01
_FAIR_PAUSE_S: Final = 0.0001
_RARE_AFTER_S: Final = 1.0
"""A thread that has waited for long tries most often: with pauses that grow, newcomers would get
each lock first. One that isn't free for a second is tried rarely."""

_LEAST_TRIES: Final = 20
"""The fewest attempts of an awaited wait before it ends."""

_sleep_s: Final = time.sleep

_is_blocking: ContextVar[bool] = ContextVar("is_blocking", default=False)
"""Whether waits block this thread, because no event loop runs here."""

_given_up: ContextVar[Event | None] = ContextVar("given_up", default=None)
"""The event that is set once nobody awaits this context's worker thread any more."""


class LockWait:
    """One wait for a lock: pauses between attempts, and an error once it has taken too long.

    The error names the path, and the holders of the files whose locks may cause the wait.
    """

    def __init__(self, path: Path, *lock_files: Path) -> None:
        self._path = path
        self._lock_files = lock_files or (path,)
        self._began = time.monotonic()
        self._pause_s = _SHORTEST_S
        self._tries = 0
        self._most_s = LOOP_WAIT_S if is_event_loop() else LOCK_WAIT_S

    def pause(self) -> None:
        """Sleep a little before the next attempt. A cancelled task ends the wait, too."""
        waited_s = self._check(self._most_s)
        if waited_s < _FAIR_AFTER_S:
            pause_s = _NEWCOMER_PAUSE_S
        else:
            pause_s = _FAIR_PAUSE_S if waited_s < _RARE_AFTER_S else _LONGEST_S
        given_up = _given_up.get()
        if given_up is None:
            time.sleep(pause_s)
        elif given_up.wait(pause_s):
            self._refuse()

    async def pause_async(self) -> None:
        """Sleep a little before the next attempt, while other tasks run.

        Other tasks may keep the loop busy for seconds, in which nothing is tried. So the wait ends
        only after enough attempts, too.
        """
        if _is_blocking.get():
            self.pause()
            return
        self._tries += 1
        if self._tries > _LEAST_TRIES:
            self._check(LOCK_WAIT_S)
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_S)
        await anyio.sleep(pause_s)

    def _check(self, most_s: float) -> float:
        """Refuse once it has taken too long, else return how long it has taken, in seconds."""
        waited_s = time.monotonic() - self._began
        if waited_s >= most_s:
            self._refuse()
        return waited_s

    def _refuse(self) -> None:
        waited_s = time.monotonic() - self._began
        holders = find_lock_holders(*self._lock_files)
        raise StateLocked(
            f"{self._path} is locked by {describe_holders(holders)}. ryecore "
            f"waited {waited_s:.1f} s for it; nothing was changed.",
            next_step=release_advice(holders),
            path=str(self._path),
            holders=holders,
            waited_s=waited_s,
        )


def try_flock(descriptor: int) -> bool:
    """Try to take the exclusive lock of an open file, and return whether that succeeded."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """Run an operation of the store on this thread, without an event loop. Its waits block."""
    token = _is_blocking.set(True)
    try:
        call.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        _is_blocking.reset(token)
        call.close()
    raise RuntimeError("Only operations of the store can be run without an event loop.")


async def pause(seconds: float) -> None:
    """Sleep; on an event loop, without blocking it."""
    if _is_blocking.get():
        _sleep_s(seconds)
    else:
        await anyio.sleep(seconds)


async def run_in_thread(work: Callable[[*Values], T], *values: *Values) -> T:
    """Run a function that uses state in a worker thread; cancellation ends its waits for locks.

    A cancelled call still waits until the thread is done.
    """
    if _is_blocking.get():
        return work(*values)
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


def signal_change(folder: str) -> None:
    """Wake those who watch a folder. A failure is ignored: nobody relies on it alone.

    The folder's time is set, which takes a fifteenth of the time that making a file takes. A link
    of a clone isn't followed.
    """
    with suppress(OSError):
        os.utime(folder, follow_symlinks=False)
