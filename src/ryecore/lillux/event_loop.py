"""Coroutines on an event loop, or without one: a short command doesn't need it.

asyncio and anyio take a quarter of what `rye execute` of a local tool takes in all, and one tool is
awaited as well by blocking. So its modules import them where a loop runs, and not before.

Source: ADR 032.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Final, TypeVar, TypeVarTuple, Unpack

__all__ = [
    "EventLoopNeeded",
    "checkpoint",
    "is_without_loop",
    "need_loop",
    "run_in_thread",
    "run_without_loop",
    "shielded",
]

T = TypeVar("T")
Values = TypeVarTuple("Values")

_is_without_loop: Final = ContextVar("ryecore.lillux.event_loop", default=False)


class EventLoopNeeded(BaseException):
    """What was called without an event loop needs one. It has had no effect yet."""


def run_without_loop(call: Callable[[], Awaitable[T]]) -> T:
    """Run a call to its end in this thread, which blocks where it would wait.

    KeyboardInterrupt ends the process that it waits for, as `run_process_sync` does.

    Raises:
        EventLoopNeeded: It needs an event loop, and has had no effect yet.
    """
    before = _is_without_loop.set(True)
    try:
        steps = call().__await__()
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
        steps.close()
        raise RuntimeError("a call waits for an event loop, but there is none")
    finally:
        _is_without_loop.reset(before)


def is_without_loop() -> bool:
    """Return whether this code runs in `run_without_loop`."""
    return _is_without_loop.get()


def need_loop() -> None:
    """Raise EventLoopNeeded where there is no event loop; before the call has had an effect."""
    if _is_without_loop.get():
        raise EventLoopNeeded


async def run_in_thread(
    function: Callable[[Unpack[Values]], T], *values: *Values, abandon_on_cancel: bool = False
) -> T:
    """Call a function in a worker thread, so that the event loop keeps running; without one, here.

    A cancelled call waits for the function, unless `abandon_on_cancel`.
    """
    if _is_without_loop.get():
        return function(*values)
    from anyio import to_thread  # noqa: PLC0415 - where a loop runs

    return await to_thread.run_sync(function, *values, abandon_on_cancel=abandon_on_cancel)


async def checkpoint() -> None:
    """Let other tasks run, and a cancellation be raised."""
    if not _is_without_loop.get():
        from anyio import lowlevel  # noqa: PLC0415 - where a loop runs

        await lowlevel.checkpoint()


def shielded() -> AbstractContextManager[object]:
    """Return a scope that holds off cancellations, of which there are none without a loop."""
    if _is_without_loop.get():
        return nullcontext()
    from anyio import CancelScope  # noqa: PLC0415 - where a loop runs

    return CancelScope(shield=True)
