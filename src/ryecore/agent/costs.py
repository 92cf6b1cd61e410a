"""The costs of a run: what its tries used, and the meter that emits them."""

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from ryecore.agent.events import CostUpdated, Emit
from ryecore.agent.outcome import TokensUsed
from ryecore.agent.saved import SavedCosts
from ryecore.convert.money import to_usd
from ryecore.frozen import frozen
from ryecore.llm.cost import AttemptCost, CostTracker, is_uncounted
from ryecore.llm.fallback_rules import AttemptRecord
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.llm.token_estimates import TokenEstimate
from ryecore.policy.budget import CallCost

if TYPE_CHECKING:
    from ryecore.agent.telemetry import Observer

__all__ = ["CostMeter", "Spent"]


@frozen
class Spent:
    """The tokens and the cost of attempts.

    Attributes:
        tokens_used: The tokens.
        cost_microcents: The cost; 1 microcent is 1e-8 USD.
        unpriced: The number of tries without a price.
        estimated: The number of tries with estimated tokens, as their provider reported none.
        cache_read_tokens: How many of the tokens that were read came from a provider's cache.
        cache_write_tokens: How many of them were written to one.
        cache_saved_microcents: What the caches saved; below 0 where writing to them cost more.
    """

    tokens_used: TokensUsed
    cost_microcents: int
    unpriced: int
    estimated: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_saved_microcents: int = 0

    @property
    def cost_usd(self) -> Decimal:
        """The cost in US dollars."""
        return to_usd(self.cost_microcents)

    @property
    def cache_saved_usd(self) -> Decimal:
        """What the providers' caches saved, in US dollars."""
        return to_usd(self.cache_saved_microcents)

    def since(self, before: "Spent") -> "Spent":
        """Return the difference to an earlier snapshot."""
        now, then = self.tokens_used, before.tokens_used
        estimated = self.estimated - before.estimated
        return Spent(
            TokensUsed(now.input - then.input, now.output - then.output, now.model, estimated > 0),
            self.cost_microcents - before.cost_microcents,
            self.unpriced - before.unpriced,
            estimated,
            self.cache_read_tokens - before.cache_read_tokens,
            self.cache_write_tokens - before.cache_write_tokens,
            self.cache_saved_microcents - before.cache_saved_microcents,
        )


class CostMeter:
    """The cost meter of one run: each try except skipped ones emits one `cost:updated`, if it may.

    `attempt_number` is that of the last try, from 1. The current `request` serves for an estimate
    if the provider doesn't count tokens. `on_cost` is called first with the cost of each try.

    Source: docs/design/agent-node.md#what-the-host-injects; docs/design/agent-node.md#events;
    decision 55.
    """

    def __init__(
        self,
        tracker: CostTracker,
        emit: Emit | None,
        node_id: str,
        observer: "Observer | None" = None,
        on_cost: Callable[[AttemptRecord, AttemptCost], None] | None = None,
    ) -> None:
        self._tracker = tracker
        self._emit = emit
        self._node_id = node_id
        self._observer = observer
        self._on_cost = on_cost
        self._model = ""
        self._made = 0
        self._estimate = TokenEstimate()
        self.attempt_number: int | None = None
        self.request: LlmRequest | None = None

    def on_attempt(self, record: AttemptRecord) -> None:
        """Count a try by its record."""
        if record.outcome in ("skipped", "refused"):
            if self._observer is not None:
                self._observer.attempt(self._node_id, record, None)
            return
        self._made += 1
        self.attempt_number = self._made
        self._model = record.model
        request = self.request if is_uncounted(record) else None
        estimate = self._estimate.of(request) if request is not None else 0
        cost = self._tracker.record(record, input_tokens_estimate=estimate)
        if self._observer is not None:
            self._observer.attempt(self._node_id, record, cost)
        if self._on_cost is not None:
            self._on_cost(record, cost)
        if self._emit is not None:
            usage = cost.usage
            self._emit(
                CostUpdated(
                    self._node_id,
                    record.model,
                    usage.total_input_tokens,
                    usage.total_output_tokens,
                    cost.cost_microcents,
                    self._tracker.cost_microcents,
                    cost.priced,
                    cost.estimated,
                    self._made,
                    usage.cache_read_tokens,
                    usage.total_cache_write_tokens,
                    cost.cache_saved_microcents,
                    record.waited_ms,
                )
            )

    @property
    def spent(self) -> Spent:
        """The tokens and the cost of all tries so far."""
        usage, estimated = self._tracker.usage, self._tracker.estimated
        return Spent(
            TokensUsed(
                usage.total_input_tokens, usage.total_output_tokens, self._model, estimated > 0
            ),
            self._tracker.cost_microcents,
            self._tracker.unpriced,
            estimated,
            usage.cache_read_tokens,
            usage.total_cache_write_tokens,
            self._tracker.cache_saved_microcents,
        )

    def add_call(self, cost: CallCost) -> None:
        """Add what an agent has cost that a tool called."""
        if cost.outcome == "refused":
            return
        self._tracker.add(
            Usage(cost.input_tokens - cost.cached_tokens, cost.output_tokens, cost.cached_tokens),
            cost.spend_microcents,
            unpriced=int(not cost.priced),
            estimated=int(cost.mark != "counted"),
            cache_saved_microcents=cost.cache_saved_microcents,
        )

    def saved(self) -> SavedCosts:
        """Return the totals, for another meter that continues from them."""
        tracker = self._tracker
        return SavedCosts(
            self._model,
            self._made,
            tracker.usage,
            tracker.cost_microcents,
            tracker.unpriced,
            tracker.estimated,
            tracker.cache_saved_microcents,
        )

    def restore(self, saved: SavedCosts) -> None:
        """Continue from the totals of another meter."""
        self._model, self._made = saved.model, saved.attempts
        self._tracker.add(
            saved.usage,
            saved.cost_microcents,
            unpriced=saved.unpriced,
            estimated=saved.estimated,
            cache_saved_microcents=saved.cache_saved_microcents,
        )

    @property
    def tokens_used(self) -> TokensUsed:
        """The tokens of all tries."""
        return self.spent.tokens_used
