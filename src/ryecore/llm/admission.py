"""The admission of attempts: each waits until its provider's rate limit has room for it.

Source: ADR 035.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from ryecore.errors.agents import LlmError
from ryecore.llm.attempt import Attempt
from ryecore.llm.fallback_rules import ChainOptions, FallbackPlanEntry, asked_wait_s
from ryecore.llm.rate_limits import RateLane, RateLimits
from ryecore.llm.rate_rules import Taken
from ryecore.llm.request import LlmRequest
from ryecore.llm.token_estimates import TokenEstimate

__all__ = ["Admission", "Admitted", "admission_of"]

_ANSWER_TOKENS: Final = 4096  # are taken for an answer without a bound


class Admission:
    """Admits the attempts of one chain, entry by entry."""

    def __init__(
        self, plan: Sequence[FallbackPlanEntry], options: ChainOptions, limits: RateLimits
    ) -> None:
        self._plan = plan
        self._options = options
        self._lanes = tuple(limits.lane(one.provider.provider_id, one.model) for one in plan)
        self._limits_tokens = any(
            lane is not None and lane.limit.tokens_per_minute is not None for lane in self._lanes
        )
        self._estimate = TokenEstimate()
        self._read = self._tokens = 0

    def look(self, request: LlmRequest) -> None:
        """Estimate the tokens of the request that is to be sent next."""
        if self._limits_tokens:
            self._read = self._estimate.of(request)
            self._tokens = self._read + (request.max_output_tokens or _ANSWER_TOKENS)

    def is_limited(self, index: int) -> bool:
        """Return whether an entry has a rate limit."""
        return self._lanes[index] is not None

    def long_wait_s(self, index: int) -> float:
        """Return the seconds that an entry has to wait; 0 for those that its backoff allows."""
        lane = self._lanes[index]
        if lane is None or len(self._lanes) == 1:  # without another entry, it is asked anyway
            return 0.0
        wait_s = lane.wait_s(self._options.now(), self._tokens)
        return wait_s if wait_s > self._plan[index].backoff.cap_s else 0.0

    async def enter(self, index: int) -> "Admitted":
        """Wait until the rate limit of an entry has room for the request.

        Raises:
            LlmError: It will never have, or not before the deadline.
        """
        lane, options = self._lanes[index], self._options
        if lane is None:
            raise RuntimeError("An entry without a rate limit needs no admission.")
        began, entry = options.now(), self._plan[index]
        self._check_size(lane, entry)
        taken = lane.take_at_once(began, self._tokens)
        if taken is not None:
            return Admitted(lane, taken, options)
        self._check_deadline(lane, entry, began)
        taken = await lane.take(self._tokens, now=options.now, sleep=options.sleep)
        return Admitted(lane, taken, options, options.now() - began)

    def _check_size(self, lane: RateLane, entry: FallbackPlanEntry) -> None:
        most = lane.limit.tokens_per_minute
        if most is not None and self._read > most:
            raise LlmError(
                f"The request has about {self._read} tokens, and the rate limit of '{lane.name}' "
                f"allows {most} in a minute.",
                next_step="Shorten the conversation, or raise RateLimit.tokens_per_minute.",
                kind="context_length",
                provider=entry.provider.provider_id,
                model=entry.model,
            )

    def _check_deadline(self, lane: RateLane, entry: FallbackPlanEntry, now_s: float) -> None:
        wait_s = lane.wait_s(now_s, self._tokens)
        if wait_s > 0 and wait_s > anyio.current_effective_deadline() - anyio.current_time():
            raise LlmError(
                f"The rate limit of '{lane.name}' has no room for {wait_s:.1f} s, which is beyond "
                "the deadline.",
                next_step="Give it more time, raise the RateLimit, or add an entry to the "
                "fallback chain.",
                kind="rate_limit",
                provider=entry.provider.provider_id,
                model=entry.model,
                retry_after_s=wait_s,
            )


def admission_of(plan: Sequence[FallbackPlanEntry], options: ChainOptions) -> Admission | None:
    """Return the admission of a chain's attempts; None where the host limits no rates."""
    limits = options.rate_limits
    return None if limits is None else Admission(plan, options, limits)


class Admitted:
    """The place of an attempt within its rate limit, which it leaves at its end.

    Attributes:
        waited_s: The seconds that it waited for it.
    """

    __slots__ = ("_lane", "_options", "_taken", "waited_s")

    def __init__(
        self, lane: RateLane, taken: Taken, options: ChainOptions, waited_s: float = 0.0
    ) -> None:
        self._lane = lane
        self._taken = taken
        self._options = options
        self.waited_s = waited_s

    def leave(self, tried: Attempt) -> None:
        """Count what an attempt really used."""
        if tried.is_sent:
            self.settle(_tokens_of(tried, self._taken.tokens), tried.error)
        else:
            self.give_back()

    def settle(self, tokens: int, error: LlmError | None) -> None:
        """Count the tokens that were used. A provider that asks for a wait holds all others."""
        lane, now_s = self._lane, self._options.now()
        lane.settle(self._taken, now_s, tokens)
        if error is not None and error.kind == "rate_limit":
            wait_s = asked_wait_s(error.retry_after_s)
            if wait_s:
                lane.hold(now_s, wait_s)

    def give_back(self) -> None:
        """Count nothing, because nothing was sent."""
        self._lane.give_back(self._taken)


def _tokens_of(tried: Attempt, taken: int) -> int:
    """Return the tokens that an attempt used; those taken for it where nobody knows."""
    usage, error = tried.usage, tried.error
    if usage is not None and usage.total_tokens > 0:
        return usage.total_tokens
    if error is not None and error.kind != "cancelled" and not tried.has_content:
        return 0
    return taken
