"""How long a part of a call may take, and who can cancel it."""

import math
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from ryecore.policy import CallContext

__all__ = ["CallScope", "seconds_left"]


def seconds_left(call: CallContext) -> float:
    """How long a call may still take."""
    return math.inf if call.deadline is None else call.deadline - time.monotonic()


class CallScope:
    """A scope that ends after a time, or when a call's token is cancelled from any thread.

    Args:
        call: The call.
        timeout_s: After how many seconds it ends; infinite for never.
    """

    __slots__ = ("_call", "_forget", "_loop", "_scope", "_thread", "_timeout_s")

    def __init__(self, call: CallContext, timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        timeout_s = self._timeout_s
        deadline = math.inf if timeout_s == math.inf else anyio.current_time() + timeout_s
        self._scope = anyio.CancelScope(deadline=deadline)
        self._scope.__enter__()
        token = self._call.cancellation
        self._forget = None
        if token is not None:
            self._loop: EventLoopToken = current_token()
            self._thread = threading.get_ident()
            self._forget = token.on_cancel(self._cancel)
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

    @property
    def is_ended(self) -> bool:
        """Whether its time is up, or its token was cancelled."""
        return self._scope.cancel_called

    @property
    def is_cut(self) -> bool:
        """Whether that kept what stands in it from its own end."""
        return self._scope.cancelled_caught

    def _cancel(self) -> None:
        if threading.get_ident() == self._thread:
            self._scope.cancel()
            return
        from anyio import from_thread  # noqa: PLC0415 - a large import, rarely needed

        with suppress(RuntimeError):  # the loop has ended, and with it the call
            from_thread.run_sync(self._scope.cancel, token=self._loop)
