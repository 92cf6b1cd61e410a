"""Where the store's operations run: on the event loop that awaits them, or in worker threads.

An operation that is one statement on the fast path is awaited by the event loop itself: two hops
between threads take the processor longer than the statement. Where the loop would have to block,
and off the fast path, it runs in a worker thread.

An operation whose caller is cancelled is finished, if that takes a moment. Else its statement is
cancelled on the server, which undoes its transaction, so that Ctrl-C waits for nobody's lock.

Source: ADR 039; ADR 053; ADR 055.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from threading import Lock, local
from typing import Any, Final, Generic, Protocol, TypeVar, TypeVarTuple, cast

import anyio
from typing_extensions import override

from ryecore.policy.cancelling import current_hold, run_to_end
from ryecore.state.waiting import Workers, is_blocking, run_blocking

__all__ = [
    "CANCELLERS",
    "GRACE_S",
    "WORKERS",
    "MustBlock",
    "WorkerCall",
    "await_or_work",
    "current_call",
    "defer_cancellation",
    "in_worker",
    "in_workers",
]

T = TypeVar("T")
Values = TypeVarTuple("Values")

GRACE_S: Final = 0.25
"""How long a statement may take whose caller was cancelled, in seconds."""

CANCELLERS: Final = Workers("ryecore_postgres_cancellers", 8)
"""Workers that cancel statements, whatever the others wait for."""

_MOST_CONNECTIONS: Final = 8


class Cancellable(Protocol):
    """A connection whose statement can be cancelled from another thread."""

    def cancel(self) -> None:
        """Have the server end the current statement, if there is one."""
        ...


class Stopped(Exception):
    """Nobody awaits this operation any more. Nothing of it has happened, or it was undone."""


class _Current(local):
    """The call that a worker thread runs."""

    call: "WorkerCall[Any] | None" = None


_CURRENT: Final = _Current()


def current_call() -> "WorkerCall[Any] | None":
    """Return the call that this worker thread runs; None in any other thread."""
    return _CURRENT.call


class WorkerCall(Generic[T]):
    """A call in a worker thread, which `stop` cuts short by cancelling its statements."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = Lock()  # held by whoever takes, gives back or cancels the connection
        self._running = Lock()  # held until the work is done
        self._connection: Cancellable | None = None
        self._is_stopped = False
        self.has_begun = False
        self.has_ended = False
        self.was_cancelled = False
        self.result: T | None = None
        self.failure: BaseException | None = None

    def run(self) -> T:
        """Run the work in this thread."""
        with self._lock:
            if self._is_stopped:
                raise Stopped
            self.has_begun = self._running.acquire()
        _CURRENT.call = self
        try:
            self.result = result = self._work()
        except BaseException as problem:
            self.failure = problem
            raise
        else:
            return result
        finally:
            _CURRENT.call = None
            self.has_ended = True
            self._running.release()

    def use(self, connection: Cancellable) -> None:
        """Let a connection's statements be cancelled, until `leave`."""
        with self._lock:
            self.check()
            self._connection = connection

    def leave(self) -> None:
        """Use the connection no more; one that is being cancelled is waited for."""
        with self._lock:
            self._connection = None

    def check(self) -> None:
        """Raise Stopped if nobody awaits the call any more."""
        if self._is_stopped:
            raise Stopped

    def refuse_begin(self) -> bool:
        """Let the call never begin, and return whether it hadn't."""
        with self._lock:
            if not self.has_begun:
                self._is_stopped = True
            return not self.has_begun

    def stop(self) -> None:
        """Wait until the work is done; from a moment on, cancel its statements."""
        while not self._running.acquire(timeout=GRACE_S):
            with self._lock:
                self._is_stopped = True
                if self._connection is not None:
                    self.was_cancelled = True
                    self._connection.cancel()


def defer_cancellation(problem: BaseException) -> bool:
    """Have a cancellation raised later, and return whether it will be.

    Then the operation that was finished may return its result. The cancellation of a scope is
    raised again where this task waits next; that of asyncio's `Task.cancel()` is raised once, and
    later only within `held_cancellation`.
    """
    if anyio.current_effective_deadline() == float("-inf"):
        return True
    hold = current_hold()
    if hold is not None:
        hold.error = problem
    return hold is not None


def _deliver_held() -> None:
    """Raise a cancellation that was held back, before anything else is begun."""
    if (hold := current_hold()) is not None:
        hold.deliver()


class _StatementWorkers(Workers):
    """Worker threads for operations that use a connection."""

    @override
    async def run(self, work: Callable[[*Values], T], *values: *Values) -> T:
        """Run a function in a worker thread.

        A cancelled caller waits until it is done, or undone: it has the result in the first case.
        """
        _deliver_held()
        call = WorkerCall(partial(work, *values))
        limiter = self._limiter_here()
        try:
            return await anyio.to_thread.run_sync(call.run, limiter=limiter, abandon_on_cancel=True)
        except BaseException as problem:
            if problem is call.failure or call.refuse_begin():
                raise
            with suppress(anyio.get_cancelled_exc_class()):  # once more
                await run_to_end(partial(CANCELLERS.run, call.stop))
            if (
                not call.has_ended
                or not defer_cancellation(problem)
                or (call.was_cancelled and call.failure is not None)
            ):
                raise
            if call.failure is not None:
                raise call.failure from None
            return cast("T", call.result)
        finally:
            call.failure = None  # whose traceback refers to the call


WORKERS: Final = _StatementWorkers("ryecore_postgres_workers", _MOST_CONNECTIONS)

_NON_BLOCKING: Final = frozenset({"synced"})
"""The operations that use no connection, so that no worker thread is asked for them."""


class MustBlock(Exception):
    """An event loop would have to block for a statement. Nothing of it has happened yet."""


async def await_or_work(
    awaited: Callable[[*Values], Awaitable[T]], work: Callable[[*Values], T], *values: *Values
) -> T:
    """Await something on this event loop, or do the same in a worker thread if that must block.

    Without an event loop, it is done in this thread.
    """
    if is_blocking():
        return work(*values)
    _deliver_held()
    try:
        return await awaited(*values)
    except MustBlock:
        return await WORKERS.run(work, *values)


async def in_worker(work: Callable[[], T]) -> T:
    """Run a function that uses the database in a worker thread, or here without an event loop."""
    return work() if is_blocking() else await WORKERS.run(work)


def in_workers(part: T) -> T:
    """Return a part of the store whose operations run in worker threads, for an event loop.

    Those that its attribute `awaited` names are awaited as they are: they see to that themselves.
    Within `together`, and without an event loop, they run in the thread that called them.
    """
    return cast("T", _InWorkers(part))


class _InWorkers:
    def __init__(self, part: object) -> None:
        self._part = part
        self._awaited: frozenset[str] = getattr(part, "awaited", frozenset()) | _NON_BLOCKING

    def __getattr__(self, name: str) -> "Callable[..., Awaitable[Any]]":
        operation = getattr(self._part, name)
        if name in self._awaited:
            self.__dict__[name] = operation
            return cast("Callable[..., Awaitable[Any]]", operation)

        async def run(*values: Any, **named: Any) -> Any:
            if is_blocking():
                return await operation(*values, **named)
            return await WORKERS.run(lambda: run_blocking(operation(*values, **named)))

        self.__dict__[name] = run
        return run
