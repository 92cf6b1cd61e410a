"""The limits of an agent's turns."""

from attrs import field, frozen
from attrs.validators import optional

from ryecore.llm.checks import above, at_least, of
from ryecore.llm.plan import Backoff
from ryecore.policy.limits import DEFAULT_TOOL_TURNS

__all__ = ["AgentTurnLimits"]


@frozen
class AgentTurnLimits:
    """What an agent's turns are bounded by.

    Attributes:
        max_tool_turns: How many turns may call tools. One more is `turn_limit`.
        max_calls_a_turn: How many calls of one turn are served. The model is told of the rest.
        correction_budget: How many turns may be spent on telling the model what it did wrong:
            unknown tools, arguments that don't fit, an output that doesn't fit its schema.
        max_output_tokens: How long one answer may be; the provider's own bound where None.
        max_answer_chars: How much one answer may stream before it counts as broken. A tool call
            counts as 100 characters more, and a chunk without any as one.
        stall_s: How long a provider may send nothing, in seconds.
        media_timeout_s: How long one call for media may take, in seconds.
        cooldown_s: How long a provider that failed is left alone, in seconds.
        backoff: How long to wait before the next try.

    Source: docs/design/agent-node.md; decisions 50 and 51.
    """

    max_tool_turns: int = field(default=DEFAULT_TOOL_TURNS, validator=at_least(0))
    max_calls_a_turn: int = field(default=128, validator=at_least(1))
    correction_budget: int = field(default=3, validator=at_least(0))
    max_output_tokens: int | None = field(default=None, validator=optional(above(0)))
    max_answer_chars: int = field(default=16_000_000, validator=above(0))
    stall_s: float = field(default=60.0, validator=above(0))
    media_timeout_s: float = field(default=300.0, validator=above(0))
    cooldown_s: float = field(default=30.0, validator=at_least(0))
    backoff: Backoff = field(factory=Backoff, validator=of("a Backoff", Backoff))
