"""What the adapters over an SDK share: an id, connections for each event loop, and an end."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import anyio

from ryecore.llm.network import check_model_requests_allowed
from ryecore.providers.http_failures import check_key
from ryecore.providers.per_loop import PerLoop

__all__ = ["PooledProvider"]

_T = TypeVar("_T")
_CLOSING_S: Final = 5.0


class PooledProvider(Generic[_T]):
    """A provider that holds connections, one pool for each event loop, and no key.

    Args:
        provider_id: What plans, events and reasoning parts call it.
        make: Makes a pool; called in the event loop that it is for.
        close: Closes one.
    """

    def __init__(
        self, provider_id: str, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]]
    ) -> None:
        self._provider_id = provider_id
        self._pools = PerLoop(make, close)

    @property
    def provider_id(self) -> str:
        """What plans, events and reasoning parts call it."""
        return self._provider_id

    def _check(self, model: str, key: str) -> None:
        """Refuse what must not be sent at all."""
        check_model_requests_allowed(self._provider_id, model)
        check_key(key, self._provider_id, model)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. A later call opens new ones."""
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await self._pools.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
