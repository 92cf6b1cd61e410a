"""Errors of models, of their tool calls, and of the turns of an agent."""

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
"""How a provider failed. `refused`: the host refused before anything was sent."""

RETRYABLE_KINDS: Final[frozenset[LlmErrorKind]] = frozenset({"rate_limit", "unavailable"})
"""The kinds of failures that may pass when tried again.

Source: docs/design/agent-node.md#failures; decision 50.
"""


class LlmError(RyeError):
    """A model's provider failed; `kind` says how. No text of it holds a key.

    Attributes:
        kind: The kind of failure.
        provider: The provider's id.
        model: The model that was called.
        retry_after_s: The wait that the provider asks for, in seconds.
        status: The HTTP status, if any.
        code: The host's reason, where the host refused.
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
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE_KINDS


class ToolCallError(RyeError):
    """A model's call of a tool can't be served.

    Source: docs/design/agent-node.md#failures.
    """

    error_type = "tool_call"
    tool_name: str


class UnknownToolError(ToolCallError, LookupError):
    """The model called a tool that doesn't exist. It can correct that."""

    error_type = "unknown_tool"
    known: tuple[str, ...] = ()


class ToolArgsInvalidError(ToolCallError):
    """The arguments aren't JSON, or don't fit the tool's schema. The model can correct that."""

    error_type = "tool_args_invalid"
    failures: tuple[str, ...] = ()


class ToolPolicyError(ToolCallError):
    """The call is denied: not granted, against the tool's policy, or not approved."""

    error_type = "tool_denied"


class ToolExecutionError(ToolCallError):
    """The tool ran and failed, or took too long."""

    error_type = "tool_execution"


class ToolCancelledError(ToolCallError):
    """The tool was cancelled while it ran."""

    error_type = "tool_cancelled"


class HostCapabilityMissing(ToolCallError):
    """The host doesn't offer what the tool needs."""

    error_type = "host_capability_missing"
    capability: str


class AgentTurnError(RyeError):
    """An agent's turns ended without a result; `code` says why.

    Attributes:
        code: One of the closed set `ErrorCode`.
        retryable: Whether the same run may succeed later.
    """

    error_type = "agent_turn"
    code: str
    retryable: bool = False
