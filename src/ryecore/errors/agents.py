"""Models, their tool calls, and the turns of an agent."""

from typing import Final, Literal, TypeAlias

from ryecore.errors.base import RyeError

__all__ = [
    "RETRYABLE_KINDS",
    "AgentTurnError",
    "HostCapabilityMissing",
    "LlmError",
    "LlmErrorKind",
    "ToolArgsInvalidError",
    "ToolCallError",
    "ToolCancelledError",
    "ToolExecutionError",
    "ToolPolicyError",
    "UnknownToolError",
]


LlmErrorKind: TypeAlias = Literal[
    "auth",
    "rate_limit",
    "unavailable",
    "content_filter",
    "bad_request",
    "context_length",
    "refused",
    "cancelled",
    "unknown",
]
"""How a provider failed. `refused` is the host's own refusal, before anything was sent."""

RETRYABLE_KINDS: Final[frozenset[LlmErrorKind]] = frozenset({"rate_limit", "unavailable"})
"""What may go well when it is tried again.

Source: docs/design/agent-node.md#failures; decision 50.
"""


class LlmError(RyeError):
    """A model's provider failed. It names no key: providers' texts are cleaned of them.

    Attributes:
        kind: How it failed.
        provider: The provider's id.
        model: The model that was asked.
        retry_after_s: How long the provider asks to wait, in seconds.
        status: The HTTP status, where there was one.
        code: Why the host refused, where it did.
    """

    error_type = "llm"
    kind: LlmErrorKind = "unknown"
    provider: str = ""
    model: str = ""
    retry_after_s: float | None = None
    status: int | None = None
    code: str = ""

    @property
    def retryable(self) -> bool:
        """Whether it may go well when it is tried again."""
        return self.kind in RETRYABLE_KINDS


class ToolCallError(RyeError):
    """A model's call of a tool can't be served.

    Source: docs/design/agent-node.md#failures.
    """

    error_type = "tool_call"
    tool_name: str


class UnknownToolError(ToolCallError, LookupError):
    """The model called a tool that isn't there. It can correct that."""

    error_type = "unknown_tool"
    known: tuple[str, ...] = ()


class ToolArgsInvalidError(ToolCallError):
    """The arguments are no JSON, or don't fit the tool's schema. The model can correct that."""

    error_type = "tool_args_invalid"
    failures: tuple[str, ...] = ()


class ToolPolicyError(ToolCallError):
    """The call is denied: it isn't granted, breaks the tool's policy, or wasn't approved."""

    error_type = "tool_denied"


class ToolExecutionError(ToolCallError):
    """The tool ran and failed, or took too long."""

    error_type = "tool_execution"


class ToolCancelledError(ToolCallError):
    """The tool was cancelled while it ran."""

    error_type = "tool_cancelled"


class HostCapabilityMissing(ToolCallError):
    """The tool needs something of the host that the host doesn't offer."""

    error_type = "host_capability_missing"
    capability: str


class AgentTurnError(RyeError):
    """An agent's turns ended without a result.

    Attributes:
        code: One of the closed set `ErrorCode`.
        retryable: Whether the same run may go well later.
    """

    error_type = "agent_turn"
    code: str
    retryable: bool = False
