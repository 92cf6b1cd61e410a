"""Notice when what is awaited has to wait: a timer is needed only then, and is dear."""

from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, TypeVar

__all__ = ["watched"]

T = TypeVar("T")


@coroutine
def watched(awaited: Awaitable[T], on_wait: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await something, and be told right before each time that it has to wait.

    Args:
        awaited: What is awaited. Of an iterator that takes no answers, the first wait alone is
            told, and before it is known whether there is one.
        on_wait: Told in the task that waits. It may set the deadline of a scope that was entered
            around this; to enter one now would be too late, as what is awaited may have entered
            scopes of its own.
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
