"""One thing for each event loop, closed when its loop ends."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from anyio.lowlevel import EventLoopToken, current_token

__all__ = ["PerLoop"]

_T = TypeVar("_T")


class PerLoop(Generic[_T]):
    """Something that belongs to an event loop, such as a pool of connections.

    A provider may serve one loop after another, and several in their own threads. Each gets its
    own. It is closed by `aclose` or when its loop ends, whichever comes first.

    Args:
        make: Makes one; called in the loop that it is for.
        close: Closes one.
    """

    def __init__(self, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[EventLoopToken, tuple[_T, AsyncGenerator[_T, None]]] = {}

    async def get(self) -> _T:
        """The one of the running loop; made where there is none yet."""
        token = current_token()
        held = self._held.get(token)
        if held is None:
            self._forget_closed_loops()
            # A loop that ends closes its asynchronous generators: this is how the end is heard of.
            keeper = self._keep(token)
            held = self._held[token] = (await anext(keeper), keeper)
        return held[0]

    async def aclose(self) -> None:
        """Close the one of the running loop. The next `get` makes a new one."""
        held = self._held.pop(current_token(), None)
        if held is not None:
            await held[1].aclose()

    def _forget_closed_loops(self) -> None:
        """Let go of what stood in loops that were closed without closing their generators."""
        for token in tuple(self._held):
            is_closed = getattr(token.native_token, "is_closed", None)
            if is_closed is not None and is_closed():
                self._held.pop(token, None)

    async def _keep(self, token: EventLoopToken) -> AsyncGenerator[_T, None]:
        one = self._make()
        try:
            yield one
        finally:
            self._held.pop(token, None)
            await self._close(one)
