"""Where the store's operations run: on the event loop that awaits them, or in worker threads.

An operation that is one statement on the fast path is awaited by the event loop itself: two hops
between threads take the processor longer than the statement. Where the loop would have to block,
and off the fast path, it runs in a worker thread.

Source: ADR 039; ADR 053.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, TypeVarTuple, cast

from ryecore.state.waiting import Workers, is_blocking, run_blocking

__all__ = ["WORKERS", "MustBlock", "await_or_work", "in_worker", "in_workers"]

T = TypeVar("T")
Values = TypeVarTuple("Values")

_MOST_CONNECTIONS: Final = 8

WORKERS: Final = Workers("ryecore_postgres_workers", _MOST_CONNECTIONS)

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
