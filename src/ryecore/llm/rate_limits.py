"""The waits for rate limits, which all conversations of a host share.

Source: ADR 035.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from threading import Lock, get_ident
from typing import Any

import anyio
import anyio.lowlevel

from ryecore.llm.rate_rules import RateLimit, RateWindow, Taken, check_rate_limits

__all__ = ["RateLane", "RateLimits", "read_rate_limits"]


class RateLimits:
    """The rate limits of a host's providers, with all that counts towards them.

    Args:
        limits: The limits, by the provider's id or by `provider/model`, which goes first.

    Raises:
        ConfigError: It isn't a mapping of such names to rate limits.
    """

    def __init__(self, limits: Mapping[str, RateLimit]) -> None:
        check_rate_limits(limits)
        self._lanes = {name: RateLane(name, limit) for name, limit in limits.items()}

    def __repr__(self) -> str:
        return repr({name: lane.limit for name, lane in self._lanes.items()})

    def lane(self, provider_id: str, model: str) -> "RateLane | None":
        """Return the lane of a model, else that of its provider; None if neither is limited."""
        return self._lanes.get(f"{provider_id}/{model}") or self._lanes.get(provider_id)


def read_rate_limits(declared: "Mapping[str, RateLimit] | RateLimits | None") -> RateLimits | None:
    """Convert limits with attrs; those that count already stay, so that copies share them."""
    if declared is None or isinstance(declared, RateLimits):
        return declared
    return RateLimits(declared) if declared != {} else None


class _Waiting:
    """A request that waits in a lane. `wake` lets it look again, from any thread."""

    __slots__ = ("tokens", "wake")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.wake: Callable[[], None] | None = None


class RateLane:
    """The requests that share one rate limit: those that run, and those that wait in line.

    They go in the order in which they came, so a large one isn't overtaken for ever. Conversations
    of several event loops may share a lane.

    Attributes:
        name: The provider's id, or `provider/model`.
        limit: The limit.
    """

    def __init__(self, name: str, limit: RateLimit) -> None:
        self.name = name
        self.limit = limit
        self._window = RateWindow(limit)
        self._line: deque[_Waiting] = deque()
        self._tokens_in_line = 0
        self._lock = Lock()

    def wait_s(self, now_s: float, tokens: int) -> float:
        """Return the least time in seconds for which a request would wait now."""
        with self._lock:
            ahead, tokens_ahead = len(self._line), self._tokens_in_line
            return self._window.wait_s(now_s, tokens, ahead=ahead, tokens_ahead=tokens_ahead)

    def take_at_once(self, now_s: float, tokens: int) -> Taken | None:
        """Count a request of that many tokens, if it has room; None if it has to wait."""
        with self._lock:
            window = self._window
            if self._line or window.is_full or window.wait_s(now_s, tokens) > 0:
                return None
            return window.take(now_s, tokens)

    async def take(
        self,
        tokens: int,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
    ) -> Taken:
        """Wait in line until a request of that many tokens has room, and count it."""
        with self._lock:
            waiting = _Waiting(self._window.fitting(tokens))
            self._line.append(waiting)
            self._tokens_in_line += waiting.tokens
        try:
            while True:
                with anyio.CancelScope() as scope:
                    with self._lock:
                        wait_s = self._turn_s(waiting, now())
                        if wait_s is not None and wait_s <= 0:
                            return self._window.take(now(), tokens)
                        waiting.wake = _waker(scope)
                    await (anyio.sleep_forever() if wait_s is None else sleep(wait_s))
        finally:
            with self._lock:
                self._line.remove(waiting)
                self._tokens_in_line -= waiting.tokens
                self._wake_first()

    def settle(self, taken: Taken, now_s: float, tokens: int) -> None:
        """Count a request's real tokens, once it has ended."""
        with self._lock:
            self._window.settle(taken, now_s, tokens)
            self._wake_first()

    def give_back(self, taken: Taken) -> None:
        """Count a request no longer, because it was never sent."""
        with self._lock:
            self._window.give_back(taken)
            self._wake_first()

    def hold(self, now_s: float, wait_s: float) -> None:
        """Let nothing be sent for some seconds, as the provider asks for."""
        with self._lock:
            self._window.hold(now_s, wait_s)

    def _turn_s(self, waiting: _Waiting, now_s: float) -> float | None:
        """Return the seconds until it is the turn of a request; None until it is woken."""
        if self._line[0] is not waiting or self._window.is_full:
            return None
        return self._window.wait_s(now_s, waiting.tokens)

    def _wake_first(self) -> None:
        if self._line and (wake := self._line[0].wake) is not None:
            wake()


def _waker(scope: anyio.CancelScope) -> Callable[[], None]:
    """Return a function that cancels a scope of this thread's event loop, from any thread."""
    loop: Any = anyio.lowlevel.current_token().native_token
    soon = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon  # asyncio, or trio
    thread = get_ident()

    def wake() -> None:
        if get_ident() == thread:
            scope.cancel()
            return
        with suppress(RuntimeError):  # the loop has ended, and with it the call
            soon(scope.cancel)

    return wake
