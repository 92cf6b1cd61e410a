"""The calls of one Rye that are under way, so that closing it can end them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from ryecore.errors import RyeClosed
from ryecore.lillux.os_errors import exhaustion_of

__all__ = ["Running"]

T = TypeVar("T")


class Running:
    """Runs calls until it is closed.

    Attributes:
        is_closed: Whether it was closed.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._scopes: set[anyio.CancelScope] = set()
        self._idle: anyio.Event | None = None

    async def run(self, ref: object, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call, and end it where this is closed meanwhile.

        Args:
            ref: What the call is about, for the error's text.
            call: What to run.

        Raises:
            ProcessError: No descriptor, process, thread or memory is left.
            RyeClosed: This was closed, before or meanwhile.
        """
        if self.is_closed:
            raise RyeClosed("This Rye is closed.", next_step="Open another one.").during(str(ref))
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await call()
            except (OSError, RuntimeError, ExceptionGroup) as problem:
                used_up = exhaustion_of(problem)
                if used_up is None:
                    raise
                raise used_up.during(str(ref)) from problem
            finally:
                self._scopes.discard(scope)
                if self._idle is not None and not self._scopes:
                    self._idle.set()
        raise RyeClosed(
            "The Rye was closed while the call ran; nothing of it is left.",
            next_step="Open another one.",
        ).during(str(ref))

    async def aclose(self) -> None:
        """Cancel every call, and wait until none is left."""
        self.is_closed = True
        if not self._scopes:
            return
        self._idle = self._idle or anyio.Event()  # one for all who close it at once
        for scope in tuple(self._scopes):
            scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._idle.wait()
