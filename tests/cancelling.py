"""Cancel a call at each of its awaits, as a host may, and more than once."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import anyio
import sniffio

__all__ = ["cancelled_at"]


class _Stepped:
    """Awaits something, and calls a function before each of its suspensions."""

    def __init__(self, call: Awaitable[object], suspends: Callable[[], None]) -> None:
        self._call = call
        self._suspends = suspends

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._call.__await__()
        resume: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                awaited = resume()
            except StopIteration:
                return
            self._suspends()
            try:
                value = yield awaited
            except BaseException as error:
                resume = _thrown(steps, error)
            else:
                resume = _sent(steps, value)


def _sent(steps: Generator[Any, Any, Any], value: object) -> Callable[[], Any]:
    return lambda: steps.send(value)


def _thrown(steps: Generator[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)


async def cancelled_at(call: Callable[[], Awaitable[object]], number: int) -> bool:
    """Make a call, and cancel it at one of its suspensions and at each one behind it.

    On trio one cancellation holds for all that follow; on asyncio the task is cancelled natively,
    which passes the shields of anyio's scopes.

    Args:
        call: Makes the call.
        number: The first suspension at which it is cancelled, from 1.

    Returns:
        Whether the call had so many.
    """
    count = 0
    is_native = sniffio.current_async_library() == "asyncio"

    async def stepped(cancel: Callable[[], object]) -> None:
        def suspends() -> None:
            nonlocal count
            count += 1
            if count >= number:
                cancel()

        await _Stepped(call(), suspends)

    if is_native:

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            await stepped(task.cancel)

        await asyncio.wait([asyncio.create_task(run())])
    else:
        with anyio.CancelScope() as scope:
            await stepped(scope.cancel)
    return count >= number
