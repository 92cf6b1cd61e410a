"""How long a part of a call may take, and who can cancel it."""

import math
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio

from ryecore.policy import CallContext
from ryecore.policy.cancelling import canceller_of, watched

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

    def wait_for(self, awaited: Awaitable[T]) -> Awaitable[T]:
        """Await something within the time, which counts from when it first has to wait.

        A timer costs as much as all else that a call of a tool costs, and most never wait.
        """
        return watched(awaited, self._on_wait)

    @property
    def is_ended(self) -> bool:
        """Whether its time is up, or its token was cancelled."""
        return self._scope.cancel_called

    @property
    def is_cut(self) -> bool:
        """Whether that kept what stands in it from its own end."""
        return self._scope.cancelled_caught

    def _on_wait(self) -> None:
        if self._timeout_s != math.inf:
            self._scope.deadline = anyio.current_time() + self._timeout_s
            self._timeout_s = math.inf


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
