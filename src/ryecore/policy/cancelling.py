"""The cancellation of waiting code by tokens."""

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel

from ryecore.policy.context import CancelToken

if TYPE_CHECKING:
    from asyncio import Future

__all__ = [
    "HeldCancellation",
    "bounded_by",
    "cancelled_by",
    "canceller_of",
    "current_hold",
    "held_cancellation",
    "is_cancelled",
    "is_stray",
    "run_to_end",
    "watched",
]

T = TypeVar("T")


@contextmanager
def cancelled_by(token: CancelToken) -> Iterator[anyio.CancelScope]:
    """Return a scope that a token cancels, from any thread, or has cancelled already."""
    with anyio.CancelScope() as scope:
        forget = token.on_cancel(canceller_of(scope))
        try:
            yield scope
        finally:
            forget()


def canceller_of(scope: anyio.CancelScope) -> Callable[[], None]:
    """Return a function that cancels a scope of this thread's event loop, from any thread."""
    loop, thread = anyio.lowlevel.current_token(), threading.get_ident()

    def cancel() -> None:
        if threading.get_ident() == thread:
            scope.cancel()
            # In the handler of a signal, asyncio's loop may be asleep, and would not hear of it.
            wake = getattr(loop.native_token, "call_soon_threadsafe", None)
            if wake is not None:
                wake(_nothing)
            return
        from anyio import from_thread  # noqa: PLC0415 - a large import, rarely needed

        with suppress(RuntimeError):  # the loop has ended, and with it the call
            from_thread.run_sync(scope.cancel, token=loop)

    return cancel


def _nothing() -> None:
    """Do nothing, to wake an event loop."""


@contextmanager
def bounded_by(*tokens: CancelToken | None, deadline: float | None = None) -> Iterator[None]:
    """Return a scope that any of the tokens cancels, and that ends at a deadline.

    The deadline is a monotonic time in seconds, as that of `CallContext`.
    """
    listened = {token for token in tokens if token is not None}
    if not listened and deadline is None:
        yield
        return
    left_s = None if deadline is None else deadline - time.monotonic()
    with anyio.move_on_after(left_s) as scope, ExitStack() as registered:
        if listened:
            cancel = canceller_of(scope)
            for token in listened:
                registered.callback(token.on_cancel(cancel))
        yield


def is_cancelled(*tokens: CancelToken | None, deadline: float | None = None) -> bool:
    """Return whether a token is cancelled, or a deadline has passed; see `bounded_by`."""
    if deadline is not None and time.monotonic() >= deadline:
        return True
    return any(token is not None and token.cancelled for token in tokens)


def is_stray(error: BaseException) -> bool:
    """Return whether an error is a cancellation of asyncio that wasn't requested for this task.

    What is called may raise the cancellation of something inside it. That is its failure, and
    not a cancellation of who called it.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


class HeldCancellation:
    """A cancellation of asyncio that came while a call was being finished; see `held_cancellation`.

    Attributes:
        error: The cancellation; None if there was none.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def deliver(self) -> None:
        """Raise the cancellation, if there was one."""
        if self.error is not None:
            raise self.error


_HELD: Final[ContextVar[HeldCancellation | None]] = ContextVar("held_cancellation", default=None)


@contextmanager
def held_cancellation() -> Iterator[HeldCancellation]:
    """Hold back a cancellation by asyncio until the caller knows the result of what was finished.

    Where a scope of anyio is cancelled, a call that is finished nevertheless returns its result,
    and the next wait is cancelled. A `Task.cancel()` of asyncio is raised once, so that the caller
    would never know that it has, say, registered a run. Within the block, a call that is finished
    returns its result then, too. The caller notes it, and raises the cancellation by `deliver`.
    """
    held = HeldCancellation()
    token = _HELD.set(held)
    try:
        yield held
    except Exception:
        held.deliver()  # which takes precedence
        raise
    finally:
        _HELD.reset(token)


def current_hold() -> HeldCancellation | None:
    """Return what holds back cancellations of this task; None where they are raised at once."""
    return _HELD.get()


async def run_to_end(call: Callable[[], Awaitable[T]]) -> T:
    """Await a call, such as the settling of a run, however often its task is cancelled meanwhile.

    A shielded scope holds off only anyio's cancellations: each `Task.cancel()` of asyncio passes
    it. So there the call runs in a task of its own, and CancelledError is raised after its end.
    Only the end of its event loop cuts it short.
    """
    with anyio.CancelScope(shield=True):
        if getattr(anyio.lowlevel.current_token().native_token, "add_reader", None) is None:
            return await call()
        import asyncio  # noqa: PLC0415 - where it runs already

        task = asyncio.create_task(_awaited(call))
        cancelled: BaseException | None = None
        while not task.done():
            ended = asyncio.get_running_loop().create_future()
            task.add_done_callback(partial(_wake, ended))
            try:
                await ended  # `asyncio.wait` takes thrice as long
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            with suppress(Exception):  # the cancellation takes precedence
                task.result()
            raise cancelled
        return task.result()
    raise AssertionError("nothing cancels a shielded scope from outside")


def _wake(waiting: "Future[None]", _: object) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _awaited(call: Callable[[], Awaitable[T]]) -> Coroutine[Any, Any, T]:
    async def run() -> T:
        return await call()

    return run()


@coroutine
def watched(awaited: Awaitable[T], on_wait: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await something, and call `on_wait` right before each suspension, in the task that waits.

    `on_wait` may set the deadline of a scope that was entered around this; to enter one now would
    be too late, as the awaited may have entered scopes of its own. Of an iterator that takes no
    answers, only the first wait is reported, before it is known whether there is one.
    """
    steps = awaited.__await__()
    send: Any = getattr(steps, "send", None)
    if send is None:
        on_wait()
        return (yield from steps)
    try:
        waits_for = send(None)
        while True:
            on_wait()
            try:
                answer = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                waits_for = steps.throw(error)
            else:
                waits_for = send(answer)
    except StopIteration as done:
        value: T = done.value
        return value
