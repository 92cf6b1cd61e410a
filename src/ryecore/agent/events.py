"""The events of a run, and the meter that emits its costs.

The event bus adds the envelope: run, time and number.

Source: docs/design/agent-node.md#events.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from attrs import field

from ryecore.agent.outcome import TokensUsed
from ryecore.convert.fields import camel_keys, omitted_at_default
from ryecore.convert.money import to_usd
from ryecore.convert.strict import WIRE
from ryecore.frozen import frozen
from ryecore.llm.cost import AttemptCost, CostTracker, TokenEstimate, is_uncounted
from ryecore.llm.fallback_rules import AttemptRecord
from ryecore.llm.request import LlmRequest

if TYPE_CHECKING:
    from ryecore.agent.telemetry import AgentObserver

__all__ = [
    "AgentEvent",
    "AgentToken",
    "AgentToolCall",
    "AgentToolResult",
    "CostMeter",
    "CostUpdated",
    "Emit",
    "Spent",
]


class _Event:
    __slots__ = ()

    def to_dict(self) -> dict[str, object]:
        """Return the event in the wire format."""
        event: dict[str, object] = WIRE.write(self)
        return event


@frozen(field_transformer=camel_keys)
class AgentToken(_Event):
    """A piece of the answer's text.

    Attributes:
        node_id: The id of the node or session.
        token: The text.
        model: The model that is answering.
    """

    type: ClassVar[Literal["agent:token"]] = "agent:token"

    node_id: str
    token: str
    model: str


@frozen(field_transformer=camel_keys, slots=False)
class AgentToolCall(_Event):
    """The start of a tool call, or a call that was refused before it reached its tool.

    Attributes:
        node_id: The id of the node or session.
        model: The model that calls the tool.
        call_id: The id of the call.
        tool_id: The tool's name, as the model wrote it.
        tool_input: Its arguments; as text if they aren't a JSON object.
        attempt_number: The number of the try with the call, from 1.
    """

    type: ClassVar[Literal["agent:tool_call"]] = "agent:tool_call"

    node_id: str
    model: str
    call_id: str
    tool_id: str
    tool_input: Mapping[str, object] | str
    attempt_number: int | None = field(default=None, metadata=omitted_at_default())


@frozen(field_transformer=camel_keys, slots=False)
class AgentToolResult(_Event):
    """The end of a tool call.

    Attributes:
        node_id: The id of the node or session.
        call_id: The id of the call.
        tool_id: The tool's name, as the model wrote it.
        success: Whether the tool succeeded.
        output_summary: The beginning of its output.
        attempt_number: The number of the try with the call, from 1.
    """

    type: ClassVar[Literal["agent:tool_result"]] = "agent:tool_result"

    node_id: str
    call_id: str
    tool_id: str
    success: bool
    output_summary: str
    attempt_number: int | None = field(default=None, metadata=omitted_at_default())


@frozen(field_transformer=camel_keys, slots=False)
class CostUpdated(_Event):
    """The cost of one attempt, emitted for every attempt that was made, also for a failed one.

    Attributes:
        node_id: The id of the node or session.
        model: The requested model.
        input_tokens: All tokens that it read.
        output_tokens: All tokens that it wrote, reasoning included.
        cost_microcents: The cost; 1 microcent is 1e-8 USD.
        cumulative_cost_microcents: The total of the node, or of the run once its owner sets it.
        priced: Whether a price was known. Without one the cost is zero.
        estimated: Whether the tokens are an estimate, because the provider counted none.
        attempt_number: The number of the try, from 1.

    Source: docs/design/agent-node.md#events; decision 55.
    """

    type: ClassVar[Literal["cost:updated"]] = "cost:updated"

    node_id: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_microcents: int
    cumulative_cost_microcents: int
    priced: bool = True
    estimated: bool = False
    attempt_number: int | None = field(default=None, metadata=omitted_at_default())

    @property
    def cost_usd(self) -> Decimal:
        """The cost of the try in US dollars."""
        return to_usd(self.cost_microcents)

    @property
    def cumulative_cost_usd(self) -> Decimal:
        """The total in US dollars."""
        return to_usd(self.cumulative_cost_microcents)


AgentEvent: TypeAlias = AgentToken | AgentToolCall | AgentToolResult | CostUpdated

Emit: TypeAlias = Callable[[AgentEvent], None]
"""Takes each event. It must neither block nor raise; `EventBus.emit` is one."""


# The costs


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
        observer: "AgentObserver | None" = None,
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
        if self._observer is not None:
            self._observer.attempt(self._node_id, record)
        if record.outcome in ("skipped", "refused"):
            return
        self._made += 1
        self.attempt_number = self._made
        self._model = record.model
        request = self.request if is_uncounted(record) else None
        estimate = self._estimate.of(request) if request is not None else 0
        cost = self._tracker.record(record, input_tokens_estimate=estimate)
        if self._on_cost is not None:
            self._on_cost(record, cost)
        if self._emit is not None:
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
        )

    @property
    def tokens_used(self) -> TokensUsed:
        """The tokens of all tries."""
        return self.spent.tokens_used
