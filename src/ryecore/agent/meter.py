"""The meter of a run's costs, which counts and emits them."""

from collections.abc import Callable
from decimal import Decimal

from attrs import frozen

from ryecore.agent.events import CostUpdated, Emit
from ryecore.agent.outcome import TokensUsed
from ryecore.agent.telemetry import AgentObserver
from ryecore.convert.money import to_usd
from ryecore.llm.cost import AttemptCost, CostTracker, estimated_tokens, is_uncounted
from ryecore.llm.plan import AttemptRecord
from ryecore.llm.request import LlmRequest

__all__ = ["CostMeter", "Spent"]


@frozen
class Spent:
    """The tokens and the cost of attempts.

    Attributes:
        tokens_used: The tokens.
        cost_microcents: The cost; 1 microcent is 1e-8 USD.
        unpriced: The number of tries without a price.
        estimated: The number of tries with estimated tokens, as their provider reported none.
    """

    tokens_used: TokensUsed
    cost_microcents: int
    unpriced: int
    estimated: int = 0

    @property
    def cost_usd(self) -> Decimal:
        """The cost in US dollars."""
        return to_usd(self.cost_microcents)

    def since(self, before: "Spent") -> "Spent":
        """Return the difference to an earlier snapshot."""
        now, then = self.tokens_used, before.tokens_used
        estimated = self.estimated - before.estimated
        return Spent(
            TokensUsed(now.input - then.input, now.output - then.output, now.model, estimated > 0),
            self.cost_microcents - before.cost_microcents,
            self.unpriced - before.unpriced,
            estimated,
        )


class CostMeter:
    """The cost meter of one run: each try except skipped ones emits one `cost:updated`.

    Args:
        tracker: The run's own tracker.
        emit: Called with each cost event.
        node_id: The id of the node or session.
        observer: Observes each try.
        on_cost: Called first with the cost of each try that was made.

    Attributes:
        attempt_number: The number of the last try, from 1; None before the first.
        request: The current request, for an estimate if the provider doesn't count tokens.

    Source: docs/design/agent-node.md#what-the-host-injects; docs/design/agent-node.md#events;
    decision 55.
    """

    def __init__(
        self,
        tracker: CostTracker,
        emit: Emit,
        node_id: str,
        observer: AgentObserver | None = None,
        on_cost: Callable[[AttemptRecord, AttemptCost], None] | None = None,
    ) -> None:
        self._tracker = tracker
        self._emit = emit
        self._node_id = node_id
        self._observer = observer
        self._on_cost = on_cost
        self._model = ""
        self._made = 0
        self.attempt_number: int | None = None
        self.request: LlmRequest | None = None

    def on_attempt(self, record: AttemptRecord) -> None:
        """Count a try by its record."""
        if self._observer is not None:
            self._observer.attempt(self._node_id, record)
        if record.outcome in ("skipped", "refused"):
            return
        self._made += 1
        self.attempt_number = self._made
        self._model = record.model
        request = self.request if is_uncounted(record) else None
        estimate = estimated_tokens(request) if request is not None else 0
        cost = self._tracker.record(record, input_tokens_estimate=estimate)
        if self._on_cost is not None:
            self._on_cost(record, cost)
        self._emit(
            CostUpdated(
                self._node_id,
                record.model,
                cost.usage.total_input_tokens,
                cost.usage.total_output_tokens,
                cost.cost_microcents,
                self._tracker.cost_microcents,
                cost.priced,
                cost.estimated,
                self._made,
            )
        )

    @property
    def spent(self) -> "Spent":
        """The tokens and the cost of all tries so far."""
        usage, estimated = self._tracker.usage, self._tracker.estimated
        return Spent(
            TokensUsed(
                usage.total_input_tokens, usage.total_output_tokens, self._model, estimated > 0
            ),
            self._tracker.cost_microcents,
            self._tracker.unpriced,
            estimated,
        )

    @property
    def tokens_used(self) -> TokensUsed:
        """The tokens of all tries."""
        return self.spent.tokens_used
