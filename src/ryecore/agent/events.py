"""The events of a run.

The event bus adds the envelope: run, time and number.

Source: docs/design/agent-node.md#events.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

from attrs import field

from ryecore.agent.outcome import ErrorCode
from ryecore.convert.fields import camel_keys, omitted_at_default
from ryecore.convert.money import to_usd
from ryecore.convert.strict import WIRE
from ryecore.frozen import frozen
from ryecore.llm.result import StopReason

if TYPE_CHECKING:
    from ryecore.agent.costs import Spent

__all__ = [
    "AgentEnd",
    "AgentEvent",
    "AgentReasoning",
    "AgentToken",
    "AgentToolCall",
    "AgentToolResult",
    "ApprovalRequested",
    "ApprovalResolved",
    "CompactionFailed",
    "ConversationCompacted",
    "CostUpdated",
    "Emit",
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


@frozen(field_transformer=camel_keys)
class AgentReasoning(_Event):
    """A piece of the model's reasoning, from models that show it.

    Attributes:
        node_id: The id of the node or session.
        text: The text.
        model: The model that is reasoning.
    """

    type: ClassVar[Literal["agent:reasoning"]] = "agent:reasoning"

    node_id: str
    text: str
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
        cache_read_tokens: How many of the input tokens came from the provider's cache.
        cache_write_tokens: How many of them were written to it.
        cache_saved_microcents: What the cache saved; below 0 where writing to it cost more.
        waited_ms: How long the try waited for its provider's rate limit before it was made.

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
    cache_read_tokens: int = field(default=0, metadata=omitted_at_default())
    cache_write_tokens: int = field(default=0, metadata=omitted_at_default())
    cache_saved_microcents: int = field(default=0, metadata=omitted_at_default())
    waited_ms: float = field(default=0.0, metadata=omitted_at_default())

    @property
    def cost_usd(self) -> Decimal:
        """The cost of the try in US dollars."""
        return to_usd(self.cost_microcents)

    @property
    def cumulative_cost_usd(self) -> Decimal:
        """The total in US dollars."""
        return to_usd(self.cumulative_cost_microcents)


@frozen(field_transformer=camel_keys, slots=False)
class AgentEnd(_Event):
    """The end of a session's reply: no event of it follows.

    Attributes:
        node_id: The id of the session.
        stop_reason: Why the model stopped; `error` for a reply that failed or was cancelled,
            `approval` for one whose calls wait for an approval.
        turns: The number of turns; 0 where it failed.
        input_tokens: All tokens that were read for the reply.
        output_tokens: All tokens that were written for it, reasoning included.
        cost_microcents: The cost; 1 microcent is 1e-8 USD.
        priced: Whether all of its tries had a price. Without one, a try costs zero.
        estimated: Whether some of the tokens are an estimate.
        error_code: Why it failed.
    """

    type: ClassVar[Literal["agent:end"]] = "agent:end"

    node_id: str
    stop_reason: StopReason | Literal["approval"]
    turns: int
    input_tokens: int
    output_tokens: int
    cost_microcents: int
    priced: bool = True
    estimated: bool = False
    error_code: ErrorCode | None = field(default=None, metadata=omitted_at_default())

    @classmethod
    def of(
        cls,
        node_id: str,
        spent: "Spent",
        *,
        stop_reason: StopReason | Literal["approval"] = "error",
        turns: int = 0,
        error_code: ErrorCode | None = None,
    ) -> Self:
        """Return the end of a reply by its costs."""
        used = spent.tokens_used
        return cls(
            node_id,
            stop_reason,
            turns,
            used.input,
            used.output,
            spent.cost_microcents,
            not spent.unpriced,
            spent.estimated > 0,
            error_code,
        )

    @property
    def cost_usd(self) -> Decimal:
        """The cost of the reply in US dollars."""
        return to_usd(self.cost_microcents)


@frozen(field_transformer=camel_keys)
class ApprovalRequested(_Event):
    """A call of a tool waits for a person's approval.

    Attributes:
        node_id: The id of the session or thread.
        approval_id: The id of the approval, by which it is answered.
        call_id: The model's id of the call.
        tool_id: The tool's name.
        tool_input: The exact arguments, without those that the host sets.
        reason: Why approval is needed.
    """

    type: ClassVar[Literal["approval:requested"]] = "approval:requested"

    node_id: str
    approval_id: str
    call_id: str
    tool_id: str
    tool_input: Mapping[str, object]
    reason: str


@frozen(field_transformer=camel_keys)
class ApprovalResolved(_Event):
    """A person has answered whether a call may be made.

    Attributes:
        node_id: The id of the session or thread.
        approval_id: The id of the approval.
        call_id: The model's id of the call.
        tool_id: The tool's name.
        approved: Whether exactly this call may be made.
        reason: The reason that was given; that of a denial is told to the model.
    """

    type: ClassVar[Literal["approval:resolved"]] = "approval:resolved"

    node_id: str
    approval_id: str
    call_id: str
    tool_id: str
    approved: bool
    reason: str


@frozen(field_transformer=camel_keys)
class ConversationCompacted(_Event):
    """The beginning of a long conversation was replaced by a summary.

    Attributes:
        node_id: The id of the node or session.
        replaced_messages: How many messages became the first one, which has the summary.
        tokens_before: The tokens of the next request, as they were.
        tokens_after: The tokens that it has now, estimated.
        window_tokens: The size of the model's context in tokens.
        summary: The summary, as the model sees it.
    """

    type: ClassVar[Literal["conversation:compacted"]] = "conversation:compacted"

    node_id: str
    replaced_messages: int
    tokens_before: int
    tokens_after: int
    window_tokens: int
    summary: str


@frozen(field_transformer=camel_keys)
class CompactionFailed(_Event):
    """A long conversation couldn't be summarized, and stays as it is.

    Attributes:
        node_id: The id of the node or session.
        reason: Why.
        tokens_used: The tokens of the next request.
        window_tokens: The size of the model's context in tokens.
    """

    type: ClassVar[Literal["conversation:compaction_failed"]] = "conversation:compaction_failed"

    node_id: str
    reason: str
    tokens_used: int
    window_tokens: int


AgentEvent: TypeAlias = (
    AgentToken
    | AgentReasoning
    | AgentToolCall
    | AgentToolResult
    | ApprovalRequested
    | ApprovalResolved
    | ConversationCompacted
    | CompactionFailed
    | CostUpdated
    | AgentEnd
)

Emit: TypeAlias = Callable[[AgentEvent], None]
"""Takes each event. It must neither block nor raise; `EventBus.emit` is one."""
