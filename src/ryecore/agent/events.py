"""The events of a run. The event bus adds the envelope: run, time and number.

Source: docs/design/agent-node.md#events.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import ClassVar, Literal, TypeAlias

from attrs import field, frozen

from ryecore.convert.fields import camel_keys, omitted_at_default
from ryecore.convert.money import to_usd
from ryecore.convert.strict import WIRE

__all__ = ["AgentEvent", "AgentToken", "AgentToolCall", "AgentToolResult", "CostUpdated", "Emit"]


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


@frozen(field_transformer=camel_keys)
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


@frozen(field_transformer=camel_keys)
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


@frozen(field_transformer=camel_keys)
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
