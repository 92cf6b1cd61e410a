"""How long a part of a call may take, and who can cancel it."""

import math
import time
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import anyio

from ryecore.policy import CallContext
from ryecore.policy.cancelling import canceller_of

__all__ = ["NO_SCOPE", "CallScope", "NoScope", "seconds_left"]

T = TypeVar("T")


def seconds_left(call: CallContext) -> float:
    """How long a call may still take."""
    return math.inf if call.deadline is None else call.deadline - time.monotonic()


class CallScope:
    """A scope that ends after a time, or when a call's token is cancelled from any thread.

    Args:
        call: The call.
        timeout_s: After how many seconds it ends; infinite for never.
    """

    __slots__ = ("_call", "_forget", "_scope", "_timeout_s")

    def __init__(self, call: CallContext, timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        self._scope = anyio.move_on_after(None)
        self._scope.__enter__()
        self._forget: Callable[[], None] | None = None
        token = self._call.cancellation
        if token is not None:
            self._forget = token.on_cancel(canceller_of(self._scope))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._forget is not None:
            self._forget()
        return bool(self._scope.__exit__(kind, error, traceback))

    def wait_for(self, awaited: Awaitable[T]) -> "Awaitable[T]":
        """Await something within the time, which counts from when it first has to wait."""
        return _Timed(awaited, self._start)

    @property
    def is_ended(self) -> bool:
        """Whether its time is up, or its token was cancelled."""
        return self._scope.cancel_called

    @property
    def is_cut(self) -> bool:
        """Whether that kept what stands in it from its own end."""
        return self._scope.cancelled_caught

    def _start(self) -> None:
        if self._timeout_s != math.inf:
            self._scope.deadline = anyio.current_time() + self._timeout_s


class NoScope:
    """In place of a `CallScope` around what never waits: nothing could cancel that."""

    __slots__ = ()

    is_ended: Final = False
    is_cut: Final = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def wait_for(self, awaited: Awaitable[T]) -> Awaitable[T]:
        """Await something that never waits."""
        return awaited


NO_SCOPE: Final = NoScope()


class _Timed(Generic[T]):
    """Awaits something, and has a clock started when that first has to wait.

    A timer costs as much as all else that a call of a tool costs, and most of them never wait.
    """

    __slots__ = ("_awaited", "_start")

    def __init__(self, awaited: Awaitable[T], start: Callable[[], None]) -> None:
        self._awaited = awaited
        self._start = start

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaited.__await__()
        send: Any = getattr(steps, "send", None)
        if send is None:
            self._start()
            return (yield from steps)
        try:
            waits_for = send(None)
            self._start()
            while True:
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
